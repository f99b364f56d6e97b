"""Who may import whom."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import undrift

ROOT = Path(undrift.__file__).parent
ROOMS = {
    "": "util core secure blocks privacy algorithms compose models data engine testing lens observe "
    "runs studies planning deploying report papers cli",
    "core": "model local records tasks method client server",
    "data": "arrays partitions files own tasks trainers",
    "engine": "stores worker round ray_backend flower",
    "runs": "settings folder setup reading loop",
    "report": "draw panels sweeps",
}
"""The rooms of a package from the ground up: each imports from those before it, without exception."""

FACES = {"__init__", "__main__", "experiment", "flower", "hf", "ray"}
"""Files at the root: what users import; nothing inside imports them."""

FILES = sorted(ROOT.rglob("*.py"))
pytestmark = pytest.mark.xdist_group("imports")  # one worker reads all files


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """The absolute names a file imports."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "undrift" else {module}
    return found


def module(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path) for path in FILES}


@cache
def imported(path: Path) -> set[str]:
    """The modules of undrift that a file imports, inside functions and for type checkers only included."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else str(node.module) for name in names}
    return found & MODULES


@pytest.mark.quick
def test_no_files_import_in_a_circle() -> None:
    graph = {module(path): imported(path) for path in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", ROOMS)
def test_imports_point_down(package: str) -> None:
    prefix, order = f"undrift.{package}." if package else "undrift.", ROOMS[package].split()
    graph = {module(path): imported(path) for path in FILES}
    found = {path.name for path in (ROOT / package).iterdir() if (path / "__init__.py").is_file()}
    assert found - {"distortion"} == set(order), f"name every room of {prefix} here, from the ground up"
    for name, used in graph.items():
        own = name.removeprefix(prefix).partition(".")[0]
        for other in sorted(used) if name.startswith(prefix) and own in order else ():
            room = other.removeprefix(prefix).partition(".")[0]
            if other.startswith(prefix) and room in order:
                assert order.index(room) <= order.index(own), f"{name} must not import {other}: {own} is below {room}"


def test_files_at_the_root_are_faces() -> None:
    assert {path.stem for path in ROOT.glob("*.py")} == FACES
    faces = {f"undrift.{name}" for name in FACES - {"__init__"}}
    for path in FILES:
        assert path.parent == ROOT or not faces & imports(path), f"{path} imports a face of the package"


def test_only_the_engine_imports_ray_and_flower() -> None:
    for path in FILES:
        outside = {name.partition(".")[0] for name in imports(path)} & {"ray", "flwr"}
        assert not outside or path.is_relative_to(ROOT / "engine"), f"{path} imports {outside}"


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    exempt = {ROOT / "algorithms", *(ROOT / "blocks" / slot for slot in ("aggregation", "personalization"))}
    counts = {path.parent: len(list(path.parent.glob("*.py"))) for path in FILES}
    assert {str(folder): count for folder, count in counts.items() if count > 12 and folder not in exempt} == {}


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "cloudpickle", "joblib", "dill", "shelve", "marshal", "yaml"}
    loads = "models/start.py"  # the one exception: .pt files of weights, which torch reads as tensors only
    for path in FILES:
        assert not banned & {name.split(".")[0] for name in imports(path)}, path
        for node in nodes(path):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "np.load", "numpy.load", "yaml.load"}, path
                words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert words.get("allow_pickle", "False") == "False", path
                if called in {"torch.load", "torch.jit.load", "torch.export.load"}:
                    assert called == "torch.load" and words.get("weights_only") == "True", path
                    assert path.as_posix().endswith(loads), path


def test_no_global_random_generator() -> None:
    """`torch.manual_seed` appears only under fork_rng; nothing else draws without a generator of its own."""
    for path in FILES:
        text = path.read_text()
        assert "np.random.seed" not in text and "random.seed(" not in text, path
        seeded = text.count("torch.manual_seed(") + text.count("default_generator.manual_seed(")
        assert seeded <= text.count("fork_rng("), path
