"""An index of many runs: one line each, read from small files, to find runs and to choose what to report on."""

import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonpath, relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from undrift.report.collect import collect, comparison_of
from undrift.report.loaded import ReportError, find_runs, from_here, method_label
from undrift.report.page import asset, fill, page_mode, write_page
from undrift.runs.folder.judge import GLOBAL, config_column, lost_round, run_summary
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import Column
from undrift.util.storage.files import write
from undrift.util.storage.metrics import read_rows
from undrift.util.storage.summary import has_ended

STATES = ("done", "unfinished", "damaged")
REPORT = "report.html"
"""The name of a run's or a comparison's own report, in its folder."""


@dataclass(frozen=True)
class IndexRow:
    """A run in the index.

    Args:
        folder: its folder.
        name: its folder below the common one.
        method: its label in its comparison, or its method with arguments.
        full: the method and its arguments, if the label does not contain them.
        data: the name of the data or the task.
        partition: how the data are split.
        seed: its seed; None if not known.
        done: how many rounds it has.
        rounds: how many were requested.
        judge: the metric by which it is judged; empty if not known.
        best: its best value.
        last: its last value.
        lost: whether its last evaluation gave no number, as after a divergence; `last` is None then.
        state: one of `STATES`.
        problem: why it cannot be read.
        report: the file of its own report or of its comparison's; None if there is none.
    """

    folder: Path
    name: str
    method: str = ""
    full: str = ""
    data: str = ""
    partition: str = ""
    seed: int | None = None
    done: int = 0
    rounds: int = 0
    judge: Column | None = None
    best: float | None = None
    last: float | None = None
    lost: bool = False
    state: str = "damaged"
    problem: str = ""
    report: Path | None = None

    @property
    def path(self) -> str:
        """Its folder as an argument of a command."""
        return from_here(self.folder)

    def text(self, value: float | None) -> str:
        """A value as its metric writes it."""
        return "" if value is None or self.judge is None else self.judge.text(value)


def is_collection(path: Path) -> bool:
    """Whether a folder is neither a run nor a comparison, but has more than one of them below it."""
    if (path / "config.toml").is_file() or (path / "compare.toml").is_file():
        return False
    return len({comparison_of(run) or run for run in find_runs(path.resolve())}) > 1


def index_rows(paths: Iterable[Path]) -> list[IndexRow]:
    """A row for every run at or below some folders; a run that cannot be read has a row with the reason."""
    given = list(dict.fromkeys(path.resolve() for path in paths))
    folders = list(dict.fromkeys(run for path in given for run in find_runs(path)))
    if not folders:
        raise ReportError(f"{', '.join(map(str, given)) or 'no folder'}: no run in it or below; see undrift run")
    root = given[0] if len(given) == 1 and folders != given else Path(commonpath([folder.parent for folder in folders]))
    return [_row(folder, folder.relative_to(root).as_posix()) for folder in folders]


def write_index(paths: Sequence[Path], path: Path) -> list[IndexRow]:
    """Write the index of the runs in some folders to a file, and return its rows.

    Args:
        paths: folders of runs or comparisons, or folders that have them anywhere below.
        path: the HTML file.
    """
    rows = index_rows(paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    html = render_index(rows, _title(paths), path.resolve().parent, " ".join(map(from_here, paths)))
    write(path, html, mode=page_mode(path))
    return rows


def write_each(paths: Iterable[Path]) -> list[str]:
    """Write the report of every run and comparison in some folders into its own folder; what failed is returned.

    Args:
        paths: as for `write_index`, whose links lead to these reports.
    """
    folders = [run for path in paths for run in find_runs(path.resolve())]
    failed = []
    for folder in dict.fromkeys(comparison_of(run) or run for run in folders):
        try:
            write_page(collect([folder]), folder / REPORT)
        except ValueError as error:
            failed.append(str(error))
    return failed


def render_index(rows: Sequence[IndexRow], title: str, place: Path, folders: str) -> str:
    """The index as HTML.

    Args:
        rows: the runs.
        title: of the page.
        place: the folder that the page will be in, for its links.
        folders: what was given to `undrift report`.
    """
    counts = {state: sum(row.state == state for row in rows) for state in STATES}
    return fill(
        "index.html.j2",
        title,
        [asset("common.js") + asset("index.js")],
        {"link": lambda file: quote(Path(relpath(file, place)).as_posix())},
        rows=rows,
        counts={state: count for state, count in counts.items() if count},
        command=f"undrift report {folders} --each",
    )


def _title(paths: Sequence[Path]) -> str:
    return ", ".join(path.resolve().name for path in paths) if len(paths) <= 3 else f"{len(paths)} folders"


def _row(folder: Path, name: str) -> IndexRow:
    """A run's row, from its settings and its summary or, if it has not ended, its rows."""
    comparison = comparison_of(folder)
    reports = [place / REPORT for place in (folder, comparison) if place and (place / REPORT).is_file()]
    known: dict[str, Any] = {"report": reports[0] if reports else None}
    try:
        values = _settings(folder / "config.toml")
        method = method_label(str(values["method"]), values.get("arguments", {}))
        known["method"] = folder.parent.name if comparison else method
        alike = method.casefold() == known["method"].casefold()
        known |= {"full": "" if alike else method, "seed": values["seed"]}
        known |= {"data": _subject(values), "partition": str(values.get("partition", ""))}
        known |= {"rounds": values["rounds"]}
        summary = _summary(folder)
        row = _last_row(folder, summary["rounds"])
        judge = Column(summary.get("judged_by", GLOBAL), summary.get("direction"))
        known["lost"] = lost_round([row], judge) is not None
        known |= {"done": summary["rounds"], "judge": judge}
        known |= {"best": summary.get(judge.best_key), "last": None if known["lost"] else summary.get(judge)}
        known |= {"state": "done" if has_ended(summary, values) else "unfinished"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = (
            (str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")
            .replace(f"{folder}{os.sep}", "")
            .replace(str(folder), name)
        )
        return IndexRow(folder, name, **known, problem=problem)
    return IndexRow(folder, name, **known)


def _settings(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _summary(folder: Path) -> Mapping[str, Any]:
    """The content of summary.json or, of a run that has not ended, the same from its rows."""
    try:
        found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return found
    except ValueError:
        raise ValueError("summary.json: not valid JSON") from None
    except FileNotFoundError:
        return run_summary(read_rows(folder), config_column(Config.read(folder)))


def _last_row(folder: Path, rounds: int) -> Mapping[str, Any]:
    """The row of the last round, the only one that is parsed; raises if rows are missing or a line was cut."""
    lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1] if rounds else []
    for number, line in enumerate(lines, 1):
        if not (line.startswith(b"{") and line.rstrip().endswith(b"}")):
            raise ValueError(f"metrics.jsonl: line {number} is no row of a round")
    if len(lines) < rounds:
        raise ValueError(f"metrics.jsonl: {len(lines)} rows of {rounds} rounds")
    found: dict[str, Any] = {"round": rounds} | (json.loads(lines[rounds - 1]) if rounds else {})
    return found


def _subject(values: Mapping[str, Any]) -> str:
    """The name of the data or the task, without arguments."""
    given = values.get("task") or values.get("data", "")
    return str(given.get("name", given) if isinstance(given, Mapping) else given)
