"""What a release writes down: its version, the changelog's section, versions tested.

    python .ci/release.py tag 0.2.0      # commits and tags v0.2.0; uploads nothing
    python .ci/release.py constraints    # constraints.txt, from what is installed

`make release` and `make constraints` call it, at the root of a clone.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

VERSIONED = Path("cloudcoll/__init__.py")
CHANGELOG = Path("CHANGELOG.md")
CONSTRAINTS = Path("constraints.txt")
UNRELEASED = "## [Unreleased]\n"


def dated(changelog: str, version: str, day: datetime.date) -> str:
    """Return a changelog whose unreleased changes are those of a version.

    Raises
    ------
    ValueError
        There are none, or the version has a section.
    """
    if f"## [{version}]" in changelog:
        raise ValueError(f"{CHANGELOG} has a section of {version} already")
    before, found, rest = changelog.partition(UNRELEASED)
    if not found or not re.match(r"\s*(?!## \[)\S", rest):
        raise ValueError(f"{CHANGELOG} has nothing under {UNRELEASED.strip()}")
    return f"{before}{UNRELEASED}\n## [{version}] - {day.isoformat()}\n{rest}"


def versioned(source: str, version: str) -> str:
    """Return a module's source with another ``__version__``."""
    return re.sub(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', source)


def constraints() -> str:
    """Return a line for each package that is installed here, but CloudColl."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    here = {
        # Not what a build adds to name its own machine, as in 2.13.0+cpu.
        (found.name.lower().replace("_", "-"), found.version.partition("+")[0])
        for found in metadata.distributions()
        if found.name not in {"cloudcoll", "pip"}
    }
    lines = [
        f'{name}=={version}; python_version == "{python}"' for name, version in here
    ]
    title = f"# What the tests ran with: pip install -c {CONSTRAINTS} cloudcoll"
    return "\n".join([title, *sorted(lines), ""])


def tag(version: str) -> None:
    """Write version and section, commit them, and put the tag on the commit."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise ValueError(f"{version!r} is no version: VERSION=0.2.0 or 0.2.0rc1")
    if _git("status", "--porcelain"):
        raise ValueError("there are changes that are not committed")
    if _git("tag", "--list", f"v{version}"):
        raise ValueError(f"there is a tag v{version} already")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    CHANGELOG.write_text(dated(CHANGELOG.read_text(), version, today))
    VERSIONED.write_text(versioned(VERSIONED.read_text(), version))
    _git("commit", "--quiet", "--message", f"Release {version}", CHANGELOG, VERSIONED)
    _git("tag", "--annotate", "--message", f"CloudColl {version}", f"v{version}")


def _git(*words: str | Path) -> str:
    return subprocess.run(
        ["git", *words], check=True, capture_output=True, text=True
    ).stdout


def main() -> None:
    """Do what the first word says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("tag").add_argument("version")
    verbs.add_parser("constraints")
    given = parser.parse_args()
    if given.verb == "constraints":
        CONSTRAINTS.write_text(constraints())
        return
    try:
        tag(given.version)
    except ValueError as error:
        sys.exit(f"make release: {error}")


if __name__ == "__main__":
    main()
