"""The layers of ARCHITECTURE.md, held by reading every module's imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cloudcoll"

LAYERS = [
    {"", "_probes", "arrays", "errors"},
    {"engine", "files", "plain", "units"},
    {"hosts", "local_daemon", "programs", "tuning"},
    {"libraries", "network", "tls"},
    {"collectives", "measured", "rankmap", "resident"},
    {"infer", "profile"},
    {"importers", "model"},
    {"lab", "launch", "probe", "solve"},
    {"bench"},
    {"report", "tune"},
    {"daemon", "work"},
    {"cli", "torch"},
]
"""Low to high. A module imports from lower layers and from its own name on;
names that share a layer never import each other."""

HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
HEAVY = {
    *("numpy", "scipy", "torch", "mpi4py", "rich", "networkx", "psutil"),
    *("jinja2", "matplotlib"),
}


def modules() -> list[str]:
    paths = sorted(PACKAGE.rglob("*.py"))
    dotted = [path.relative_to(PACKAGE).with_suffix("").parts for path in paths]
    return [".".join(part for part in name if part != "__init__") for name in dotted]


def imports(module: str) -> Iterator[str]:
    """Yield what a module imports from this package, lazy imports included."""
    path = PACKAGE / module.replace(".", "/")
    file = path.with_suffix(".py")
    path = file if file.exists() else path / "__init__.py"
    tree = ast.parse(path.read_text())
    if not module:
        # The public names, which are imported when they are asked for.
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "cloudcoll":
                yield rest


def place(name: str) -> str:
    """Return the longest part of a dotted name that has a layer."""
    while name not in HEIGHT:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    """Tests that a module imports nothing from beside or above itself."""
    mine = place(module)
    assert mine or not module, f"{module} has no layer: add it to LAYERS"
    for name in imports(module):
        theirs = place(name)
        below = HEIGHT[theirs] < HEIGHT[mine]
        assert below or theirs == mine, f"{module} imports {name}"


def test_the_architecture_draws_these_layers() -> None:
    """Tests the picture of the rooms: one line for each layer, the highest first."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    lines = text.partition("## The rooms\n")[2].partition("| Room")[0].splitlines()
    drawn = [
        line.partition("(")[0].split() for line in lines if line.startswith("    ")
    ]
    named = [sorted(layer - {"", "_probes"}) for layer in reversed(LAYERS)]
    assert [sorted(layer) for layer in drawn] == named


def test_no_module_has_a_name_that_says_nothing() -> None:
    """Tests that no drawer for everything appears."""
    vague = {"utils", "common", "core", "helpers", "manager"}
    assert not vague & {part for name in modules() for part in name.split(".")}


def test_the_programs_for_hosts_need_nothing() -> None:
    """Tests that the agent imports the standard library alone."""
    tree = ast.parse((ROOT / "probes" / "agent.py").read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).partition(".")[0])
    assert names <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    "code", ["import cloudcoll", "from cloudcoll.cli import main; main(['--help'])"]
)
def test_start_up_loads_nothing_heavy(code: str) -> None:
    """Tests that neither `import cloudcoll` nor --help loads numpy and others."""
    report = "\nimport sys; print('loaded', *sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code + report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert "cloudcoll" in loaded
    assert not HEAVY & loaded
