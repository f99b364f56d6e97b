"""Who may import whom."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import undrift

ROOT = Path(undrift.__file__).parent
ROOMS = [
    "util",
    "core",
    "blocks",
    "algorithms",
    "compose",
    "models",
    "data",
    "engine",
    "testing",
    "lens",
    "observe",
    "experiment",
    "report",
    "papers",
    "cli",
]
"""From the ground up: a room imports from those before it, without exception."""

FACES = {"__init__", "__main__", "ray", "flower"}
"""Files at the root: what users import; nothing inside imports them."""

CORE = [
    "report",
    "advice",
    "modules",
    "buffers",
    "vector",
    "precision",
    "random",
    "work",
    "presets",
    "schedule",
    "local",
    "types",
    "place",
    "task",
    "participation",
    "oracle",
    "samples",
    "metrics",
    "evaluation",
    "compact",
    "example_losses",
    "making",
    "tensors",
    "tensor_task",
    "view",
    "packed",
    "exact",
    "block",
    "watched",
    "optimizer",
    "selection",
    "aggregation",
    "defaults",
    "algorithm",
    "reduce",
    "rejection",
    "stated",
    "gate",
    "loop",
    "client",
    "together",
    "group",
    "server",
    "wire",
]
"""The files of the core from the ground up: each imports from those before it, without exception."""

FILES = sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    """The module or package right below undrift that a file belongs to."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """The absolute names a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "undrift" else {module}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = room(path)
    assert own in FACES or own in ROOMS, f"{path}: put it into one of the rooms {ROOMS}"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top in ("ray", "flwr"):
            assert own == "engine", f"{path} imports {top}: only engine may"
        if top != "undrift" or own in FACES:
            continue
        other = rest.split(".")[0]
        assert other in ROOMS and ROOMS.index(other) <= ROOMS.index(own), f"{path} ({own}) must not import {name}"


def module(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, modules: set[str]) -> set[str]:
    """The modules among these that a file imports, inside functions and for type checkers only included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else str(node.module) for name in names}
    return found & modules


def test_no_files_import_in_a_circle() -> None:
    modules = {module(path) for path in FILES}
    graph = {module(path): imported(path, modules) for path in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_the_files_of_the_core_have_an_order() -> None:
    files = {path.stem: path for path in (ROOT / "core").glob("*.py") if path.stem != "__init__"}
    assert sorted(files) == sorted(CORE)
    modules = {module(path) for path in FILES}
    for place, name in enumerate(CORE):
        below = {f"undrift.core.{other}" for other in CORE[:place]}
        above = {other for other in imported(files[name], modules) if other.startswith("undrift.core")} - below
        assert not above, f"core/{name}.py must not import {sorted(above)}"


def test_no_file_is_long() -> None:
    long = {str(path.relative_to(ROOT)): n for path in FILES if (n := len(path.read_text().splitlines())) > 300}
    assert not long


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "cloudpickle", "joblib", "dill", "shelve", "marshal", "yaml"}
    loads = "models/start.py"  # the one exception: .pt files of weights, which torch reads as tensors only
    for path in FILES:
        assert not banned & {name.split(".")[0] for name in imports(path)}, path
        for node in ast.walk(ast.parse(path.read_text())):
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
