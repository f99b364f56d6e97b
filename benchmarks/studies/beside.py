"""A study's differences from its baseline beside the published ones.

The table `[published]` of a study's file has for each setting the papers' tables on the same data set and skew, as
PAPER/ITEM/PART of src/undrift/papers. Their models, rounds and local work differ from the study's, so levels cannot be
compared; signs and orders can.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from undrift.papers import paper
from undrift.studies.statistics import Difference
from undrift.util.display.tables import markdown

HERE = Path(__file__).parent / "here"
Gaps = Mapping[str, Difference]


def study_file(name: str) -> dict[str, Any]:
    """A study as its file has it, with the keys that a comparison does not have; empty without a file.

    Args:
        name: the study.
    """
    path = HERE / f"{name}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def sources(name: str) -> dict[str, list[str]]:
    """Setting -> the published tables that belong to it; empty for a study without any.

    Args:
        name: the study.
    """
    found: dict[str, list[str]] = study_file(name).get("published", {})
    return found


def published_gaps(source: str, baseline: str) -> dict[str, float]:
    """Row -> published difference from the baseline, in points; rows with several measures are left out.

    Args:
        source: PAPER/ITEM/PART.
        baseline: the row that differences are taken from.
    """
    name, item, part = source.split("/")
    cells = paper(name).published[item][part]
    means = {row: cell[0] if isinstance(cell, tuple) else cell for row, cell in cells.items()}
    numbers = {row: mean for row, mean in means.items() if not isinstance(mean, dict)}
    return {row: x - numbers[baseline] for row, x in numbers.items() if row != baseline}


def contradicts(ours: Difference, theirs: float) -> bool:
    """Whether our interval lies on the other side of zero than the published difference.

    Args:
        ours: the paired difference.
        theirs: the published one.
    """
    if ours.low is None or ours.high is None:
        return False
    return (ours.low > 0 and theirs < 0) or (ours.high < 0 and theirs > 0)


def order_agreement(ours: Gaps, theirs: Mapping[str, float]) -> tuple[float, int] | None:
    """Spearman's rank correlation over the common rows, the baseline included, and their number; None below four rows.

    Args:
        ours: row -> our difference from the baseline.
        theirs: row -> the published one.
    """
    common = [row for row in ours if row in theirs]
    if len(common) < 3:
        return None
    ranks = spearmanr([0.0, *(ours[row].mean for row in common)], [0.0, *(theirs[row] for row in common)])
    return float(ranks[0]), len(common) + 1


def beside(chosen: Mapping[str, Sequence[str]], gaps: Mapping[str, Gaps], baseline: str) -> str:
    """The section of a page; empty without published tables.

    Args:
        chosen: setting -> its published tables.
        gaps: setting -> row -> our difference from the baseline.
        baseline: the row that differences are taken from.
    """
    parts = []
    for setting, names in chosen.items():
        ours = gaps.get(setting, {})
        theirs = {source: published_gaps(source, baseline) for source in names}
        rows = [row for row in ours if any(row in x for x in theirs.values())]
        if not rows:
            continue
        texts = [[row, gap_text(ours[row]), *(_cell(ours[row], x.get(row)) for x in theirs.values())] for row in rows]
        orders = {source: order_agreement(ours, x) for source, x in theirs.items()}
        agreement = ", ".join(f"{_title(source)} {x[0]:+.2f} ({x[1]} rows)" for source, x in orders.items() if x)
        table = markdown([setting, "here", *map(_title, theirs)], texts, left=1)
        parts.append(table + (f"\n\nRank correlation with the order measured here: {agreement}." if agreement else ""))
    if not parts:
        return ""
    about = (
        f"Differences from {baseline} beside the published ones. The papers train larger models, most of them for\n"
        "300 to 800 rounds, so only signs and orders can be compared. **Bold**: the interval measured here excludes\n"
        "the published sign."
    )
    return "\n\n".join([about, *parts]) + "\n\n"


def gap_text(found: Difference | None) -> str:
    """A difference with its interval.

    Args:
        found: the difference; None is an empty cell.
    """
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f}"
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def _cell(ours: Difference, theirs: float | None) -> str:
    if theirs is None:
        return ""
    text = f"{theirs:+.1f}"
    return f"**{text}**" if contradicts(ours, theirs) else text


def _title(source: str) -> str:
    name, item, _ = source.split("/")
    return f"{name}, {paper(name).items[item].number}"
