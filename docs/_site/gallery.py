"""The gallery of methods: an index by family with curves and costs, and what the site adds to a method's page."""

import json
from functools import cache
from typing import Any

from _site import links
from _site.contents import toctree
from _site.curves import drawing
from _site.reference import source_of
from undrift.algorithms import ALGORITHMS, make
from undrift.blocks import Filters
from undrift.compose.cards import Card, card
from undrift.compose.stored import FAMILIES
from undrift.core import Algorithm

RESULTS = links.ROOT / "benchmarks" / "studies" / "results" / "curves.json"

ABOUT = {
    "sharpness": "Gradients are taken at a perturbed point, so that clients look for flat minima.",
    "spectral": "Low frequencies are removed from the perturbation or from the gradient.",
    "drift": "Control variates, duals, momenta and penalties correct each local step.",
    "server": "The mean update is a gradient for an optimizer on the server.",
    "weights": "How much each upload counts in the mean.",
    "robust": "Rules that a few wrong or hostile uploads cannot move far.",
    "personal": "Every client has a model of its own, or a part of one.",
    "adapters": "Low-rank factors of a frozen model, averaged so that their product is right.",
    "asynchronous": "The server steps before all clients have replied, and uploads start from older models.",
}
"""A sentence about each family."""


@cache
def measured() -> dict[str, Any]:
    """The measured curves by method, and what was run under "what"; empty if there are none."""
    if not RESULTS.exists():
        return {}
    read = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {"what": read["what"], **{row["name"]: row for row in read["rows"]}}


@cache
def cards() -> tuple[Card, ...]:
    """The cards of all methods, in the order of the families."""
    return tuple(sorted(map(card, ALGORITHMS), key=lambda one: FAMILIES.index(one.family)))


def figure(name: str, small: bool = False) -> str:
    """A method's curve beside FedAvg's as SVG; empty if it was not measured.

    Args:
        name: the method.
        small: for the index: without axes.
    """
    rows = measured()
    if name not in rows or "fedavg" not in rows:
        return ""
    kind = "personal" if "personal" in rows[name] and name != "fedavg" else "accuracy"
    return drawing(name, rows[name][kind], rows["fedavg"][kind], kind, small)


def index() -> str:
    """The page that shows all methods."""
    parts = ["# Methods", _preface()]
    for name in FAMILIES:
        found = [one for one in cards() if one.family == name]
        parts += [f"## {name.capitalize()}", ABOUT[name], _grid(found)]
    parts += ["## Costs", "In multiples of the model, for one client and one round.", _table(cards())]
    parts += [toctree([one.name for one in cards()])]
    return "\n\n".join(parts) + "\n"


def method(name: str, text: str) -> str:
    """A method's page with its curve below the first sentence and its code at the end.

    Args:
        name: the method.
        text: the page as `make cards` wrote it.
    """
    marks, rest = text.split("\n# ", 1)
    title, sentence, below = rest.split("\n\n", 2)
    shown = [_figure(name)] if figure(name) else []
    return "\n\n".join([f"{marks}\n# {title}", sentence, *shown, below.rstrip(), _code(name)]) + "\n"


def _figure(name: str) -> str:
    """A curve with what it shows."""
    personal = "personal" in measured()[name] and name != "fedavg"
    what = "Mean accuracy of the clients' personal models" if personal else "Test accuracy"
    line = "." if name == "fedavg" else "; FedAvg dashed."
    caption = f"{what} by round, with the defaults{line} Setting: {measured()['what']}."
    return _raw(f'<figure class="curve">{figure(name)}<figcaption>{caption}</figcaption></figure>')


def _preface() -> str:
    """The text above the gallery."""
    count = len(ALGORITHMS)
    text = f"{count} methods from the literature, each a composition of blocks."
    text += " `undrift show NAME` prints a method's page, `undrift list` compares costs."
    if not measured():
        return text
    return (
        f"{text}\n\nThe small curves show the test accuracy by round beside FedAvg's (dashed): {measured()['what']}. "
        "Personal methods show the mean accuracy of the clients' own models. All have their defaults and the same "
        "local settings, so a curve shows that a method learns, not how good it is: "
        "[compare them](../../guide/comparing.md) on your data."
    )


def _raw(html: str) -> str:
    """HTML in a page; nothing if there is none."""
    return f"```{{raw}} html\n{html}\n```\n" if html else ""


def _grid(found: list[Card]) -> str:
    """A grid of methods."""
    items = [
        f":::{{grid-item-card}} {one.name}\n:link: {one.name}\n:link-type: doc\n"
        f":class-card: method\n:footer: {_costs(one)}\n\n"
        f"{_raw(figure(one.name, small=True))}{_short(one)}\n:::"
        for one in found
    ]
    return "\n".join(["::::{grid} 1 2 3 3", ":gutter: 2", "", *items, "::::"])


def _short(one: Card) -> str:
    """The sentence of a card without the name in front."""
    text = one.title.partition(": ")[2] or one.title
    return text[0].upper() + text[1:]


def _costs(one: Card) -> str:
    """The costs of a card in a line."""
    cost = one.cost
    gradients = f"{cost.gradients_per_step} gradient" + "s" * (cost.gradients_per_step != 1)
    return f"↓ {cost.down:g} ↑ {cost.up:g} · {gradients} · {'stateless' if cost.stateless else 'stateful'}"


def _table(found: tuple[Card, ...]) -> str:
    """All costs in a table."""
    rows = ["| method | slots | down | up | gradients per step | clients |", "|---|---|---|---|---|---|"]
    for one in found:
        slots = ", ".join(one.slots) or "none: it is the default"
        kind = "stateless" if one.cost.stateless else "stateful"
        numbers = f"{one.cost.down:g} | {one.cost.up:g} | {one.cost.gradients_per_step}"
        rows.append(f"| [{one.name}]({one.name}.md) | {slots} | {numbers} | {kind} |")
    return "\n".join(rows)


def _code(name: str) -> str:
    """Where a method and its blocks are defined."""
    build = ALGORITHMS[name]
    entries = [_entry(f"undrift.algorithms.{build.__name__}", build)]
    algorithm, plain = make(name), Algorithm()
    for slot, block in algorithm.slots():
        if block != getattr(plain, slot):
            entries.append(_entry(f"undrift.blocks.{type(block).__name__}", type(block), slot))
        if isinstance(block, Filters):
            entries += [
                _entry(f"undrift.blocks.{type(one).__name__}", type(one), f"on the {where}")
                for where in ("perturbation", "gradient")
                if (one := getattr(block, where)) is not None
            ]
    return "\n".join(["## Code", "", *entries])


def _entry(full: str, value: Any, note: str = "") -> str:
    """A line of the list of code: a link to the reference and one to the file."""
    place = source_of(value)
    file = f", [{place[0]}]({links.source(*place)})" if place else ""
    return f"- {{py:obj}}`{full}`{f' ({note})' if note else ''}{file}"
