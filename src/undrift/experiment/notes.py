"""What the numbers of a comparison's table mean, in a note below it."""

from collections.abc import Mapping, Sequence
from typing import Any

from undrift.experiment.costs import judge_of

Row = Mapping[str, Any]

MIXED = "mixed"
"""In place of a column if the runs of a row are not judged by the same one."""


def judging_note(rows: Sequence[Row]) -> str:
    """What the numbers of a table mean if some of its methods are personal or not judged by accuracy; else empty."""
    columns = {judge_of(row) for row in rows}
    others = sorted({column.metric for column in columns if not column.percent and column != MIXED})
    note = " ".join(
        f"{name.words.capitalize()}: {'lower' if name.minimised else 'higher'} is better, of the global model on the "
        "test data unless it is marked personal."
        for name in others
    )
    if not any(column.personal or column == MIXED for column in columns):
        return note
    kind = "accuracy" if not others else "value"
    note += (" " if note else "") + (
        f"Judged by personal: best, last, differences and rounds to target are of the mean {kind} of clients' own "
        "models on their own tests."
    )
    if not all(column.personal for column in columns):
        note += (
            f" Judged by global: of the {kind} of the global model on the test set. A difference between the two "
            f"kinds is one of these {'accuracies' if not others else 'values'}, on different tests; "
            f"clients {'% ' if not others else ''}is the global model on clients' own tests."
        )
    if MIXED in columns:
        note += (
            " Mixed: some runs of the row were made by a version that judged them by the global model; run them again."
        )
    return note


def idle_note(rows: Sequence[Row]) -> str:
    """Which rows have runs with rounds in which no upload was accepted, as after a divergence; else empty."""
    notes = [
        f"{row['label']}: no upload was accepted in {idle} of {rounds} rounds (seed {seed})."
        for row in rows
        for seed, (idle, rounds) in row.get("idle", {}).items()
    ]
    return " ".join(notes)


def lost_notes(rows: Sequence[Row]) -> list[str]:
    """Which rows have runs that diverged: their last evaluation gave no number, or rounds had no accepted upload."""
    notes = [
        f"{row['label']}: diverged, the evaluation after round {round} gave no number (seed {seed})."
        for row in rows
        for seed, round in row.get("lost", {}).items()
    ]
    return [note for note in (" ".join(notes), idle_note(rows)) if note]
