"""Which studies meet the strict protocol, what their pages claim, and what the others lack."""

from collections.abc import Mapping
from typing import Any

from beside import gap_text, study_file
from gaps import Lines, gap
from rates import search_faults
from study import RESULTS, committed, read
from undrift.studies.statistics import LEVEL, corrected_level
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


def claims_table() -> str:
    """Every measured claim of the strict studies, with its interval, seeds and file, in Markdown."""
    texts = []
    for path in sorted(RESULTS.glob("*.jsonl")):
        name, lines, study = path.stem, read(path.stem), study_file(path.stem)
        if not strict(committed(name)):
            continue
        others, labels = against(study), [row.get("label", row["method"]) for row in study["methods"]]
        pairs = [(x, other) for n, other in enumerate(others) for x in labels if x not in others[: n + 1]]
        for setting in study["settings"]:
            for label, other in pairs:
                found = gap(lines, setting, label, other, level_of(study))
                if found is not None and found.pairs == len(study["seeds"]):
                    seeds = f"{study['seeds'][0]} to {study['seeds'][-1]}"
                    texts.append([setting, f"{label} minus {other}", gap_text(found), seeds, f"[{name}]({name}.md)"])
    if not texts:
        return "No pair of rows is complete yet."
    return markdown(["setting", "rows", "points", "seeds", "study"], texts, left=2)
