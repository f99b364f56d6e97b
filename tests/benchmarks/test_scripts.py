"""Scripts that no other test starts still import what exists: those of benchmarks, of docs and of the examples."""

import ast
import pkgutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path for folder in ("benchmarks", "docs", "examples", ".github") for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_script_imports_exists(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "undrift":
            for start, needed in {
                "undrift.flower": "flwr",
                "undrift.engine.flower": "flwr",
                "undrift.ray": "ray",
            }.items():
                if str(node.module).startswith(start):
                    pytest.importorskip(needed)
            for alias in node.names:
                pkgutil.resolve_name(f"{node.module}:{alias.name}")
