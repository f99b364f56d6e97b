"""Runs the experiment behind a table or figure of a paper, resumes it, and writes ours beside published."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from undrift.papers.catalogue import Item, Paper
from undrift.papers.results import ResultLine, compare_with_published, result_cells
from undrift.report import draw_kind, draw_sweep
from undrift.runs.loop.dry_run import dry_run
from undrift.runs.settings.config import Config
from undrift.studies.compare import Comparison, Watch, compare
from undrift.studies.results_sheet import Trial
from undrift.util.display.tables import markdown
from undrift.util.storage.files import write

Scale = Literal["paper", "small"]

_NUMBER = re.compile(r"(?<![A-Za-z_'-])[0-9][0-9.e-]*")


def comparison(paper: Paper, item: Item, scale: Scale = "paper") -> Comparison:
    """The comparison behind an item, validated.

    Args:
        paper: the paper.
        item: one of its tables or figures.
        scale: "paper", or "small" for the documented reduction.
    """
    return Comparison.build(paper.values(item, scale), f"{paper.name} {paper.key(item)}")


def folder_of(paper: Paper, item: Item, scale: Scale = "paper", root: Path = Path("runs/papers")) -> Path:
    """The folder of an item's runs; items that use another item's runs share its folder."""
    key = item.runs or paper.key(item)
    return root / paper.name / (key if scale == "paper" else f"{key}-{scale}")


def perform(
    paper: Paper,
    item: Item,
    folder: Path,
    scale: Scale = "paper",
    watch: Watch | None = None,
    engine: Mapping[str, Any] | None = None,
) -> tuple[list[ResultLine], list[Path], dict[str, Any]]:
    """Run what is not finished yet, draw the figures, and return our numbers beside the published ones.

    It writes FOLDER/PAPER-ITEM.json and .md with the numbers and FOLDER/figures-ITEM with the figures.

    Args:
        paper: the paper.
        item: one of its tables or figures.
        folder: of the runs; a comparison that is already there is resumed.
        scale: "paper" or "small".
        watch: as for `compare`.
        engine: settings of the engine, as for `compare`.

    Returns:
        the numbers, the files of the figures, and the table of the comparison.
    """
    built = comparison(paper, item, scale)
    table = compare(built, folder, watch, engine, partial(needs_trial, paper, item, built.baseline))
    lines = compare_with_published(paper, item, table)
    name = f"{paper.name}-{paper.key(item)}"
    headings, rows = result_cells(lines, built.baseline)
    title = f"{paper.title}, {item.number} ({scale} scale)"
    about = {"paper": paper.title, "item": item.number, "scale": scale, "differs": item.differs}
    write(folder / f"{name}.json", json.dumps({**about, "lines": [asdict(line) for line in lines]}, indent=1) + "\n")
    write(folder / f"{name}.md", f"# {title}\n\n{markdown(headings, rows)}\n")
    figures: list[Path] = []
    for drawing in item.figures:
        shown = [folder / trial.name for trial in built.trials() if drawing.shows(trial.setting, trial.label)]
        chosen = [run for run in shown if (run / "config.toml").is_file()]  # a run that could not start has no folder
        if not chosen:
            continue
        target, options = folder / f"figures-{paper.key(item)}", drawing.options
        draw = draw_sweep if drawing.kind == "sweep" else partial(draw_kind, drawing.kind)
        figures += draw(chosen, target, **options)
    return lines, figures, table


def needs_trial(paper: Paper, item: Item, baseline: str, trial: Trial) -> bool:
    """Whether an item needs a run: all of its own, and of another item's those that it draws or has numbers of.

    Args:
        paper: the paper.
        item: one of its tables or figures.
        baseline: the row that the others are compared with.
        trial: a run of the comparison behind the item.
    """
    if not item.runs:
        return True
    published = paper.published.get(paper.key(item), {})
    numbers = published.get(trial.setting or "all", {})
    counted = bool(numbers) and trial.label in {*numbers, baseline}
    return counted or any(drawing.shows(trial.setting, trial.label) for drawing in item.figures)


def rehearse(configs: Iterable[Config], notify: Callable[[Config, bool], None] | None = None) -> int:
    """Dry runs of many runs, without repeating those that build and train the same; returns how many were made.

    Args:
        configs: the settings of the runs.
        notify: called with the settings of each, and whether it was run or equals an earlier one.
    """
    seen: set[str] = set()
    for config in configs:
        key = json.dumps(dry_run_key(config), sort_keys=True)
        if notify is not None:
            notify(config, key not in seen)
        if key not in seen:
            dry_run(config)
            seen.add(key)
    return len(seen)


def dry_run_key(config: Config) -> dict[str, Any]:
    """What a dry run depends on: runs that differ only in numbers (strengths, rounds, clients) have the same."""
    texts = {name: _NUMBER.sub("#", str(getattr(config, name))) for name in ("method", "partition")}
    kinds = {name: value if isinstance(value, bool | str) else "#" for name, value in config.arguments.items()}
    values = config.model_dump(include={"data", "model", "weights", "augment"})
    return {**values, **texts, "arguments": kinds, "holdout": config.holdout > 0, "buffers": config.local.buffers}
