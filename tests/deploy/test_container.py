"""The Containerfile: linted, and its build followed without a container."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "container" / "Containerfile"
Step = tuple[str, str]
STAGES = 2


def stages() -> list[list[Step]]:
    """Return the instructions of each stage, lines joined."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", "", text)
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line]
    starts = [i for i, (word, _) in enumerate(steps) if word == "FROM"]
    ends = [*starts[1:], len(steps)]
    return [
        [(word, rest) for word, rest in steps[start:end]]
        for start, end in zip(starts, ends, strict=True)
    ]


def test_hadolint_finds_nothing() -> None:
    """Tests the file, the shell in it included."""
    done = subprocess.run(
        ["hadolint", FILE], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_not_roots() -> None:
    """Tests user and entry point of the last stage, and that it has no compiler."""
    built = dict(stages()[-1])
    assert built["USER"] == "10001:10001"
    assert built["ENTRYPOINT"] == '["cloudcoll"]'
    assert built["ENV"] == "PATH=/opt/cloudcoll/bin:$PATH"
    assert "gcc" not in built["RUN"]
    assert built["COPY"] == "--from=build /opt/cloudcoll /opt/cloudcoll"


@pytest.mark.slow
def test_what_is_copied_builds(tmp_path: Path) -> None:
    """Tests the build stage in another folder: all that CloudColl needs is copied.

    What comes from elsewhere (Debian's packages, NumPy) is what is here.
    """
    first, second = stages()
    assert len(stages()) == STAGES
    assert second[0][1] == first[0][1].removesuffix(" AS build")
    for _, words in (step for step in first if step[0] == "COPY"):
        *sources, target = words.split()
        place = tmp_path / target.strip("/")
        for source in (ROOT / name for name in sources):
            if source.is_dir():
                ignored = shutil.ignore_patterns(
                    "__pycache__", "preload", "plugin", "kernel"
                )
                shutil.copytree(source, place, ignore=ignored)
            else:
                place.mkdir(exist_ok=True)
                shutil.copy(source, place)
    (build,) = (words for word, words in first if word == "RUN" and "pip" in words)
    build = re.sub(r"/(opt|src)\b", rf"{tmp_path}/\1", build)
    here = {"PYTHONPATH": sysconfig.get_path("purelib"), "PIP_NO_BUILD_ISOLATION": "0"}
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", **here}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run(["sh", "-ec", build], os.environ | offline | {"PATH": path})
    program = tmp_path / "opt" / "cloudcoll" / "bin" / "cloudcoll"
    assert "probe" in run([program, "--help"], os.environ | here).stdout
    installed = tmp_path / "opt" / "cloudcoll"
    assert list(installed.glob("lib/*/site-packages/cloudcoll/launch/shim/preload"))
    units = installed / "share" / "cloudcoll" / "deploy" / "systemd"
    assert (units / "cloudcoll-agent.service").is_file()


def run(
    argv: list[str | Path], env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a step; it must end well."""
    done = subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{shlex.join(map(str, argv))}: {done.stderr}"
    return done
