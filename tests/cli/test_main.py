from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cloudcoll import __version__
from cloudcoll.cli import main
from cloudcoll.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]

WAITING = """
    # The real program, with one command more: it waits until it is stopped.
    import sys, time, types
    import click
    from cloudcoll import cli
    from cloudcoll.cli.commands import COMMANDS

    @click.command()
    def command():
        try:
            print("ready", flush=True)
            while True:  # pause() would sleep through a signal that came before
                time.sleep(0.01)
        finally:
            print("cleaned up", flush=True)

    COMMANDS["wait"] = "wait until stopped"
    sys.modules["cloudcoll.cli.wait"] = types.SimpleNamespace(command=command)
    sys.argv = ["cloudcoll", "wait"]
    sys.exit(cli.main())
"""

IN_AN_IMPORT = """
    # The real program, stopped by Ctrl-C while it loads click.
    import os, signal, sys

    class Finder:
        def find_spec(name, path=None, target=None):
            if name == "click.core":
                os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.meta_path.insert(0, Finder)
    from cloudcoll.cli import main
    sys.exit(main(["--version"]))
"""


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["bench", "--json", "--csv", "mpirun"], "--json and --csv exclude"),
        (["bench", "--timeout", "nan", "mpirun"], "'nan' is not a number"),
        (["bench", "--seconds", "inf", "mpirun"], "'inf' is not a number"),
        (["bench", "--narrow", "-1", "mpirun"], "not in the range x>=0"),
        (["solve", "--time", "nan", "x.snap"], "'nan' is not a number"),
        (["lab", "fault", "traffic", "--seconds", "nan", "a", "b"], "is not a number"),
    ],
)
def test_options_that_make_no_sense(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests what would else be ignored, or end somewhere far from its cause."""
    assert main(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [[], *([name] for name in COMMANDS), ["import", "matrix"], ["lab", "exec"]]
)
def test_examples_keep_their_lines(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a help shows its examples one by one, not as a paragraph."""
    assert main([*argv, "--help"]) == 0
    text = capsys.readouterr().out
    assert "\\b" not in text
    assert any(line.startswith("  cloudcoll ") for line in text.splitlines())


@pytest.mark.parametrize("argv", [["--help"], ["-h"]])
def test_help_lists_every_command(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that help goes to stdout and names all commands."""
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    listed = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert set(COMMANDS) <= listed
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_listed_command_is_there(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that each command's module loads and has help of its own."""
    assert main([name, "--help"]) == 0
    assert f"Usage: cloudcoll {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that the program tells the package's version."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cloudcoll, version {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["slove"], "no command 'slove' (did you mean solve? known: agent, "),
        (["--colour"], "--colour"),
        (["show"], "PATH"),
        (["show", "--colour", "x"], "--colour"),
    ],
)
def test_what_is_not_there_is_a_usage_error(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests exit code 2 and a message on stderr that names the word."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert named in err


def test_an_error_is_one_line_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a missing snapshot ends in 2, a damaged one in 3."""
    (tmp_path / "bad.snap").write_bytes(b"cloudcoll-snapshot 1 ")
    for name, code in (("none.snap", 2), ("bad.snap", 3)):
        assert main(["show", str(tmp_path / name)]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("cloudcoll: ")
        assert len(err.splitlines()) == 1
        assert name in err


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_cleans_up_and_shows_in_the_exit_code(
    number: signal.Signals, code: int
) -> None:
    """Tests a real process, stopped where it stands."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WAITING)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # nohup may have started us.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert out == "cleaned up\n"
    assert err.strip() == "cloudcoll: interrupted"


def test_an_interrupted_start() -> None:
    """Tests Ctrl-C before all is imported: the same words and exit code."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IN_AN_IMPORT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "cloudcoll: interrupted\n"


def test_an_interrupt_within_a_string_that_is_executed(tmp_path: Path) -> None:
    """Tests that Ctrl-C in the midst of making a dataclass is a Ctrl-C like others."""
    (tmp_path / "click.py").write_text(
        'exec("import os, signal; os.kill(os.getpid(), signal.SIGINT)\\nwhile 1: pass")'
    )
    done = subprocess.run(
        [sys.executable, "-m", "cloudcoll.cli", "show"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stderr == "cloudcoll: interrupted\n"
    assert done.returncode == 130


def test_nohup_keeps_its_protection() -> None:
    """Tests that a SIGHUP that was ignored before the start stays ignored."""
    with subprocess.Popen(
        ["nohup", sys.executable, "-c", textwrap.dedent(WAITING)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 143


def test_a_reader_that_goes_away_is_no_error() -> None:
    """Tests output into a closed pipe: no traceback, 128 + SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "cloudcoll.cli", "--help"],
            cwd=ROOT,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.stderr == ""
    assert done.returncode == 141


@pytest.mark.parametrize(
    "elsewhere", [">&-", "2>&-", "<&-", "<&- >&- 2>&-", "2>/dev/full", "2>&1 | true"]
)
def test_a_job_runs_whatever_became_of_our_files(
    tmp_path: Path, elsewhere: str
) -> None:
    """Tests closed files, a full disk below stderr and a reader that went away."""
    line = f"{sys.executable} -m cloudcoll.cli run touch {tmp_path}/ran {elsewhere}"
    subprocess.run(["bash", "-c", line], cwd=ROOT, timeout=120, check=False)
    assert (tmp_path / "ran").exists()


def test_a_result_that_does_not_fit_on_the_disk() -> None:
    """Tests one line on stderr and exit code 3."""
    line = f"{sys.executable} -m cloudcoll.cli --help >/dev/full"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 3
    assert done.stderr == (
        "cloudcoll: cannot write the result: No space left on device\n"
    )


def test_a_bench_knows_before_that_its_result_cannot_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that nothing is started for a result that has no place."""
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "result.json")
    assert main(["bench", "-o", path, "no-launcher"]) == 3
    assert f"cannot write {path}: " in capsys.readouterr().err


def test_an_option_of_the_launcher_in_front_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that the message says where it belongs, for commands with a launcher."""
    where = "Options of the launcher stand behind it."
    assert main(["bench", "--hostfile", "hosts", "mpirun"]) == 2
    assert where in capsys.readouterr().err
    assert main(["run", "--hostfile", "hosts", "mpirun"]) == 125
    assert where in capsys.readouterr().err
    assert main(["report", "--hostfile", "hosts", "mpirun"]) == 2
    assert where not in capsys.readouterr().err
