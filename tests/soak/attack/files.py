"""Files from strangers: what reading them takes, and what comes out of them."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import test_limits
import test_names
import test_plain

from attack.kit import attack, hold, program
from cloudcoll.cli import main
from cloudcoll.errors import CloudcollError
from cloudcoll.files.limits import FREE, GROWTH
from cloudcoll.launch.formats import FORMATS
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.measured.synth import observe, racks

EVIL = test_plain.EVIL
EVIL_HOST = "h3\nvm-evil slots=8"
OPTION = "-oProxyCommand=touch owned"


def bombs(*names: str) -> str:
    """Have `show` read small snapshots that promise much; return what it says."""
    told = []
    for name in names:
        path = Path(f"{name}.snap".replace(" ", "-"))
        path.write_bytes(test_limits.SNAPSHOTS[name][0]())
        told.append(bounded(path, "show", "FILE"))
    return told[0]


def bounded(path: Path, *words: str) -> str:
    """Return how a file is refused: in a line, in memory that its size allows."""
    done, took = hostile.run(path.resolve(), *words)
    hold("Traceback" not in done.stderr, f"{path}: {done.stderr[-300:]}")
    most = GROWTH * path.stat().st_size + FREE
    hold(took <= most, f"{path.stat().st_size} bytes take {took >> 20} MiB")
    hold(done.returncode in (1, 2, 3), f"{path}: exit code {done.returncode}")
    return done.stderr.splitlines()[0]


@attack()
def a_snapshot_with_millions_of_entries() -> str:
    """Take gigabytes by 40 KB of compressed JSON."""
    return bombs("merged", "objects")


@attack()
def a_snapshot_with_huge_arrays() -> str:
    """Ask for 256 TiB by a shape of 2^45, for more by 2^70, for 256 MiB by zeros."""
    path = Path("zeros.snap")
    path.write_bytes(test_limits.a_bomb(0, 1 << 25))
    bounded(path, "show", "FILE")
    return bombs("shape", "overflow")


@attack()
def a_snapshot_of_many_hosts() -> str:
    """Ask for a matrix of 74 GiB by a hundred thousand hosts."""
    return bombs("hosts", "deep", "members")


@attack()
def a_map_of_many_ranks() -> str:
    """Take gigabytes in `export` by a map of 100 bytes."""
    path = Path("map.json")
    path.write_text('{"schema": 1, "order": ["a"], "slots": [1000000000000]}')
    told = ""
    for form in ("hostfile", "ompi-rankfile"):
        told = bounded(path, "export", "FILE", "--format", form)
    return told


@attack()
def pickles_in_a_snapshot() -> str:
    """Run code by an array of objects, and by a pickle in an array's place."""

    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
            return (open, (str(Path("owned").resolve()), "w"))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Evil()], dtype=object), allow_pickle=True)
    Path("owned").unlink(missing_ok=True)
    for member in (buffer.getvalue(), pickle.dumps(Evil())):
        path = Path("a.snap")
        path.write_bytes(hostile.stored(hostile.HEADER, {"rtt_seconds": member}))
        done = program("show", path)
        hold(done.returncode == 3, f"exit code {done.returncode}")
    path.write_bytes(pickle.dumps(Evil()))
    done = program("show", path)
    hold(not Path("owned").exists(), "it ran")
    return done.stderr.strip()


@attack()
def members_that_lead_out() -> str:
    """Have an archive write outside of its place, by names with ../ and twice."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("../owned.npy", f"{Path.cwd()}/owned", "header.npy"):
            archive.writestr(name, b"x")
    Path("a.snap").write_bytes(hostile.sealed(buffer.getvalue()))
    done = program("show", "a.snap")
    hold(done.returncode == 3, f"exit code {done.returncode}")
    hold(not Path("owned").exists() and not Path("../owned.npy").exists(), "written")
    return done.stderr.strip()


@attack()
def names_that_are_lines_or_options() -> str:
    """Bring names that end lines or are options in by all files that have names."""
    tries = 0
    for way, make in test_names.WAYS.items():
        for name in (EVIL_HOST, OPTION, "$(touch owned)", "a\0", "../../etc/passwd"):
            try:
                make(name)(Path("file"))
                hold(False, f"{way} takes {name!r}")
            except CloudcollError as error:
                hold(str(error).isprintable(), f"{way}: {error}")
            tries += 1
    return f"{tries} names in {len(test_names.WAYS)} ways in, all refused"


@attack()
def lines_in_files_for_launchers() -> str:
    """Have `export` write a line for a host of the attacker's, in any format."""
    path = Path("map.json")
    for name in (EVIL_HOST, OPTION):
        told = {"schema": 1, "order": ["a", name], "slots": [1, 1]}
        path.write_text(json.dumps(told))
        for form in ("hostfile", "environment", "ompi-rankfile"):
            done = program("export", path, "--format", form)
            hold(not done.stdout, f"{form}: {done.stdout}")
    tree = {"name": "r\nSwitchName=evil", "children": [{"name": "a"}, {"name": "b"}]}
    fabric = {"root": tree}
    path = Path("a.snap")
    path.write_bytes(hostile.stored({**hostile.HEADER, "fabric": fabric}))
    done = program("export", path, "--format", "topology")
    hold("\nSwitchName=evil" not in done.stdout, done.stdout)
    return done.stderr.strip() or "the switch's name is made one word"


@attack()
def negative_measurements() -> str:
    """Store ends that go back, negative seconds, NaN and 2^62 bytes."""
    ints = test_limits.ints
    one = {name: ints(0) for name in ("rtt_src", "flows_round", "flows_src")}
    one |= {name: ints(1) for name in ("rtt_dst", "flows_dst", "rtt_sent", "rtt_ends")}
    one |= {"flows_ends": ints(1), "flows_window_bytes": ints(7)}
    one["rtt_seconds"] = seconds(1e-4)
    path = Path("a.snap")
    path.write_bytes(hostile.stored(hostile.HEADER, one))
    hold(load_snapshot(path), "the right one is not read: nothing was tried")
    wrong = {
        **{name: ints(-1) for name in one if name != "rtt_seconds"},
        "rtt_sent": ints(1 << 62),
        "flows_window_bytes": ints(1 << 62),
    }
    tries = [*wrong.items()]
    tries += [("rtt_seconds", seconds(bad)) for bad in (-1.0, np.nan, np.inf)]
    for name, array in tries:
        path.write_bytes(hostile.stored(hostile.HEADER, {**one, name: array}))
        with contextlib.suppress(CloudcollError):
            load_snapshot(path)
            hold(False, f"{name} is taken")
    return f"{len(tries)} of them, all refused"


def seconds(value: float) -> bytes:
    """Return a column of one time."""
    return hostile.npy(np.array([value]).tobytes(), "<f8", (1,))


def run_plain(*words: object) -> str:
    """Run a command in this process; return what it prints, which has to be plain."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main([str(word) for word in words])
    for text in (out.getvalue(), err.getvalue()):
        try:
            test_plain.assert_plain(text)
        except AssertionError:
            hold(False, f"{words[0]}: not plain: {text!r}")
    return out.getvalue() + err.getvalue()


@attack()
def escapes_from_a_snapshot() -> str:
    """Move the cursor, set a title, forge a line: by each text of a snapshot."""
    fabric = synth.racks((3, 2), seed=4)
    path, bad = Path("network.snap"), Path("bad.snap")
    synth.observe(fabric, rounds=3).with_fabric(fabric).save(path)
    header, arrays = test_plain.split(path)
    for key in ("transport", "mode", "source", "origin"):
        header["metadata"][key] = f"some {key}"
    header["failed"] = {"vm-1": "no answer"}
    count = 0
    for value in test_plain.spoilt(header):
        bad.write_bytes(test_plain.snapshot_bytes(value, arrays))
        for words in (("show",), ("solve", "--algorithm", "ring")):
            run_plain(words[0], bad, *words[1:])
            count += 1
    return f"{count} commands, all they print is plain"


@attack()
def escapes_from_a_map() -> str:
    """The same by each text of a rank map, in `show` and `export`."""
    told = {"schema": 1, "order": ["a", "b"], "slots": [1, 1], "assumption": "as"}
    told |= {"kept": "as kept", "dropped": ["c"], "snapshot": "ab12"}
    path, count = Path("map.json"), 0
    for value in test_plain.spoilt(told):
        path.write_text(json.dumps(value))
        for words in (("show", path), ("export", path, "--format", "hostfile")):
            run_plain(*words)
            count += 1
    return f"{count} commands, all they print is plain"


class Tags(HTMLParser):
    """Collects what a page would do."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note scripts, handlers of events, and what is loaded from elsewhere."""
        if tag in ("script", "iframe", "img", "object", "embed", "form", "base"):
            self.bad.append(tag)
        for name, value in attrs:
            if name.startswith("on") or "javascript:" in (value or ""):
                self.bad.append(f"{tag} {name}={value}")
            loads = name in ("src", "href", "xlink:href", "action", "srcset")
            outside = re.match(r"https?:|//|data:.", value or "")
            # Our own icon is empty.
            if loads and outside and value != "data:,":
                self.bad.append(f"{tag} {name}={value}")


MARKUP = (
    "</title><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><iframe src=//evil.example>",
    "' onmouseover='alert(1)",
    "[x](javascript:alert(1))",
    "![](http://evil.example/x.png)",
    "```\n# owned",
    "</text></svg><script>",
    "&lt;script&gt;",
)


def reports(
    form: str, judge: Callable[[str, str], None], markups: tuple[str, ...] = MARKUP
) -> str:
    """Write reports of results whose texts are markup; return how many there are."""
    path, output = Path("result.json"), Path(f"report.{form}")
    told, written = test_plain.bench_result(), 0
    texts = list(dict.fromkeys(test_plain.texts(told)))
    for markup in markups:
        for text in texts:
            path.write_text(json.dumps(test_plain.put(told, text, markup)))
            output.unlink(missing_ok=True)
            run_plain("report", path, "-o", output)
            if output.exists():
                written += 1
                judge(markup, output.read_text())
    hold(written > 5, f"only {written} reports were written: nothing was tried")
    return f"{written} reports with markup of others, none has any of it"


@attack()
def scripts_in_a_page() -> str:
    """Have the HTML report run a script or load something: by a bench result."""

    def judge(markup: str, text: str) -> None:
        tags = Tags()
        tags.feed(text)
        hold(not tags.bad, f"{markup!r} gives {tags.bad}")

    return reports("html", judge, ("".join(MARKUP),))


@attack()
def markup_in_markdown() -> str:
    """Have the Markdown report show a picture, a link or a heading of others."""

    def judge(markup: str, text: str) -> None:
        fence = ""
        for line in text.splitlines():
            found = re.match(r"`{3,}", line)
            if found and not fence:
                fence = found[0]
            elif fence and line.strip() == fence:
                fence = ""
            elif not fence:
                bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
                clean = re.sub(r"\\.", "", bare)  # what a backslash keeps text
                live = re.search(r"<(script|img|iframe)|\[[^]]*\]\(", clean)
                hold(not live, f"{markup!r} gives {line!r}")
                hold(line != "# owned", f"{markup!r} gives a heading")

    return reports("md", judge)


@attack()
def json_that_takes_the_stack() -> str:
    """Nest JSON a hundred thousand deep, in each file that is JSON."""
    deep = "[" * 100_000
    Path("deep.json").write_text(deep)
    words = (
        ("show", "deep.json"),
        ("report", "deep.json"),
        ("import", "fabric", "deep.json", "-o", "a.snap"),
        ("import", "labels", "deep.json", "-o", "a.snap"),
    )
    ends = [main([*one]) for one in words]
    hold(set(ends) <= {1, 2, 3}, f"{ends}")
    return f"exit codes {ends}"


@attack()
def lists_that_expand() -> str:
    """Expand a line of a host list to 10^12 hosts, and ranges in ranges."""
    Path("hosts").write_text("a[1-1000000]b[1-1000000]\n")
    told = bounded(Path("hosts"), "probe", "--hostfile", "FILE", "--dry-run")
    Path("hosts").write_text("a[" * 20_000 + "1" + "]" * 20_000)
    bounded(Path("hosts"), "probe", "--hostfile", "FILE", "--dry-run")
    return told


@attack()
def values_for_a_shell() -> str:
    """Have `export` write what a shell that sources it runs: labels, names, digests."""
    path = Path("map.json")
    told = {"schema": 1, "order": ["a", "b"], "slots": [1, 1]}
    for key, value in (
        ("snapshot", "$(touch owned)"),
        ("assumption", "x\ntouch owned\n"),
        ("kept", "`touch owned`"),
        ("addresses", {"a": "$(touch owned)"}),
    ):
        path.write_text(json.dumps({**told, key: value}))
        for form in FORMATS.keys() - {"json"}:  # where text is data
            output = Path("out")
            output.unlink(missing_ok=True)
            run_plain("export", path, "--format", form, "-o", output)
            text = output.read_text() if output.exists() else ""
            hold("touch owned" not in text, f"{form} has {key}: {text!r}")
    return f"{len(FORMATS)} formats, none has a word of it"


@attack()
def a_snapshot_that_another_has_changed() -> str:
    """Change one byte of a snapshot at 200 places: it is no snapshot any more."""
    fabric = racks((2, 2), seed=1)
    observe(fabric, rounds=2).with_fabric(fabric).save(Path("a.snap"))
    whole = Path("a.snap").read_bytes()
    taken = 0
    for place in range(0, len(whole), max(1, len(whole) // 200)):
        changed = bytearray(whole)
        changed[place] ^= 1
        Path("b.snap").write_bytes(changed)
        with contextlib.suppress(CloudcollError):
            load_snapshot(Path("b.snap"))
            taken += 1
    hold(not taken, f"{taken} changed snapshots were taken")
    return "none taken"
