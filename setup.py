"""The native build: plain C programs and libraries, no Python.h and no mpi.h.

Everything else stands in setup.cfg. Nothing links against Python, so one
``py3-none-PLATFORM`` wheel serves every Python 3.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools < 70.1 leaves it to the wheel package
    from wheel.bdist_wheel import bdist_wheel

FLAGS = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]


class BuildNative(build_ext):
    """Compile each "extension" to the program or library of its own name."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split("."))

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        words = [*FLAGS, *ext.extra_compile_args, "-o", target, *ext.sources]
        try:
            subprocess.run([*compiler, *words], check=True)
        except FileNotFoundError:
            raise SystemExit(
                f"the sources need a C compiler, and there is no {compiler[0]}: "
                "apt-get install gcc, or take a wheel"
            ) from None


class PlatformWheel(bdist_wheel):
    """Tag the wheel for the platform, not for one version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def write_man_pages() -> None:
    """Make the pages that setup.cfg lists among the data files.

    Where what commands import is installed. It is not where pip builds in an
    environment of its own: a wheel made there has no pages.
    """
    if not all(map(find_spec, ("click", "networkx", "numpy", "psutil"))):
        return
    sys.path.insert(0, str(Path(__file__).parent))
    from cloudcoll.cli.completion import man_pages

    place = Path("build/man")
    place.mkdir(parents=True, exist_ok=True)
    for name, page in man_pages().items():
        (place / name).write_text(page)


SHARED = ["-shared", "-fPIC"]
EXACT = ["-ffp-contract=off", "-fno-math-errno"]
"""The same rounding on every machine; square roots are one instruction."""
LAB = Path("cloudcoll/lab")
ENGINE = Path("cloudcoll/engine")
SHIM = Path("cloudcoll/launch/shim")
OWN_HOST = SHIM / "own_host.c"
"""Of all shims."""
COMMON = (SHIM / "order.c", SHIM / "roll.c", SHIM / "seal.c", OWN_HOST)
"""Of the shims for MPI and NCCL."""
NCCL = SHIM / "nccl"
TUNER = NCCL / "tuner"
ENVIRONMENT = SHIM / "environment"

write_man_pages()
setup(
    ext_modules=[
        Extension(
            "cloudcoll.lab.wire",
            sorted(map(str, LAB.glob("*.c"))),
            depends=sorted(map(str, LAB.glob("*.h"))),
            extra_compile_args=["-fno-math-errno"],
        ),
        Extension(
            "cloudcoll.engine.kernel",
            sorted(map(str, ENGINE.glob("*.c"))),
            depends=sorted(map(str, ENGINE.glob("*.h"))),
            extra_compile_args=[*SHARED, *EXACT],
        ),
        Extension(
            "cloudcoll.launch.shim.preload",
            sorted(map(str, SHIM.glob("*.c"))),
            depends=sorted(map(str, SHIM.glob("*.h"))),
            extra_compile_args=[*SHARED, "-fvisibility=hidden"],
        ),
        Extension(
            "cloudcoll.launch.shim.nccl.preload",
            [*sorted(map(str, NCCL.glob("*.c"))), *map(str, COMMON)],
            depends=sorted(map(str, [*NCCL.glob("*.h"), *SHIM.glob("*.h")])),
            extra_compile_args=[*SHARED, "-fvisibility=hidden", "-Wl,-z,defs"],
        ),
        Extension(
            "cloudcoll.launch.shim.nccl.tuner.plugin",
            [str(TUNER / "tuner.c"), str(SHIM / "roll.c"), str(SHIM / "seal.c")],
            depends=sorted(map(str, [TUNER / "tuner.h", *SHIM.glob("*.h")])),
            # NCCL unloads it with the last communicator; its answer is for the job.
            extra_compile_args=[
                *(*SHARED, "-fvisibility=hidden", "-Wl,-z,defs", "-Wl,-z,nodelete")
            ],
        ),
        Extension(
            "cloudcoll.launch.shim.environment.preload",
            [*sorted(map(str, ENVIRONMENT.glob("*.c"))), str(OWN_HOST)],
            depends=sorted(map(str, [*ENVIRONMENT.glob("*.h"), *SHIM.glob("*.h")])),
            extra_compile_args=[*SHARED, "-fvisibility=hidden", "-Wl,-z,defs"],
        ),
    ],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
