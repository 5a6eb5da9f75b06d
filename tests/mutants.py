"""Changes modules in small ways, one at a time, and sees if their tests notice.

``make mutants MODULE=cloudcoll/infer/fit.py`` runs this; Cosmic Ray makes the changes,
in a copy of the checkout. What is changed in functions is tried on the tests that reach
the changed line, anything else on the files with one that reaches the module; quick
tests come first.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.commands
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome
from coverage import CoverageData
from scipy.stats import binomtest

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")

KINDS = re.compile(
    r"core/(ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_Mul"
    r"|Pow_Mul|RShift_LShift|LShift_RShift|BitOr_BitAnd|BitAnd_BitOr|BitXor_BitAnd)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|Lt_GtE"
    r"|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt)"
    r"|ReplaceUnaryOperator_Delete_\w+|AddNot|ReplaceTrueWithFalse"
    r"|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue"
    r"|ReplaceContinueWithBreak|ExceptionReplacer|NumberReplacer|ZeroIterationForLoop)"
)
"""Cosmic Ray's operators without those that say the same again, as `+` made `**`."""

Place = tuple[int, int]
"""A line, from 1, and a column of it, from 0."""

CHILDREN = """
[run]
source = {source}
data_file = {folder}/.coverage
context = ${{PYTEST_CURRENT_TEST-}}
parallel = True
patch = _exit, execv
disable_warnings = no-data-collected, module-not-imported
"""
"""Coverage's settings in processes that tests start; pytest-cov combines the data."""


@dataclass(frozen=True)
class Reach:
    """Which tests reach what.

    Attributes
    ----------
    seconds : dict of str to float
        What each test takes, the quickest first.
    lines : CoverageData
    """

    seconds: dict[str, float]
    lines: CoverageData

    def tests(self, mutation: MutationSpec) -> list[str]:
        """Return the tests to try on a mutation; all if none is seen to reach it."""
        found = self.lines.contexts_by_lineno(str(mutation.module_path.resolve()))
        lines = {line: _tests(contexts) for line, contexts in found.items()}
        # What an import runs belongs to no test, though one may have come to import it.
        changed = _statement(mutation) if _in_function(mutation) else ()
        mine = set().union(*(lines.get(line, set()) for line in changed))
        if not mine:
            # What an import runs may be looked at by tests that run none of it.
            files = {name.partition("::")[0] for name in set().union(*lines.values())}
            mine = {name for name in self.seconds if name.partition("::")[0] in files}
        return [name for name in self.seconds if not mine or name in mine]


def _tests(contexts: Iterable[str]) -> set[str]:
    """Return the tests among contexts: ``test_cost.py::test_a|run``, or ``(call)``.

    The first is what pytest-cov makes of a test, the other what pytest tells the
    processes that a test starts.
    """
    return {re.sub(r"(\|| \()\w+\)?$", "", context) for context in contexts} - {""}


def _in_function(mutation: MutationSpec) -> bool:
    """Return whether a call runs what is changed, not the import of the module."""
    line = mutation.start_pos[0]
    return any(
        node.body[0].lineno <= line <= (node.end_lineno or line)
        for node in ast.walk(ast.parse(mutation.module_path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _statement(mutation: MutationSpec) -> range:
    """Return the lines of the innermost statement, without a body it may have."""
    line = mutation.start_pos[0]
    tree = ast.parse(mutation.module_path.read_text())
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    inner = max(around, key=lambda node: node.lineno)
    body = getattr(inner, "body", ())
    last = body[0].lineno - 1 if body else inner.end_lineno or inner.lineno
    return range(inner.lineno, max(last, line) + 1)


def _only_said(path: Path) -> list[tuple[Place, Place]]:
    """Return the spans of what changes nothing that a test could see.

    mypy checks annotations, decorators and what is imported for it; the `strict` of
    `zip` speaks up only where something else is wrong already; a lone ``*`` among
    parameters is no multiplication.
    """
    said: list[ast.expr | None] = []
    spans: list[tuple[Place, Place]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.arg | ast.AnnAssign):
            said.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said += [node.returns, *node.decorator_list]
            if node.args.kwonlyargs and not node.args.vararg:
                before: list[ast.arg | ast.expr] = [*node.args.posonlyargs]
                before += [*node.args.args, *node.args.defaults]
                begin = max(map(_end, before), default=_begin(node))
                spans.append((begin, _begin(node.args.kwonlyargs[0])))
        elif isinstance(node, ast.ClassDef):
            said += node.decorator_list
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            said.append(node.test)
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            said.append(node.value)
    spans += [(_begin(node), _end(node)) for node in said if node is not None]
    return spans


def _begin(node: ast.expr | ast.stmt | ast.arg) -> Place:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.arg) -> Place:
    return node.end_lineno or 0, node.end_col_offset or 0


def mutations(modules: Sequence[Path]) -> Iterator[MutationSpec]:
    """Yield every mutation of `KINDS`, in the same order each time."""
    paths = sorted(find_modules(modules))
    spans = {path: _only_said(path) for path in paths}
    with use_db("../session.sqlite") as db:
        cosmic_ray.commands.init(paths, db, {})
        found = [item.mutations[0] for item in db.work_items]
    for one in sorted(
        found, key=lambda m: (m.module_path, m.start_pos, m.operator_name, m.occurrence)
    ):
        inside = any(
            first <= one.start_pos < last for first, last in spans[one.module_path]
        )
        if KINDS.fullmatch(one.operator_name) and not inside:
            yield one


def mirrored(module: Path) -> Path:
    """Return where the tests of a module are."""
    package = module if module.is_dir() else module.parent
    if package == Path("cloudcoll"):
        return Path("tests", f"test_{module.stem}.py")
    return "tests" / package.relative_to("cloudcoll")


def reach(tests: Sequence[Path]) -> Reach:
    """Run tests as they are; an error if one fails."""
    measure = ["--cov=cloudcoll", "--cov-context=test", "--cov-report="]
    children = Path("../children.ini").absolute()
    children.write_text(
        CHILDREN.format(source=Path("cloudcoll").absolute(), folder=Path().absolute())
    )
    done = subprocess.run(
        [*PYTEST, *measure, "-vv", "--durations=0", "--durations-min=0", *tests],
        env={**os.environ, "COVERAGE_PROCESS_START": str(children)},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nthe tests fail without any mutation")
    seconds: dict[str, float] = {}
    for taken, name in re.findall(
        r"^(\d\S*)s (?:setup|call|teardown) +(\S.*)$", done.stdout, re.MULTILINE
    ):
        seconds[name] = seconds.get(name, 0.0) + float(taken)
    lines = CoverageData(".coverage")
    lines.read()
    return Reach(dict(sorted(seconds.items(), key=lambda item: item[1])), lines)


def survives(mutation: MutationSpec, found: Reach) -> str | None:
    """Return the diff of a mutation that no test notices, else None or a word.

    That is ``timeout``, or ``impossible`` for one that Cosmic Ray fails to make.
    """
    tests = found.tests(mutation)
    Path("../tests").write_text("\n".join(tests))
    limit_s = 20 + 5 * sum(found.seconds[name] for name in tests)
    command = " ".join((*PYTEST, "-x", "@../tests"))
    result = mutate_and_test([mutation], command, limit_s)
    if result.worker_outcome != WorkerOutcome.NORMAL:
        # It knows of no ``except (*SOME, Other)``.
        if "exception_replacer.py" in str(result.output):
            return "impossible"
        raise RuntimeError(f"{mutation}: {result.output}")
    if result.test_outcome == TestOutcome.SURVIVED:
        return str(result.diff)
    return "timeout" if result.output == "timeout" else None


def main() -> None:
    """Try all mutations, or a sample, and print the ones that survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--most", type=int, help="try a random sample of as many")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument(
        "--tests", nargs="+", type=Path, help="default: the folder of the same name"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        # All below happens in here: Cosmic Ray writes mutations into the files.
        hidden = shutil.ignore_patterns(".*", "build", "__pycache__")
        tree = shutil.copytree(ROOT, Path(folder, "tree"), ignore=hidden, symlinks=True)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        run(given.modules, given.tests, given.most, given.seed)


def run(
    modules: Sequence[Path], tests: Sequence[Path] | None, most: int | None, seed: int
) -> None:
    """Try all mutations of modules, or the most there may be of them."""
    tried = list(mutations(modules))
    if not (total := len(tried)):
        sys.exit(f"nothing to change in {' '.join(map(str, modules))}")
    if most is not None and most < total:
        tried = random.Random(seed).sample(tried, most)
    found = reach(tests or sorted({mirrored(one) for one in modules}))
    print(f"{len(tried)} of {total} mutations, {len(found.seconds)} tests", flush=True)
    done = survived = timeouts = impossible = 0
    # Ctrl-C ends it early: what was tried by then is counted.
    with contextlib.suppress(KeyboardInterrupt):
        for mutation in tried:
            diff = survives(mutation, found)
            if diff == "timeout":
                timeouts += 1
            elif diff == "impossible":
                impossible += 1
            elif diff:
                survived += 1
                print(f"\n{diff}", flush=True)
            done += 1
    if not (made := done - impossible):
        sys.exit("none of them could be made")
    if done < len(tried):
        print(f"\ninterrupted: {done} were tried")
    killed = made - survived
    low, high = binomtest(killed, made).proportion_ci(method="wilson")
    print(
        f"\n{killed} killed ({timeouts} of them by the time limit), {survived} "
        f"survived: {killed / made:.0%} killed, 95 % interval {low:.0%} to "
        f"{high:.0%}"
    )


if __name__ == "__main__":
    main()
