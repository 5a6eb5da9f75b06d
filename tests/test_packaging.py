from __future__ import annotations

import configparser
import datetime
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import types
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import TORCH
from packaging.requirements import Requirement

import cloudcoll
from cloudcoll import lab as labs
from cloudcoll.programs import own_command

ROOT = Path(__file__).parents[1]
SOURCES = ["cloudcoll", "probes", "deploy", "setup.cfg", "setup.py", "pyproject.toml"]
NATIVE = (
    "cloudcoll/lab/wire",
    "cloudcoll/engine/kernel",
    "cloudcoll/launch/shim/preload",
    "cloudcoll/launch/shim/environment/preload",
    "cloudcoll/launch/shim/nccl/preload",
    "cloudcoll/launch/shim/nccl/tuner/plugin",
)
BUILT = {Path(name).name for name in NATIVE}
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", *BUILT)


def test_setup_cfg_lists_every_package() -> None:
    """Tests that a new folder of modules cannot be forgotten in a wheel."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    folders = {path.parent for path in (ROOT / "cloudcoll").rglob("*.py")}
    on_disk = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert sorted(listed) == sorted({*on_disk, "cloudcoll._probes"})
    for folder in (*folders, ROOT / "probes"):
        assert (folder / "__init__.py").is_file()


@pytest.mark.many
@pytest.mark.parametrize(
    ("oldest", "places"),
    [("3.8", ["probes/agent.py"]), ("3.10", ["cloudcoll", "probes", "setup.py"])],
)
def test_the_oldest_python(oldest: str, places: list[str]) -> None:
    """Tests that nothing needs a newer one than what README and setup.cfg promise."""
    # tomllib is newer: where it is not there, tomli stands in.
    options = ["-q", f"-t={oldest}-", "--exclude", "tomllib"]
    done = subprocess.run(
        ["vermin", *options, *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of a copy of the sources, without the network."""
    copy = tmp_path_factory.mktemp("sources")
    for name in [*SOURCES, "README.md", "LICENSE"]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, copy / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    done = subprocess.run(
        [*pip, *options, "--wheel-dir", "dist", "."],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = (copy / "dist").iterdir()
    return built


@pytest.mark.slow
def test_one_wheel_serves_every_python(wheel: Path) -> None:
    """Tests the tag: any Python 3, no ABI, this platform."""
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, version) == ("cloudcoll", cloudcoll.__version__)
    assert (python, abi) == ("py3", "none")
    assert platform != "any"


@pytest.mark.slow
def test_the_wheel_holds_what_runs_elsewhere(wheel: Path) -> None:
    """Tests that agent, native parts and every module are inside, and no tests."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for native in NATIVE:
            assert archive.read(native)[:4] == b"\x7fELF"
        mode = archive.getinfo("cloudcoll/lab/wire").external_attr >> 16
    assert mode & 0o111
    assert "cloudcoll/_probes/agent.py" in names
    assert "cloudcoll/_probes/native/bench.h" in names
    modules = (ROOT / "cloudcoll").rglob("*.py")
    assert {path.relative_to(ROOT).as_posix() for path in modules} <= names
    share = f"{wheel.name.rsplit('-', 3)[0]}.data/data/share/cloudcoll/deploy"
    assert f"{share}/systemd/cloudcoll-agent.service" in names
    pages = f"{wheel.name.rsplit('-', 3)[0]}.data/data/share/man/man1"
    assert {f"{pages}/cloudcoll.1", f"{pages}/cloudcoll-lab-up.1"} <= names
    assert not [name for name in names if "test" in name]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an environment that has the wheel.

    Other packages are those of this Python, which has CloudColl itself from the
    checkout: not so there, as files that name further folders are not read.
    """
    place = tmp_path_factory.mktemp("installed")
    venv.create(place)
    library = sysconfig.get_path("purelib", vars={"base": str(place)})
    Path(library, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--no-compile", "--quiet"]
    subprocess.run(
        [*pip, "--python", str(place), "install", *options, str(wheel)],
        check=True,
        timeout=120,
    )
    return place / "bin"


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[labs.Lab]:
    """A lab of one rack."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(tmp_path_factory.mktemp("home")))
        yield labs.up(labs.quick((2,), nic=50e6), "installed")
        labs.down("installed")


MPI = ["mpirun", "--hostfile", "HOSTS"]
FEW = ["-b", "8", "-e", "8", "--repeats", "1", "--orders", "given"]


@pytest.mark.lab
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["bench", *FEW, *MPI], id="bench"),
        pytest.param(
            ["bench", "--via", "torch", *FEW, *MPI],
            id="torch",
            marks=[TORCH.mark, pytest.mark.soak],
        ),
        pytest.param(
            ["probe", "--via", "torch", "-o", "SNAP", "--", *MPI, "TORCHRUN"],
            id="torchrun",
            marks=[TORCH.mark, pytest.mark.soak],
        ),
    ],
)
@pytest.mark.slow
def test_what_is_installed_runs_in_a_clone(
    installed: Path,
    two_hosts: labs.Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    """Tests that ranks run the programs installed, not those of the current folder."""
    monkeypatch.setenv("CLOUDCOLL_HOME", str(two_hosts.directory.parents[1]))
    beside = Path(sys.executable).parent
    # What pip would have made of torch's entry point.
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(
        f"#!{installed / 'python'}\nfrom torch.distributed.run import main\nmain()\n"
    )
    torchrun.chmod(0o755)
    meet = f"--rdzv-endpoint={two_hosts.hosts[0].address}:29400"
    stands_for = {
        "mpirun": [str(beside / "mpirun")],
        "HOSTS": [str(two_hosts.hostfile)],
        "SNAP": [str(tmp_path / "a.snap")],
        "TORCHRUN": [str(torchrun), "--nnodes=2", "--rdzv-backend=c10d", meet],
    }
    command = [new for word in words for new in stands_for.get(word, [word])]
    argv, env = labs.exec_argv(
        two_hosts, labs.HEAD, [str(installed / "cloudcoll"), *command]
    )
    mpi = next(beside.parent.glob("lib/libmpi.so.*"), "")
    done = subprocess.run(
        argv,
        env={**env, "MPI4PY_LIBMPI": str(mpi)},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_our_own_modules_run_anywhere(tmp_path: Path) -> None:
    """Tests that a file of the current folder does not stand in for a library."""
    (tmp_path / "click.py").write_text("raise SystemExit('the wrong one')\n")
    done = subprocess.run(
        [*own_command("cloudcoll.cli"), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_constraints_are_of_all_that_is_required() -> None:
    """Tests that each package of an install has a tested version that is allowed."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    asked = [config["options"]["install_requires"]]
    asked += [extras[name] for name in ("certs", "mpi", "report", "release")]
    lines = [line for text in asked for line in text.split("\n") if line.strip()]
    wanted = [Requirement(line) for line in lines]
    tested = dict(
        line.partition(";")[0].split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]
    )
    for one in wanted:
        # tomli only stands in for what an older Python lacks.
        if one.name not in {"cloudcoll", "tomli"}:
            assert tested[one.name.lower()] in one.specifier, one.name


DAY = datetime.date(2026, 11, 24)


def test_a_release_takes_what_is_unreleased(release: types.ModuleType) -> None:
    """Tests that the changes get version and day, and the next ones a place."""
    before = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- This.\n"
    after = release.dated(before, "0.2.0", DAY)
    section = "## [Unreleased]\n\n## [0.2.0] - 2026-11-24\n\n### Added\n\n- This.\n"
    assert after == f"# Changelog\n\n{section}"
    # Nothing new since then; and no version comes twice.
    with pytest.raises(ValueError, match="nothing under"):
        release.dated(after, "0.3.0", DAY)
    more = after.replace("Unreleased]\n", "Unreleased]\n\n- That.\n")
    with pytest.raises(ValueError, match=r"a section of 0\.2\.0 already"):
        release.dated(more, "0.2.0", DAY)
    with pytest.raises(ValueError, match="nothing under"):
        release.dated("# Changelog\n", "0.2.0", DAY)


def test_a_release_writes_its_version_where_it_is_read(
    release: types.ModuleType,
) -> None:
    """Tests that only the line of the version changes."""
    source = (ROOT / "cloudcoll" / "__init__.py").read_text()
    changed = release.versioned(source, "9.8.7")
    assert '\n__version__ = "9.8.7"\n' in changed
    assert changed.replace("9.8.7", cloudcoll.__version__) == source


@pytest.fixture(scope="module")
def release() -> types.ModuleType:
    """Load what `make release` runs."""
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci/release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sources_without_a_compiler_say_so(tmp_path: Path) -> None:
    """Tests the one line that names the compiler and the way without one."""
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "-b", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "CC": "no-such-cc"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "compiler" in line]
    assert "there is no no-such-cc: apt-get install gcc, or take a wheel" in line
