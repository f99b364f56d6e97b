"""Which studies meet the strict protocol, what their pages claim, and what the others lack."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

from beside import gap_text, study_file
from gaps import Lines, gap
from rates import search_faults
from study import RESULTS, committed, read
from undrift.studies.statistics import LEVEL, Difference, corrected_level
from undrift.util.display.tables import markdown

SECOND = ("uniform", "specgrad")
"""Rows that differences are also taken from in a study without `against`, the first it has besides its baseline."""


def strict(study: Mapping[str, Any]) -> bool:
    """Whether a study was made under the strict protocol.

    Args:
        study: the comparison.
    """
    return study.get("protocol") == "strict"


def against(study: Mapping[str, Any]) -> list[str]:
    """The rows that the differences of a page are taken from.

    Args:
        study: its file.
    """
    labels = {row.get("label", row["method"]) for row in study["methods"]}
    second: list[str] = study.get("against") or [x for x in SECOND if x in labels - {study["baseline"]}][:1]
    return [study["baseline"], *second]


def claims(study: Mapping[str, Any]) -> int:
    """How many differences the page of a study has when all its rows are run.

    Args:
        study: the comparison, with all its rows and settings.
    """
    rows = len(study["methods"])
    return len(study["settings"]) * sum(rows - 1 - n for n in range(len(against(study))))


def level_of(study: Mapping[str, Any]) -> float:
    """The level of each interval of a study's page.

    Args:
        study: the comparison, with all its rows and settings.
    """
    return corrected_level(claims(study)) if strict(study) else LEVEL


def rows_left(study: Mapping[str, Any], lines: Lines) -> str:
    """Which rows of a strict study are not run with all seeds yet, as a sentence.

    Args:
        study: its file.
        lines: the raw results.
    """
    done = {(x["setting"], x["label"], x["seed"]) for x in lines}
    labels = [row.get("label", row["method"]) for row in study["methods"]]
    left = {
        setting: [x for x in labels if any((setting, x, seed) not in done for seed in study["seeds"])]
        for setting in study["settings"]
    }
    if not any(left.values()):
        return "All rows are complete."
    names = "; ".join(
        f"{setting}: {'all rows' if len(own) == len(labels) else ', '.join(own)}"
        for setting, own in left.items()
        if own
    )
    return f"Not complete yet, and resumed by `make studies`: {names}. The correction counts them already."


def older_note(lines: Lines, searches: list[dict[str, Any]]) -> str:
    """What a study of before lacks, as sentences for its page.

    Args:
        lines: the raw results.
        searches: its committed ones.
    """
    rows = {(x["setting"], x["label"]) for x in lines}
    faults = search_faults(lines, searches)
    known = ("without committed trials", "with the best rate at an edge of the grid")
    texts = [f"{len(faults[fault])} {fault} ({_names(faults[fault])})" for fault in known if faults[fault]]
    counted = f" Of its {len(rows)} rows there are {'; '.join(texts)}." if texts else ""
    return (
        "**Older evidence**: this study does not meet the [strict protocol](index.md#the-strict-protocol). No row was "
        "tuned by the measure that judges it, and the intervals are not corrected for their number."
        f"{counted} What it shows is a reason to test, not a result."
    )


def _names(keys: list[tuple[str, str]]) -> str:
    """Settings and labels, setting by setting."""
    found: dict[str, list[str]] = {}
    for setting, label in keys:
        found.setdefault(setting, []).append(f"`{label}`")
    return "; ".join(f"{setting}: {', '.join(labels)}" for setting, labels in found.items())


class Claim(NamedTuple):
    """A difference of two complete rows of a strict study.

    Args:
        study: its name.
        setting: the part of it.
        label: the row.
        other: the row that it is taken from.
        difference: with its corrected interval.
    """

    study: str
    setting: str
    label: str
    other: str
    difference: Difference


def measured_claims() -> list[Claim]:
    """Every difference that the pages of strict studies have so far."""
    found = []
    for path in sorted(RESULTS.glob("*.jsonl")):
        name, lines, study = path.stem, read(path.stem), study_file(path.stem)
        if not strict(committed(name)):
            continue
        others, labels = against(study), [row.get("label", row["method"]) for row in study["methods"]]
        pairs = [(x, other) for n, other in enumerate(others) for x in labels if x not in others[: n + 1]]
        for setting in study["settings"]:
            for label, other in pairs:
                difference = gap(lines, setting, label, other, level_of(study))
                if difference is not None and difference.pairs == len(study["seeds"]):
                    found.append(Claim(name, setting, label, other, difference))
    return found


def claims_table() -> str:
    """The measured differences from the baselines of the strict studies, a table for each, in Markdown."""
    texts = []
    for name, own in groupby(measured_claims(), lambda claim: claim.study):
        study = study_file(name)
        known = {(x.label, x.setting): x.difference for x in own if x.other == study["baseline"]}
        if not known:  # the baseline's own row is not complete yet
            continue
        labels, settings = (list(dict.fromkeys(places)) for places in zip(*known, strict=True))
        rows = [[label, *(gap_text(known.get((label, x))) for x in settings)] for label in labels]
        texts.append(
            f"[{study['name']}]({name}.md): points over `{study['baseline']}`, seeds {study['seeds'][0]} to "
            f"{study['seeds'][-1]}, corrected for all {claims(study)} differences of the page\n\n"
            + markdown(["row", *settings], rows, left=1)
        )
    return "\n\n".join(texts) or "No pair of rows is complete yet."
