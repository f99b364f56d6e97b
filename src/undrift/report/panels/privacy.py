"""What audits of the runs' privacy found: canaries, membership inference and gradient inversion."""

from collections.abc import Iterator, Mapping
from typing import Any

from undrift.privacy.canaries import CONFIDENCE
from undrift.privacy.inversion import RECOVERED
from undrift.privacy.membership import span
from undrift.report.draw.description import Table, number_text
from undrift.report.loaded import Material
from undrift.runs.folder.audit import CANARIES, INVERSION, MEMBERSHIP


def audits(material: Material) -> tuple[Table, ...]:
    """A table for each kind of audit that some run has had."""
    return tuple(table for table in (_canaries(material), _membership(material), _inversion(material)) if table.rows)


def _canaries(material: Material) -> Table:
    """Lower bounds of epsilon."""
    reading = (
        f"Epsilon is at least the bound, with {CONFIDENCE:.0%} confidence. A bound far below it is no proof: this "
        "attack finds no more."
    )
    numbers = ("epsilon", "delta", "bound", "canaries", "score")
    rows = [
        [name, *(number_text(found[key]) for key in numbers), _verdict(found)]
        for name, found in _found(material, CANARIES)
    ]
    headings = ["run", "epsilon", "delta", "lower bound", "canaries", "mean score", "epsilon holds"]
    return Table(headings, rows, reading)


def _membership(material: Material) -> Table:
    """How well losses tell members from others."""
    rows = []
    for name, found in _found(material, MEMBERSHIP):
        shares = [f"{found[key]:.3f} {span(found[f'{key}_interval'])}" for key in ("auc", "tpr")]
        allowed = "-" if found["epsilon"] is None else f"{found['allowed']:.3f}"
        counts = [str(found["members"]), str(found["others"])]
        stated = [number_text(found["epsilon"]), allowed, _verdict(found)]
        rows.append([name, *shares, f"{found['fpr']:.2%}", *stated, *counts])
    reading = (
        "Members are training examples of the last model, others held-out ones. An AUC of 0.5 is a guess. Allowed is "
        "the largest share of members that epsilon permits to be found, if both have the same distribution."
    )
    limits = ["epsilon", "allowed", "epsilon holds"]
    headings = ["run", "AUC", "members found", "false positives", *limits, "members", "others"]
    return Table(headings, rows, reading)


def _inversion(material: Material) -> Table:
    """Examples that were computed back from what others see of a round."""
    keys = ("examples", "steps", "best", "median")
    rows = [
        [name, row["attack"], row["seen"], *(number_text(row[key]) for key in keys), f"{row['recovered']:.0%}"]
        for name, found in _found(material, INVERSION)
        for row in found["rows"]
    ]
    reading = (
        "One client of the first round. The error of an example is 0 where it is recovered exactly and 1 where the "
        f"attack is no better than the mean input of other clients; below {RECOVERED} it counts as recovered."
    )
    headings = ["run", "attack", "what is seen", "examples", "steps", "best error", "median error", "recovered"]
    return Table(headings, rows, reading, keys=3)


def _found(material: Material, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The last audit of a kind of every run that has one, with the run's name."""
    return ((run.name, run.audits[kind]) for run in material.runs if kind in run.audits)


def _verdict(found: Mapping[str, Any]) -> str:
    """Whether an audit is consistent with the stated epsilon."""
    return "-" if found["epsilon"] is None else "yes" if found["holds"] else "NO"
