"""``cloudcoll completion``: what a shell needs to complete our command lines.

Click answers the shell, which runs ``cloudcoll`` with a variable set; here is only how
the shell is told to ask.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cloudcoll.cli.output import print_text, say
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import write_atomic

SHELLS = ("bash", "fish", "zsh")


@click.command("completion", short_help="let a shell complete commands and options")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Put it where new shells find it.")
def command(shell: str | None, install: bool) -> None:
    r"""Let a shell complete commands, options and files.

    SHELL is bash, fish or zsh; that of $SHELL if not given. Without --install its
    script is printed. With it, bash and fish find the script in a file of its own
    (bash by the package bash-completion), and zsh by a line at the end of .zshrc.

    \b
    cloudcoll completion --install
    eval "$(cloudcoll completion bash)"
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise UsageError(f"no shell {shell!r}: name one of {', '.join(SHELLS)}")
    if not install:
        print_text(_script(shell))
        return
    path = _place(shell)
    if shell == "zsh":
        _append(path, 'eval "$(cloudcoll completion zsh)"')
    else:
        write_atomic(path, _script(shell))
    say(f"{path}: in force in the next {shell} that is started")


def _script(shell: str) -> str:
    """Return click's own script for a shell."""
    from cloudcoll.cli.commands import COMPLETE, cloudcoll

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    return kind(cloudcoll, {}, "cloudcoll", COMPLETE).source()


def _append(path: Path, line: str) -> None:
    """Add a line to a file of the user's, once."""
    try:
        with path.open("a+") as file:
            file.seek(0)
            text = file.read()
            if line not in text.splitlines():
                file.write("\n" * (text[-1:] not in ("", "\n")) + line + "\n")
    except (OSError, ValueError) as error:
        raise UnusableError(f"cannot add to {path}: {error}") from error


def _place(shell: str) -> Path:
    """Return the file in which a shell looks for what it is to complete."""

    def under(variable: str, default: str) -> Path:
        return Path(os.environ.get(variable) or Path.home() / default)

    if shell == "bash":
        data = under("XDG_DATA_HOME", ".local/share")
        return data / "bash-completion" / "completions" / "cloudcoll"
    if shell == "fish":
        config = under("XDG_CONFIG_HOME", ".config")
        return config / "fish" / "completions" / "cloudcoll.fish"
    return under("ZDOTDIR", "") / ".zshrc"
