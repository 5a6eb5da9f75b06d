from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from cloudcoll.cli import main
from cloudcoll.cli.daemon import command
from cloudcoll.errors import UsageError

WHOLE = """
hostfile = "hosts"
every = "30m"
share = 0.2
bytes = "4M"
port = 7000
all-users = true
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file with options of all kinds."""
    path = tmp_path / "daemon.toml"
    path.write_text(WHOLE)
    path.chmod(0o644)
    return path


def parsed(*argv: str) -> dict[str, object]:
    """Return the daemon's options for a command line."""
    return command.make_context("daemon", list(argv)).params


def test_a_file_says_what_the_command_line_would(config: Path) -> None:
    """Tests text, numbers and flags, converted as if they had been typed."""
    typed = (
        "--hostfile hosts --every 30m --share 0.2 --bytes 4M --port 7000 --all-users"
    )
    assert parsed("--config", str(config)) == parsed(*typed.split())
    assert parsed("--config", str(config)) != parsed("--hostfile", "hosts")


def test_the_command_line_wins(config: Path) -> None:
    """Tests options before and after --config against the file's."""
    options = parsed("--every", "1h", "--config", str(config), "--port", "1")
    assert (options["every"], options["port"], options["share"]) == (3600, 1, 0.002)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('evry = "1h"', "no option is called evry (known: algorithm, all-users, "),
        ('[daemon]\nevery = "1h"', "no option is called daemon"),
        ('config = "other"', "no option is called config"),
        ("hostfile = 1979-05-27", "hostfile is datetime.date(1979, 5, 27): text"),
        ('every = ["1h"]', "every is ['1h']: text or a number expected"),
        ('every = "soon"', "every: 'soon' is not a time"),
        ("port = true", "port is True: text or a number expected"),
        ('port = "x"', "port: 'x' is not a valid integer"),
        ('once = "yes"', "once is 'yes': true or false expected"),
        ("every = ", "is not TOML"),
        ("every = '\udcff'", "is not TOML"),
    ],
)
def test_what_makes_no_sense(
    config: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a wrong key or value is told in one line with its file."""
    config.write_text(text, errors="surrogateescape")
    assert main(["daemon", "--config", str(config)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cloudcoll: {config}")
    assert said in line


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_can_write(config: Path, mode: int) -> None:
    """Tests that a group's or everybody's file decides nothing here."""
    config.chmod(mode)
    with pytest.raises(UsageError, match=rf"has mode {mode:04o} .*others could"):
        parsed("--config", str(config))


def test_a_file_of_another_user(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that only this user's and root's files count."""
    owner = os.getuid() or 12345
    os.chown(config, owner, -1)  # root's would do
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(UsageError, match=f"owner {owner}: others could"):
        parsed("--config", str(config))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Tests that a wrong name is told, not passed over."""
    with pytest.raises(UsageError, match=r"cannot read .*none: No such file"):
        parsed("--config", str(tmp_path / "none"))


def test_every_option_can_be_in_a_file(config: Path) -> None:
    """Tests that the list of known keys is that of --help."""
    config.write_text("x = 1")
    with pytest.raises(UsageError) as told:
        parsed("--config", str(config))
    options = [p for p in command.params if isinstance(p, click.Option)]
    known = {option.opts[0].removeprefix("--") for option in options} - {"config"}
    assert set(str(told.value).partition("known: ")[2].rstrip(")").split(", ")) == known
