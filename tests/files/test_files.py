from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import (
    check_writable,
    is_stream,
    lab_origin,
    map_file,
    parse_json,
    read_text,
    snapshot_file,
    state_dir,
    write_atomic,
)

ROOT = Path(__file__).parents[2]


def run_python(code: str, *args: str, prefix: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", textwrap.dedent(code), *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_state_dir_prefers_the_most_specific_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests CLOUDCOLL_HOME, then XDG_STATE_HOME, then the home folder."""
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    monkeypatch.setenv("CLOUDCOLL_HOME", "/c")
    assert state_dir() == Path("/c")
    monkeypatch.delenv("CLOUDCOLL_HOME")
    assert state_dir() == Path("/x/cloudcoll")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_dir() == Path("/h/.local/state/cloudcoll")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Tests no file, no text and no JSON, with advice and without."""
    path = tmp_path / "file"
    with pytest.raises(UsageError, match=r"read the map: No such file .* \(so\)"):
        read_text(path, "the map", "so")
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"read the map: not text$"):
        read_text(path, "the map")
    path.write_text("é")
    assert read_text(path, "the map") == "é"
    assert parse_json('{"a": [1]}', "the map") == {"a": [1]}
    for text in ("{", "[" * 100_000):
        with pytest.raises(UsageError, match=r"^the map: not JSON \("):
            parse_json(text, "the map")


def test_write_makes_folders_and_leaves_one_file(tmp_path: Path) -> None:
    """Tests text and bytes, missing parents, and that no temporary is left."""
    target = tmp_path / "a" / "b" / "file"
    assert write_atomic(target, "é") == target
    assert target.read_bytes() == "é".encode()
    write_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """Tests that what is no file is not replaced by one: /dev/null has to stay."""
    pipe, text = tmp_path / "pipe", "x" * 1000
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        write_atomic(pipe, text)
        assert reader.read() == text
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]
    out = run_python(
        """
        import sys
        from cloudcoll.files import write_atomic
        for path in sys.argv[1:]:
            write_atomic(path, path)
        """,
        *("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"),
    )
    assert out == "/dev/stdout/dev/fd/1/proc/self/fd/1"


def test_what_is_no_file(tmp_path: Path) -> None:
    """Tests devices; not folders, files, what is not there, nor a link to a device."""
    for name in ("/dev/null", "/dev/stdout", "/dev/fd/1"):
        assert is_stream(Path(name))
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    for path in (tmp_path, Path(__file__), tmp_path / "none", link):
        assert not is_stream(path)
    write_atomic(link, "a file")
    assert link.is_file()
    assert not link.is_symlink()


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    """Tests that others may read a result as they may any other file."""
    plain = tmp_path / "plain"
    plain.write_text("")
    written = write_atomic(tmp_path / "written", "")
    assert written.stat().st_mode == plain.stat().st_mode


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """Tests that what the link points to is left as it was."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "real").read_text() == "old"
    assert (tmp_path / "link").read_text() == "new"


def test_refusals_name_the_path(tmp_path: Path) -> None:
    """Tests a parent that is a file, and a target that is a folder."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "file" / "x", tmp_path / "folder", "/", "."):
        with pytest.raises(UnusableError, match=f"cannot write {target}"):
            write_atomic(target, "new")
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_what_cannot_be_written_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a check refuses what a write does, and leaves nothing."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "file" / "x", tmp_path / "folder", "/", "."):
        with pytest.raises(UnusableError, match=f"cannot write {target}"):
            check_writable(target)
    for target in (tmp_path / "file", tmp_path / "folder" / "x", "/dev/null"):
        check_writable(target)
    assert (tmp_path / "file").read_text() == "old"
    assert list((tmp_path / "folder").iterdir()) == []
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(UnusableError, match=r"another place with CLOUDCOLL_HOME\)$"):
        write_atomic(state_dir() / "x", "new")


def test_a_file_size_limit_keeps_the_old_file(tmp_path: Path) -> None:
    """Tests a write that fails half-way, as on a full disk."""
    target = tmp_path / "file"
    target.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores SIGXFSZ: the write fails with "File too large".
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(UnusableError, match="File too large"):
            write_atomic(target, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.lab
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("remount,bind,rw", "No space left on device"),
        ("remount,bind,ro", "Read-only file system"),
    ],
)
def test_a_full_or_read_only_disk_keeps_the_old_file(
    tmp_path: Path, options: str, reason: str
) -> None:
    """Tests real file systems, mounted where nobody else sees them."""
    code = """
        import pathlib, subprocess, sys
        from cloudcoll.errors import UnusableError
        from cloudcoll.files import write_atomic
        folder, options = sys.argv[1:]
        tmpfs = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder]
        subprocess.run(tmpfs, check=True)
        target = pathlib.Path(folder, "file")
        target.write_text("old")
        subprocess.run(["mount", "-o", options, folder], check=True)
        try:
            write_atomic(target, b"x" * 200_000)
        except UnusableError as error:
            print(error)
        print(target.read_text(), *[path.name for path in target.parent.iterdir()])
    """
    own_mounts = ("unshare", "--user", "--map-root-user", "--mount")
    out = run_python(code, str(tmp_path), options, prefix=own_mounts).splitlines()
    assert out[0].startswith(f"cannot write {tmp_path / 'file'}: {reason}")
    assert out[1:] == ["old file"]


def test_a_kill_at_any_line_leaves_old_or_new(tmp_path: Path) -> None:
    """Tests SIGKILL at every Python line that a write executes."""
    code = """
        import itertools, json, os, pathlib, signal, sys
        from cloudcoll.files import write_atomic
        target = pathlib.Path(sys.argv[1])

        def killed_at(line):
            left = line
            def trace(frame, event, arg):
                nonlocal left
                left -= event == "line"
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return trace
            pid = os.fork()
            if not pid:
                sys.settrace(trace)
                write_atomic(target, b"new" * 50_000)
                os._exit(0)
            return os.waitpid(pid, 0)[1] == signal.SIGKILL

        seen = []
        for line in itertools.count():
            target.write_bytes(b"old")
            killed = killed_at(line)
            content = target.read_bytes()
            assert content in (b"old", b"new" * 50_000), (line, len(content))
            seen.append(content[:3].decode())
            if not killed:
                break
        print(json.dumps(seen))
    """
    seen = json.loads(run_python(code, str(tmp_path / "file")))
    assert len(seen) > 20
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert seen == sorted(seen, reverse=True)  # once new, never old again


def test_a_lab_keeps_its_own_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that snapshots and maps of a lab go with it, others stay."""
    outside = snapshot_file("x")
    monkeypatch.setenv("CLOUDCOLL_LAB", str(tmp_path))
    assert snapshot_file("x").is_relative_to(tmp_path)
    assert map_file("x", "y").is_relative_to(tmp_path)
    assert not outside.is_relative_to(tmp_path)


def test_what_is_measured_in_a_lab_says_what_it_is_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that it is what the lab's file says, and nothing outside of labs."""
    monkeypatch.delenv("CLOUDCOLL_LAB", raising=False)
    assert lab_origin() == {}
    monkeypatch.setenv("CLOUDCOLL_LAB", str(tmp_path))
    assert lab_origin() == {"lab": {}}
    (tmp_path / "character.json").write_text('{"preset": "deep"}')
    assert lab_origin() == {"lab": {"preset": "deep"}}
    (tmp_path / "character.json").write_text("{")
    assert lab_origin() == {"lab": {}}
