"""What users import: `undrift` and the modules right below it, and from these only what they export."""

import ast
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import undrift

ROOT = Path(__file__).resolve().parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
APPS = [
    path
    for folder in (ROOT / "examples", ROOT / "src" / "undrift" / "templates")
    for path in sorted(folder.rglob("*"))
    if path.name.removesuffix(".in").endswith((".py", ".md"))
]
FROM = re.compile(r"^[+ ]*from (undrift[\w.]*) import (\([^)]*\)|[^#\n]*)", re.MULTILINE)
WHOLE = re.compile(r"^[+ ]*import (undrift[\w.]*)", re.MULTILINE)
OPTIONAL = {"undrift.ray": "ray", "undrift.flower": "flwr"}


def imports(text: str) -> list[tuple[str, list[str]]]:
    """The modules of ours that a text imports, each with the names it takes from there."""
    named = [(module, re.findall(r"(\w+)(?: as \w+)?", names)) for module, names in FROM.findall(text)]
    return named + [(module, []) for module in WHOLE.findall(text)]


FOUND = [
    pytest.param(module, names, id=f"{path.relative_to(ROOT)}: {module}")
    for path in [*DOCS, *APPS]
    for module, names in imports(path.read_text())
]


def test_the_texts_are_read() -> None:
    assert imports("+from undrift.flower import host, open_visit  # two\n    import undrift\n") == [
        ("undrift.flower", ["host", "open_visit"]),
        ("undrift", []),
    ]
    assert imports("from undrift import (\n    Local,\n    make,\n)\n") == [("undrift", ["Local", "make"])]
    assert len(FOUND) > 20


@pytest.mark.parametrize(("module", "names"), FOUND)
def test_users_import_what_is_exported(module: str, names: list[str]) -> None:
    assert module.count(".") <= 1 or module == "undrift.testing.oracles", (
        f"{module} is too deep: export what is needed one level below undrift"
    )
    if module in OPTIONAL:
        pytest.importorskip(OPTIONAL[module])
    exported = import_module(module).__all__
    missing = set(names) - set(exported)
    assert not missing, f"{module}.__all__ lacks {sorted(missing)}"


@pytest.mark.parametrize("name", undrift.__all__)
def test_what_is_exported_is_documented(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", path.read_text()) for path in DOCS), f"no page mentions {name}"


def test_no_public_class_name_is_defined_twice() -> None:
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / "src" / "undrift").rglob("*.py"))]
    classes = [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    counts = Counter(name for name in classes if not name.startswith("_"))
    assert len(counts) > 150
    assert not [name for name, count in counts.items() if count > 1]


@pytest.mark.quick
@pytest.mark.parametrize("face", ["undrift", *OPTIONAL])
def test_a_face_exports_what_it_says(face: str) -> None:
    if face in OPTIONAL:
        pytest.importorskip(OPTIONAL[face])
    module = import_module(face)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    assert all(getattr(module, name).__doc__ for name in module.__all__)
