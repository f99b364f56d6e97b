"""Cards: a description of each algorithm, generated from its docstring, its signature and its cost.

`python -m undrift.compose.cards FOLDER` writes them as pages, which contain nothing else, and into methods.json; with
`--package NAME` only the pages of the methods that an installed plug-in adds.
"""

import json
import re
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import cleandoc, signature
from pathlib import Path
from textwrap import dedent, indent
from typing import Any
from urllib.parse import quote_plus

from undrift.algorithms import ALGORITHMS, METHODS, function, make
from undrift.blocks import Buffered, ByExamples, FirstGradients, Uniform
from undrift.compose.grammar import explain_terms, parse, text
from undrift.compose.stored import FAMILIES, PATH
from undrift.compose.symbols import explain_symbols
from undrift.compose.terms import read_composition
from undrift.core.local.presets import PAPERS, MethodPreset
from undrift.core.method.aggregation import Robust
from undrift.core.method.algorithm import Algorithm, Cost, cost, vectors_sent
from undrift.privacy.statement import why_not_private
from undrift.util.display.tables import markdown as markdown_table
from undrift.util.naming.names import suggest

_DRIFT = {"drift", "momentum", "objective", "local_optimizer", "personalization"}
"""Slots of methods against drift that is not one of the families before."""

_MARK = "<!-- Made by `make cards` from the code: change the docstring, not this page. -->"


@dataclass(frozen=True)
class Argument:
    """An argument of an algorithm: its default and what it means."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Card:
    """An algorithm on one page.

    Args:
        name: its name in `undrift list`.
        family: one of `FAMILIES`.
        title: what it is, in a sentence.
        idea: why it should work.
        equations: what the client and the server do.
        composition: its blocks as a line of text.
        defaults: its arguments with their defaults.
        cost: its cost, with its blocks by slot.
        limits: the cases in which it equals another method.
        differences: how it differs from the paper or from released code.
        references: its papers.
        use: when to use it and when not, in two sentences.
        presets: what each preset that mentions it sets for it.
        package: the package of a plug-in's method; empty for ours.
    """

    name: str
    family: str
    title: str
    idea: str
    equations: str
    composition: str
    defaults: tuple[Argument, ...]
    cost: Cost
    limits: tuple[str, ...]
    differences: str
    references: tuple[str, ...]
    use: str = ""
    presets: dict[str, MethodPreset] = field(default_factory=dict)
    package: str = ""

    @property
    def slots(self) -> dict[str, str]:
        """The blocks in which it differs from FedAvg, by slot."""
        return self.cost.slots


def family(algorithm: Algorithm) -> str:
    """The family of an algorithm: the first rule that holds for the slots in which it differs from FedAvg."""
    own = {slot: block for slot, block in algorithm.slots() if block != getattr(Algorithm, slot)}
    aggregation = type(algorithm.aggregation)
    corrects = isinstance(algorithm.perturbation, FirstGradients)
    rules = {
        "adapters": algorithm.needs.model in ("adapted", "foldable", "cored", "headed"),
        "asynchronous": "schedule" in own,
        "spectral": "spectral" in own,
        "sharpness": "perturbation" in own and not algorithm.perturbation.personalizes and not corrects,
        "personal": algorithm.personalized,
        "robust": isinstance(algorithm.aggregation, Robust),
        "weights": aggregation not in (ByExamples, Uniform),
        "drift": corrects or not own.keys().isdisjoint(_DRIFT),
        "server": "server_optimizer" in own,
    }
    return next((name for name, holds in rules.items() if holds), "weights")


def card(name: str) -> Card:
    """The card of an algorithm, by its name or a reference to your own; what its docstring lacks is left out.

    The card of a composition has what each of its blocks does.

    Example:
        >>> card("fedsam").limits
        ('rho = 0 gives FedAvg with equal weights.',)
        >>> card("scaffold + sam(0.05)").cost.gradients_per_step
        2
    """
    if _composition(name):
        return _composed_card(name)
    algorithm = make(name)
    build, plugin = function(name), METHODS.find(name) if name not in ALGORITHMS else None
    sections = _sections(cleandoc(build.__doc__ or ""))
    paragraphs = "\n".join(sections[""]).split("\n\n")
    equations = [part for part in paragraphs if part.startswith(" ")]
    words = [" ".join(part.split()) for part in paragraphs if part.strip() and part not in equations]
    use = next((part for part in words[1:2] if part.startswith("Use it ")), "")
    meanings = dict(_arguments(sections.get("Args", [])))
    return Card(
        name=name,
        family=family(algorithm),
        title=words[0] if words else f"{name}.",
        idea="\n\n".join(words[2 if use else 1 :]),
        equations="\n\n".join(dedent(part).rstrip() for part in equations),
        composition=text(algorithm),
        defaults=tuple(
            Argument(p.name, repr(p.default), meanings.get(p.name, "")) for p in signature(build).parameters.values()
        ),
        cost=cost(algorithm),
        limits=_entries(sections.get("Limits", [])),
        differences=" ".join(" ".join(sections.get("Note", [])).split()),
        references=_entries(sections.get("References", [])),
        use=use,
        presets={preset: found.methods[name] for preset, found in PAPERS.items() if name in found.methods},
        package=plugin.package if plugin else "",
    )


def _composition(name: str) -> bool:
    """Whether a card is of a composition: terms, arguments, or a block with its slot; not a name or a reference."""
    return "+" in name or "(" in name or (":" in name and bool(read_composition(name)[0].slot))


def _method(name: str) -> Algorithm:
    """The method of a card."""
    return parse(name) if _composition(name) else make(name)


def _composed_card(name: str) -> Card:
    """The card of a composition: its equations are those of its blocks, in the order of a round."""
    algorithm = parse(name)
    blocks = [f"{term}\n{indent(about, '    ')}" for term, about in explain_terms(algorithm).items()]
    title = "A composition of blocks, in the order of a round; where it has none, it is FedAvg."
    known: dict[str, Any] = {"family": family(algorithm), "composition": text(algorithm), "cost": cost(algorithm)}
    none: dict[str, Any] = dict.fromkeys(("defaults", "limits", "references"), ())
    return Card(name=name, title=title, idea="", equations="\n".join(blocks), differences="", **known, **none)


def markdown(card: Card) -> str:
    """A card as a page."""
    parts = [f"# {card.name}", card.title, f"**When to use:** {card.use}" if card.use else "", card.idea]
    if card.equations:
        symbols = explain_symbols(card.equations, [argument.name for argument in card.defaults])
        parts += [f"```\n{card.equations}\n```", f"Symbols: {symbols}" if symbols else ""]
    parts += [f"From the package `{card.package}`."] if card.package else []
    parts += [_run(card)]
    if card.defaults:
        arguments = [(f"`{a.name}`", f"`{a.default}`", a.meaning) for a in card.defaults]
        parts += ["## Arguments", markdown_table(("argument", "default", "meaning"), arguments)]
    parts += ["## Presets", *_presets(card)] if not card.package and not _composition(card.name) else []
    if card.slots:
        filled = [(slot, f"`{block}`") for slot, block in card.slots.items()]
        parts += ["## Blocks", markdown_table(("slot", "block"), filled)]
    adapter = vectors_sent(_method(card.name)) != (card.cost.down, card.cost.up)
    unit = "In multiples of the model; state and traffic of a client and a round."
    cores = ", 64 by 64 with rank 8" if _method(card.name).needs.model in ("cored", "headed") else ""
    unit += f" Traffic is that of the adapter of a square layer{cores}." if adapter else ""
    parts += ["## Cost", unit, _cost(card.cost)]
    if card.limits:
        parts += ["## Limiting cases", "\n".join(f"- {limit}" for limit in card.limits)]
    parts += ["## Differences", card.differences] if card.differences else []
    parts += ["## References", "\n".join(f"- {reference}" for reference in card.references)] if card.references else []
    return "\n\n".join(part for part in parts if part) + "\n"


def pages(package: str = "") -> dict[str, str]:
    """Every page by its file name, the index first.

    Args:
        package: the plug-in whose methods are described; empty describes ours.
    """
    names = [name for name, plugin in METHODS.known().items() if plugin.package == package] if package else ALGORITHMS
    if not names:
        known = sorted({plugin.package for plugin in METHODS.known().values()})
        raise ValueError(f"no package {package!r} adds methods; {suggest(package, known)}")
    cards = [card(name) for name in names]
    out = {"README.md": f"{_MARK}\n\n{_index(cards)}"}
    return out | {f"{one.name}.md": f"{_MARK}\n\n{markdown(_with_links(one))}" for one in cards}


def _with_links(card: Card) -> Card:
    """A card whose references, authors, title and year, are links that search for the title."""
    search = "https://scholar.google.com/scholar?q="
    form = re.compile(r"([^;]+?(?: et al\.| and [A-Z]\w+)), ([^;]+), ((?:[A-Z][\w ]* )?\d{4}\b[^;]*)")
    titles = [form.fullmatch(entry) for entry in card.references]
    linked = [f"{t[1]}, [{t[2]}]({search}{quote_plus(t[2])}), {t[3]}" if t else "" for t in titles]
    return replace(card, references=tuple(new or old for new, old in zip(linked, card.references, strict=True)))


def can_overlap(algorithm: Algorithm) -> bool:
    """Whether clients may train while the server steps: its own schedule has it so, or it takes a buffer.

    Args:
        algorithm: the method.

    Example:
        >>> can_overlap(make("scaffold")), can_overlap(make("scaffnew"))
        (True, False)
    """
    try:
        return algorithm.schedule.overlaps or replace(algorithm, schedule=Buffered()).schedule.overlaps
    except TypeError:
        return False


def facts(name: str) -> dict[str, Any]:
    """What `undrift list` needs to know about a method.

    Args:
        name: the method's.
    """
    algorithm = make(name)
    own = cost(algorithm)
    kinds = {"family": family(algorithm), "title": card(name).title, "personal": algorithm.personalized}
    kinds["private"] = not why_not_private(algorithm)
    kinds["overlapping"] = can_overlap(algorithm)
    return {**kinds, "kept": own.kept, "cost": own.row(name)}


def stored_text() -> str:
    """The text of methods.json: the facts and the page of each of our methods, FedAvg first."""
    stored = {name: {**facts(name), "page": markdown(card(name))} for name in ALGORITHMS}
    return json.dumps(stored, indent=0, ensure_ascii=False) + "\n"


def write(folder: Path, package: str = "") -> None:
    """Write every page into a folder and delete pages of removed algorithms.

    Args:
        folder: where to write.
        package: as `pages` takes it.
    """
    made = pages(package)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.name not in made and path.read_text(encoding="utf-8").startswith(_MARK):
            path.unlink()
    for name, page in made.items():
        (folder / name).write_text(page, encoding="utf-8")


def _sections(doc: str) -> dict[str, list[str]]:
    """The lines of a docstring by section; those before the first section are under ""."""
    out: dict[str, list[str]] = {"": []}
    name = ""
    for line in doc.splitlines():
        heading = re.fullmatch(r"([A-Z][a-z]+):", line)
        if heading:
            name = heading[1]
        out.setdefault(name, [])
        if not heading:
            out[name].append(line)
    return out


def _arguments(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The arguments in a section and their meanings."""
    for entry in re.split(r"\n(?=\w)", dedent("\n".join(lines)).strip()):
        name, _, meaning = entry.partition(":")
        yield name, " ".join(meaning.split())


def _entries(lines: list[str]) -> tuple[str, ...]:
    """The entries of a section, one per line; a line without a final full stop or semicolon continues on the next."""
    joined = " ".join(line.strip() + ("\n" if line.rstrip().endswith((".", ";")) else "") for line in lines)
    return tuple(entry.strip().removesuffix(";") for entry in joined.split("\n") if entry.strip())


def _run(card: Card) -> str:
    """The commands that run it: by name, and as a composition of its blocks; with proxy data if it needs them."""
    quoted = _composition(card.name)
    flags = " --set proxy=200" if _method(card.name).needs.proxy else ""
    lines = [f'undrift run "{card.name}"{flags}' if quoted else f"undrift run {card.name}{flags}"]
    if ("+" in card.composition or ":" in card.composition) and card.composition != card.name:
        lines.append(f'undrift run "{card.composition}"{flags}')
    return "\n".join(["```bash", *lines, "```"])


def _presets(card: Card) -> list[str]:
    """What the presets set for it, those with the same values in one row, and which of them leave its defaults."""
    if not card.presets:
        return ["No preset sets values for it: with any of them it has its defaults and the paper's local settings."]
    groups: list[tuple[list[str], MethodPreset]] = []
    for name, own in card.presets.items():
        names = next((names for names, other in groups if other == own), None)
        if names is None:
            groups.append(([name], own))
        else:
            names.append(name)
    rows = [(_code(names), _values(own.arguments), _values(own.local), own.source) for names, own in groups]
    silent = _code([name for name in PAPERS if name not in card.presets])
    return [
        f"`undrift run {card.name} --preset {groups[0][0][0]}` takes these values and the paper's local settings.",
        markdown_table(("preset", "arguments", "local", "source"), rows),
        f"These presets set nothing for it, so it has its defaults and the paper's local settings: {silent}.",
    ]


def _values(values: Mapping[str, Any]) -> str:
    """Settings in one cell."""
    return _code([f"{key}={value}" for key, value in values.items()]) or "-"


def _code(texts: Sequence[str]) -> str:
    """Texts as code, joined by commas."""
    return ", ".join(f"`{text}`" for text in texts)


def _cost(cost: Cost) -> str:
    """The table of costs."""
    headings = ("down", "up", "client state", "server state", "gradients per step", "clients", "server needs")
    numbers = (f"{cost.down:g}", f"{cost.up:g}", cost.kept, cost.server_state, cost.gradients_per_step)
    kinds = ("stateless" if cost.stateless else "stateful", "every upload" if cost.gathers else "a sum")
    table = markdown_table(headings, [(*map(str, numbers), *kinds)])
    if not cost.candidates:
        return table
    return f"{table}\n\nBefore every round {cost.candidates} candidates download the model and evaluate it."


def _index(cards: list[Card]) -> str:
    """The index, with a table for each family."""
    parts = ["# Methods", "One page each. `undrift show NAME` prints it, `undrift list --costs` compares costs."]
    for name in FAMILIES:
        rows = [(f"[{c.name}]({c.name}.md)", c.title, f"`{c.composition}`") for c in cards if c.family == name]
        parts += [f"## {name.capitalize()}", markdown_table(("method", "what it is", "blocks"), rows)] if rows else []
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    parser = ArgumentParser(description="Write the pages of methods.")
    parser.add_argument("folder", type=Path, help="where the pages are written")
    parser.add_argument("--package", default="", help="an installed plug-in; by default undrift's own methods")
    arguments = parser.parse_args()
    write(arguments.folder, arguments.package)
    if not arguments.package:
        PATH.write_text(stored_text(), encoding="utf-8")
