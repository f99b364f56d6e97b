"""The API reference: every public name of every public module, grouped by where it is defined."""

import ast
import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from _site import links

MODULES = {
    "undrift": "make a method, give it a task, run it",
    "undrift.algorithms": "the methods of the papers by name, one function each",
    "undrift.blocks": "the blocks that methods are made of, by slot",
    "undrift.core": "the kinds of block, the views and the trees: what a block of your own needs",
    "undrift.data": "data sets, partitions and the task on them",
    "undrift.runs": "one run: settings, folder, resume, export",
    "undrift.studies": "many runs: comparisons, tuning, tables",
    "undrift.privacy": "what a private run guarantees",
    "undrift.flower": "a strategy and a client app for Flower, and Flower's simulation as a backend",
    "undrift.hf": "a federated task of a trainer of Hugging Face",
    "undrift.lens": "instruments that measure what clients share and where they diverge",
    "undrift.models": "models by name, and how they start",
    "undrift.ray": "Ray workers as a backend",
    "undrift.report": "the HTML report and its figures",
    "undrift.testing": "the contract suite for your own blocks and methods, and small tasks",
    "undrift.testing.oracles": "what the papers compute, on NumPy arrays and without torch, to test any library",
}
"""The public modules of docs/reference/stability.md and what they are for."""

HEADINGS = {
    "undrift.core.method.block": "Kinds of block",
    "undrift.core.method.aggregation": "Kinds of block",
    "undrift.core.method.schedule": "Kinds of block",
    "undrift.core.method.selection": "Kinds of block",
    "undrift.core.method.view": "Views of a visit",
    "undrift.core.model.oracle": "Views of a visit",
    "undrift.core.model.samples": "Views of a visit",
    "undrift.core.records.types": "What is sent and kept",
    "undrift.core.model.flat_model": "Vectors",
    "undrift.core.server.wire": "Errors and checks",
    "undrift.core.server.gate": "Errors and checks",
    "undrift.core.client.visit": "Errors and checks",
    "undrift.core.tasks.task": "Tasks and evaluation",
    "undrift.core.tasks.tensor_task": "Tasks and evaluation",
    "undrift.core.tasks.evaluation": "Tasks and evaluation",
    "undrift.core.method.algorithm": "Methods",
    "undrift.compose": "Methods",
    "undrift.data": "Tasks and evaluation",
    "undrift.engine": "Running",
    "undrift.runs": "Running",
    "undrift.studies": "Running",
    "undrift.privacy": "Running",
    "undrift.util": "Running",
}
"""Headings by where a name is defined, the longest prefix first; without one the module's own name."""

VALUES = "Values"


def public() -> dict[str, tuple[str, ...]]:
    """The public names of every public module."""
    return {module: tuple(import_module(module).__all__) for module in MODULES}


def homes(names: dict[str, tuple[str, ...]]) -> dict[tuple[str, str], str]:
    """Where every public name is described: an object with two public names only once, where it is first.

    Args:
        names: the public names by module.
    """
    first: dict[int, str] = {}
    out = {}
    for module, exported in names.items():
        for name in exported:
            value = getattr(import_module(module), name)
            full = f"{module}.{name}"
            out[module, name] = first.setdefault(id(value), full) if _ours(value) else full
    return out


def page(module: str) -> str:
    """The names of a module as MyST: headings, a table of each group and the entries.

    Args:
        module: its full name.
    """
    names = public()
    places = homes(names)
    loaded = import_module(module)
    groups: dict[str, list[str]] = {}
    for name in names[module]:
        groups.setdefault(_heading(module, name, getattr(loaded, name)), []).append(name)
    parts = []
    for heading, members in groups.items():
        own = [name for name in members if places[module, name] == f"{module}.{name}"]
        parts += [f"## {heading}"] if len(groups) > 1 else []
        parts += [_summary(module, own)] if len(own) > 1 else []
        parts += ["\n".join(["```{eval-rst}", *(_entry(loaded, name) for name in own), "```"])] if own else []
        other = [f"{{py:obj}}`{places[module, name]}`" for name in members if name not in own]
        parts += [f"Also exported here: {', '.join(other)}."] if other else []
    return "\n\n".join(parts)


def missing(described: set[str]) -> list[str]:
    """The public names that a reference lacks.

    Args:
        described: the full names that it has.
    """
    return sorted({full for full in homes(public()).values() if full not in described})


def source_of(value: Any) -> tuple[str, int] | None:
    """The file of an object, relative to the repository's root, and its line; None if it has none.

    Args:
        value: a class or a function.
    """
    try:
        value = inspect.unwrap(value)
        file = inspect.getsourcefile(value)
        line = inspect.getsourcelines(value)[1]
    except (TypeError, OSError, ValueError):
        return None
    if file is None or not Path(file).resolve().is_relative_to(links.ROOT / "src"):
        return None
    return Path(file).resolve().relative_to(links.ROOT).as_posix(), line


def value_doc(module: str, name: str) -> str:
    """The text below a module's value, followed through its imports; empty if it has none.

    Args:
        module: a module that has the name.
        name: the value's name.
    """
    tree = ast.parse(inspect.getsource(import_module(module)))
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ImportFrom) and node.module and name in {alias.name for alias in node.names}:
            return value_doc(node.module, name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if name in {target.id for target in targets if isinstance(target, ast.Name)}:
            value = after.value if isinstance(after, ast.Expr) else None
            return str(value.value) if isinstance(value, ast.Constant) else ""
    return ""


def _ours(value: Any) -> bool:
    """Whether a value is a class or a function of this project."""
    described = inspect.isclass(value) or inspect.isfunction(value)
    return described and str(value.__module__).startswith("undrift")


def _heading(module: str, name: str, value: Any) -> str:
    """The group of a name."""
    if module == "undrift.algorithms" and name not in ("make", "function", "listed") and _ours(value):
        from undrift.compose.cards import family

        return family(value()).capitalize()
    if not _ours(value):
        return VALUES
    place = str(value.__module__)
    known = [prefix for prefix in HEADINGS if place == prefix or place.startswith(f"{prefix}.")]
    if known and module in ("undrift", "undrift.core"):
        return HEADINGS[max(known, key=len)]
    rest = place.removeprefix(f"{module}.").split(".")
    return rest[0].replace("_", " ").capitalize() if place.startswith(f"{module}.") else "Functions"


def _summary(module: str, names: list[str]) -> str:
    """A table of names, each with its first sentence; blocks begin with equations, so that their names are enough."""
    if module == "undrift.blocks":
        return ", ".join(f"{{py:obj}}`~{module}.{name}`" for name in names)
    rows = [f"   ~{module}.{name}" for name in names]
    return "\n".join(["```{eval-rst}", ".. autosummary::", "   :nosignatures:", "", *rows, "```"])


def _entry(loaded: ModuleType, name: str) -> str:
    """The directive that describes a name."""
    module, value = loaded.__name__, getattr(loaded, name)
    if not _ours(value):
        doc = " ".join(value_doc(module, name).split())
        return f"\n.. py:data:: {module}.{name}\n\n   {doc}\n"
    kind = "class" if inspect.isclass(value) else "function"
    kind = "exception" if inspect.isclass(value) and issubclass(value, BaseException) else kind
    plain = module in ("undrift.blocks",) or kind == "function"
    options = "" if plain else "   :members:\n"
    return f"\n.. auto{kind}:: {module}.{name}\n{options}"
