"""What the tuning of a study saw: every learning rate that was tried, with its accuracy on held-out examples."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from shared import read_lines, svg
from undrift.studies.protocol import TUNING
from undrift.util.display.tables import markdown
from undrift.util.storage.files import write


def search_faults(
    lines: Iterable[Mapping[str, Any]], searches: Iterable[Mapping[str, Any]]
) -> dict[str, list[tuple[str, str]]]:
    """Why tuned rows do not meet the strict protocol: fault -> the settings and labels that have it.

    Args:
        lines: the raw results of a study.
        searches: its committed ones.
    """
    found = {(x["setting"], x["label"]): x for x in searches}
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        rows.setdefault((line["setting"], line["label"]), []).append(line)
    return {
        "without committed trials": [key for key in rows if key not in found],
        "with the best rate at an edge of the grid": [
            key for key in rows if key in found and _edge(found[key]) != "inside"
        ],
        "not tuned by late accuracy": [key for key in rows if key in found and found[key].get("by") != "late"],
        "run with other values than the tuned ones": [
            key for key, own in rows.items() if key in found and not all(_is_choice(found[key], x) for x in own)
        ],
        "tuned on a seed that judges": [
            key for key, own in rows.items() if {x["seed"] for x in own} & {*found.get(key, {}).get("seeds", ())}
        ],
    }


def _edge(search: Mapping[str, Any]) -> str:
    """Where the best rate is in its grid."""
    return str(search["edges"]["lr"] if "edges" in search else search["edge"])


def _is_choice(search: Mapping[str, Any], line: Mapping[str, Any]) -> bool:
    """Whether a run has the values that its row's search chose; searches of before have rates only."""
    if "choice" not in search:
        return line["lr"] in [rate for rate, _ in search["rates"]]
    config = line["config"]
    given = {"lr": line["lr"], **config.get("arguments", {})}
    return all(given.get(name) == value for name, value in search["choice"].items())


def collect_searches(out: Path, results: Path, name: str) -> None:
    """Add the searches of a study, with all their trials, to the committed ones.

    Args:
        out: the folder of the study's runs.
        results: the folder of what is committed.
        name: the study.
    """
    found = {(x["setting"], x["label"]): x for x in read_rates(results, name)}
    for path in sorted(out.glob(f"{TUNING}/*/*/tune.json")):
        setting, label = path.parts[-3:-1]
        found[setting, label] = {"setting": setting, "label": label, **json.loads(path.read_text())}
    if found:
        (results / "rates").mkdir(parents=True, exist_ok=True)
        write(results / "rates" / f"{name}.jsonl", "".join(json.dumps(found[key]) + "\n" for key in sorted(found)))


def restore_searches(out: Path, results: Path, name: str) -> None:
    """Write the committed searches of a study where its comparison looks for them, so that they are not made again.

    Args:
        out: the folder of the study's runs.
        results: the folder of what is committed.
        name: the study.
    """
    for search in read_rates(results, name):
        path = out / TUNING / search.pop("setting") / search.pop("label") / "tune.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, json.dumps(search, indent=2) + "\n")


def read_rates(results: Path, name: str) -> list[dict[str, Any]]:
    """The committed trials of a study's searches; those of its first rows may be missing.

    Args:
        results: the folder of what is committed.
        name: the study.
    """
    return read_lines(results / "rates" / f"{name}.jsonl")


def points(search: Mapping[str, Any]) -> list[tuple[str, float, float | None]]:
    """The points of a search: its argument with the value, the learning rate, and the held-out accuracy.

    Args:
        search: a committed one; those before the strict protocol have rates with accuracies only.

    Example:
        >>> points({"axes": {"lr": [0.1], "rho": [1]}, "trials": [{"lr": 0.1, "rho": 1, "score": 0.5}]})
        [('rho 1', 0.1, 0.5)]
    """
    if "rates" in search:
        return [("", rate, score) for rate, score in search["rates"]]
    names = [name for name in search["axes"] if name != "lr"]
    return [(", ".join(f"{x} {trial[x]:g}" for x in names), trial["lr"], trial["score"]) for trial in search["trials"]]


def rates_table(study: Mapping[str, Any], searches: list[dict[str, Any]]) -> str:
    """What tuning saw: the held-out accuracy at every point; empty without a search.

    Args:
        study: the tuned comparison.
        searches: the trials of the rows.
    """
    found = {(x["setting"], x["label"]): points(x) for x in searches}
    grid = sorted({rate for own in found.values() for _, rate, _ in own})
    texts = []
    for setting in study["settings"]:
        for row in study["methods"]:
            own = found.get((setting, row["label"]), [])
            best = max((score for _, _, score in own if score is not None), default=None)
            for variant in dict.fromkeys(name for name, _, _ in own):
                rates = {rate: score for name, rate, score in own if name == variant}
                cells = ["" if x not in rates else _rate_text(rates[x], best) for x in grid]
                texts.append([setting, f"{row['label']}, {variant}" if variant else row["label"], *cells])
    if not texts:
        return ""
    table = markdown(["setting", "row", *(f"lr {x:g}" for x in grid)], texts, left=2)
    measure = (
        "late accuracy on held-out examples, the mean of the tuning seeds"
        if all("axes" in x for x in searches)
        else "best accuracy on held-out examples, one seed"
    )
    return f"Tuning: {measure}, at every point that was tried, in percent.\n\n{table}\n\n"


def _rate_text(score: float | None, best: float | None) -> str:
    if score is None:
        return "diverged"
    return f"**{100 * score:.1f}**" if score == best else f"{100 * score:.1f}"


ROWS = {"fedavg": "#777777", "feddyn": "#1b9e77", "fedcm": "#d95f02", "specgrad": "#1f77b4"}
"""The rows of the figure and their colours."""
PANELS = {"table-fashion": ("Fashion-MNIST", 68), "table-cifar": ("CIFAR-10", 15)}
"""The studies of the figure, their titles and the lowest accuracies shown."""


def rates_figure(results: Path) -> str:
    """Held-out accuracy over the learning rate, study by study and setting by setting, as SVG.

    Args:
        results: the folder of what is committed.
    """
    with rc_context({"svg.hashsalt": "undrift", "font.size": 9}):
        drawn = Figure(figsize=(7, 4.6), layout="constrained")
        parts = drawn.subplots(2, 2, sharex=True, sharey="row")
        for (name, (title, floor)), line in zip(PANELS.items(), parts, strict=True):
            searches = {(x["setting"], x["label"]): points(x) for x in read_rates(results, name)}
            for setting, axes in zip(("label-0.1", "label-0.6"), line, strict=True):
                for row, colour in ROWS.items():
                    known = [(rate, 100 * x) for _, rate, x in searches.get((setting, row), []) if x is not None]
                    axes.plot([x for x, _ in known], [y for _, y in known], "o-", color=colour, markersize=4, label=row)
                axes.set_xscale("log", base=2)
                axes.set_xticks([0.05, 0.1, 0.2, 0.4, 0.8], ["0.05", "0.1", "0.2", "0.4", "0.8"])
                axes.set_title(f"{title}, Dirichlet {setting.removeprefix('label-')}", fontsize=9)
            line[0].set_ylim(bottom=floor)
            line[0].set_ylabel("held-out accuracy %")
        for axes in parts[-1]:
            axes.set_xlabel("learning rate of the clients")
        parts[0][0].legend(fontsize=8)
        return svg(drawn)
