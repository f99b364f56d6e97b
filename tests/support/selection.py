"""Which tests run when: the marks `quick` and `sweep(every=n)` beside the tests, resolved to their cases.

`@pytest.mark.quick` puts a test into `make quick`; of one with parameters the first case, or with `by=`, a function of
its parameters, the first case of every value of it.

`@pytest.mark.sweep(every=4)` leaves all but every fourth case of a test to `make sweeps`; `every=0` leaves all. Which
cases are first changes with the commit and differs between tests; the last lines of a session state the turn, and
`UNDRIFT_SWEEP=3 make check` repeats one. Cases of `make quick` always run, and so do those whose method, block or
filter is defined in a file that this branch changes, unless it changes more than `LARGE` of them.

`--about fedrod,ClientHead` (`make methods NAMES=...`) takes only the cases that have one of these methods or blocks as
a parameter, with all cases of sweeps.
"""

import ast
import inspect
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import undrift
from undrift.algorithms import ALGORITHMS, make
from undrift.compose.grammar import parse

PACKAGE = Path(undrift.__file__).resolve().parent
ROOT = Path(__file__).resolve().parents[2]
LARGE = 20


def git(*words: str) -> str:
    """What git prints in this repository; nothing where there is none."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def turn() -> int:
    """Which cases come first: UNDRIFT_SWEEP, or a number that the commit determines; 0 without git."""
    given = os.environ.get("UNDRIFT_SWEEP") or str(int(git("rev-parse", "HEAD")[:4] or "0", 16))
    if not given.isdecimal():
        raise pytest.UsageError(f"UNDRIFT_SWEEP must be a whole number, got {given!r}")
    return int(given)


def changed() -> list[str]:
    """Blocks and algorithms that differ from where this branch left main, or from the last commit; none if many do."""
    base = next(filter(None, (git("merge-base", "HEAD", name) for name in ("origin/main", "main"))), "HEAD")
    folders = ("src/undrift/algorithms", "src/undrift/blocks")
    paths = [path for path in git("diff", "--name-only", base, "--", *folders).splitlines() if path.endswith(".py")]
    return paths if len(paths) <= LARGE else []


def resolve(items: Iterable[pytest.Item], turn: int, changed: set[str]) -> None:
    """Take the marks `quick` and `sweep` from the cases that they do not mean.

    Args:
        items: the collected tests.
        turn: which cases come first.
        changed: the files whose cases always run, relative to the root.
    """
    tests: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.path, getattr(item, "originalname", item.name)].append(item)
    for (path, name), cases in tests.items():
        chosen = set(_quick(cases))
        for number, case in enumerate(cases):
            if case not in chosen:
                _remove(case, "quick")
            sweep = case.get_closest_marker("sweep")
            every = sweep.kwargs["every"] if sweep else 1
            first = crc32(f"{path.stem}::{name}".encode()) + turn
            runs = every and (number + first) % every == 0
            if case in chosen or runs or (changed and changed & files(case)):
                _remove(case, "sweep")


def _quick(cases: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases of a test that are in `make quick`."""
    seen = set()
    for case in cases:
        mark = case.get_closest_marker("quick")
        if mark is not None:
            by: Callable[..., object] = mark.kwargs.get("by", lambda **_: None)
            key = by(**_parameters(case))
            if key not in seen:
                seen.add(key)
                yield case


def _remove(case: pytest.Item, name: str) -> None:
    """Take a mark from a case: the expression of `-m` then does not find it."""
    case.own_markers[:] = [mark for mark in case.own_markers if mark.name != name]


def _parameters(case: pytest.Item) -> dict[str, Any]:
    """The parameters of a case by name."""
    return dict(case.callspec.params) if hasattr(case, "callspec") else {}


def files(case: pytest.Item) -> frozenset[str]:
    """The files of the methods, blocks and filters that a case is about, relative to the root."""
    return frozenset(path for value in _parameters(case).values() for path in _files(value))


def _files(value: object) -> frozenset[str]:
    """Where a parameter is defined: a method by its name, an algorithm by its blocks."""
    if isinstance(value, str):
        return _text_files(value)
    if isinstance(value, tuple | list):
        return frozenset(path for part in value for path in _files(part))
    own = {_file(type(value))} if type(value).__module__.startswith("undrift.") else set[str]()
    return frozenset(own).union(*map(_files, _parts(value)))


def _parts(value: object) -> list[object]:
    """The fields of a block or of an algorithm."""
    if not is_dataclass(value) or isinstance(value, type):
        return []
    return [getattr(value, field.name) for field in fields(value)]


@cache
def _text_files(text: str) -> frozenset[str]:
    """The files of a method's function and of its blocks, or those of the blocks of a composition such as `a + b`."""
    if text in ALGORITHMS:
        return _files(make(text)) | {_file(inspect.unwrap(ALGORITHMS[text]))}
    with suppress(ValueError, TypeError):
        return _files(parse(text)) if " + " in text else frozenset()
    return frozenset()


def _file(thing: Callable[..., object]) -> str:
    """Where a class or function is defined, relative to the root."""
    return Path(inspect.getfile(thing)).relative_to(PACKAGE.parents[1]).as_posix()


def about(case: pytest.Item, names: Collection[str]) -> bool:
    """Whether a parameter of a case is one of these methods or blocks.

    Args:
        case: a collected test.
        names: of methods, as `make` reads them, and of classes of blocks.
    """
    return any(_is_about(value, names) for value in _parameters(case).values())


def _is_about(value: object, names: Collection[str]) -> bool:
    """Whether a value is the name of one of these methods, one of these blocks, or holds one."""
    if isinstance(value, str):
        return value.partition(" ")[0].partition("(")[0] in names
    if isinstance(value, tuple | list):
        return any(_is_about(part, names) for part in value)
    return type(value).__name__ in names or any(_is_about(part, names) for part in _parts(value))


def uncalled(used: Iterable[str]) -> list[str]:
    """The packages of undrift, with all their folders, with functions of which none was called.

    Args:
        used: the files of all functions that were called.
    """
    inside = [Path(path) for path in used if Path(path).is_relative_to(PACKAGE)]
    called = {path.relative_to(PACKAGE).parts[0] for path in inside}
    defining = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py") if _has_functions(path)}
    return sorted(defining - called)


def _has_functions(path: Path) -> bool:
    """Whether a file defines a function with more than a docstring, as those of protocols have."""
    return any(
        isinstance(node, ast.FunctionDef)
        and not all(isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in node.body)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
