"""What the tuning of a study saw: every learning rate that was tried, with its accuracy on held-out examples."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undrift.util.files import write
from undrift.util.tables import markdown


def collect_rates(out: Path, results: Path, name: str) -> None:
    """Add the trials of all searches of a study to the committed ones.

    Args:
        out: the folder of the study's runs.
        results: the folder of what is committed.
        name: the study.
    """
    found = {(x["setting"], x["label"]): x for x in read_rates(results, name)}
    for path in sorted(out.glob("tuning/*/*/tune.json")):
        search = json.loads(path.read_text())
        trials = [[x["lr"], None if x["diverged"] else round(x["score"], 6)] for x in search["trials"]]
        setting, label = path.parts[-3:-1]
        found[setting, label] = {"setting": setting, "label": label, "rates": trials, "edge": search["edges"]["lr"]}
    (results / "rates").mkdir(parents=True, exist_ok=True)
    write(results / "rates" / f"{name}.jsonl", "".join(json.dumps(found[key]) + "\n" for key in sorted(found)))


def read_rates(results: Path, name: str) -> list[dict[str, Any]]:
    """The committed trials of a study's searches; those of its first rows may be missing.

    Args:
        results: the folder of what is committed.
        name: the study.
    """
    path = results / "rates" / f"{name}.jsonl"
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def rates_table(study: Mapping[str, Any], searches: list[dict[str, Any]]) -> str:
    """What tuning saw: the best held-out accuracy at every learning rate; empty without a search.

    Args:
        study: the tuned comparison.
        searches: the trials of the rows.
    """
    found = {(x["setting"], x["label"]): dict(map(tuple, x["rates"])) for x in searches}
    grid = sorted({rate for rates in found.values() for rate in rates})
    texts = []
    for setting in study["settings"]:
        for row in study["methods"]:
            rates = found.get((setting, row["label"]), {})
            best = max((x for x in rates.values() if x is not None), default=None)
            cells = ["" if x not in rates else _rate_text(rates[x], best) for x in grid]
            texts += [[setting, row["label"], *cells]] if rates else []
    if not texts:
        return ""
    table = markdown(["setting", "row", *(f"lr {x:g}" for x in grid)], texts, left=2)
    about = (
        "Tuning: the best accuracy on held-out examples at every learning rate that was tried, in percent, one seed."
    )
    return f"{about}\n\n{table}\n\n"


def _rate_text(score: float | None, best: float | None) -> str:
    if score is None:
        return "diverged"
    return f"**{100 * score:.1f}**" if score == best else f"{100 * score:.1f}"
