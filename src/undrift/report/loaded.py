"""What a report is made from: runs as they are read from their folders, grouped by method and setting."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from os.path import relpath
from pathlib import Path
from typing import Any

from undrift.runs.folder.audit import AUDITS
from undrift.runs.folder.audit_checks import ARRIVALS
from undrift.runs.folder.files import read_summary
from undrift.runs.folder.judge import run_column
from undrift.runs.reading.open_checkpoint import lens_file
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import Column
from undrift.runs.settings.targets import Target
from undrift.studies.run_result import result
from undrift.studies.statistics import Result
from undrift.util.shell import as_argument
from undrift.util.storage.jsonable import read_objects
from undrift.util.storage.metrics import Metrics


class ReportError(ValueError):
    """A report that cannot be made; the message names the folder or file and what to do."""


@dataclass(frozen=True)
class LoadedRun:
    """A run as the report reads it: its folder, its name in the report, its settings and its relative targets.

    Its lens measurements are those after `round`, or at the end. Of a run that has more rounds than are shown, all
    that was measured later is left out.
    """

    folder: Path
    name: str
    setting: str
    label: str
    config: Config
    relative: tuple[Target, ...] = ()
    round: int | None = None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row per round, up to the requested number of rounds."""
        path = self.folder / "metrics.jsonl"
        try:
            return Metrics(path).rows()[: self.config.rounds]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ReportError(
                f"{path}: a line is no row of a round; restore the file, or start the run again"
            ) from None

    @cached_property
    def result(self) -> Result:
        """Its entry in the table of a comparison."""
        return result(self.folder, self.config, self.relative)

    @cached_property
    def judged_by(self) -> Column:
        """The column of the rows by which it is judged."""
        return run_column(self.folder, self.config)

    @cached_property
    def lens(self) -> Any:
        """The measurements at the end, or after its round; None if there are none."""
        found = self.read(str(lens_file(Path(), self.round)))
        return found if found and found["round"] <= self.config.rounds else None

    @cached_property
    def looks(self) -> list[Any]:
        """The measurements after chosen rounds and at the end, in order."""
        names = sorted(path.name for path in (self.folder / "lens").glob("*.json"))
        looks = {measured["round"]: measured for name in names if (measured := self.read(f"lens/{name}"))}
        end = self.read("lens.json")
        last = {end["round"]: end} if end else {}
        return [measured for round, measured in sorted({**looks, **last}.items()) if round <= self.config.rounds]

    @cached_property
    def stream(self) -> list[dict[str, Any]]:
        """The measurements taken during the run, one row each."""
        rows = Metrics(self.folder / "lens.jsonl", needed=False).rows()
        return [row for row in rows if row["round"] <= self.config.rounds]

    @cached_property
    def arrivals(self) -> list[dict[str, Any]]:
        """The trace of arrivals, one row for every step of the server; empty in a run without a clock."""
        rows = Metrics(self.folder / ARRIVALS, needed=False).rows()
        return [row for row in rows if row["round"] <= self.config.rounds]

    @cached_property
    def audits(self) -> dict[str, Any]:
        """The last audit of each kind, by the kind: see `undrift.privacy`."""
        return {
            event["event"]: event for event in read_objects(self.folder / "audit.jsonl") if event.get("event") in AUDITS
        }

    @cached_property
    def stopped_early(self) -> bool:
        """Whether it ended before its last round because it no longer improved."""
        return "stop_after" in (read_summary(self.folder) or {})

    @cached_property
    def later(self) -> int:
        """How many rounds the run has if they are more than are shown; 0 if they are not."""
        done = (read_summary(self.folder) or {}).get("rounds", 0)
        return done if done > self.config.rounds else 0

    def read(self, name: str) -> Any:
        """A JSON file in the folder; None if it does not exist."""
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise ReportError(f"{path}: not valid JSON; delete the file and write it again") from None


@dataclass(frozen=True)
class Group:
    """The runs of one method in one setting, one per seed: one line in every figure.

    Args:
        setting: what the runs share; empty if the report has one setting only.
        label: the method's name in the report.
        style: the number of its colour, the same wherever the label appears.
        runs: one per seed.
    """

    setting: str
    label: str
    style: int
    runs: tuple[LoadedRun, ...]

    @property
    def results(self) -> dict[int, Result]:
        """Seed -> the result of its run."""
        return {run.config.seed: run.result for run in self.runs}

    @property
    def judged_by(self) -> Column:
        """The column by which all its runs are judged; if they differ, that of the global model, which all have."""
        judges = [run.judged_by for run in self.runs]
        return judges[0] if all(judge == judges[0] for judge in judges) else judges[0].metric

    def lens(self, *keys: str) -> list[Any]:
        """The measurements under nested keys, for each run that has them."""
        return [value for run in self.runs if (value := lookup(run.lens, *keys)) is not None]


@dataclass(frozen=True)
class Recipe:
    """How to reproduce runs: the command, and the file it reads."""

    name: str
    command: str
    file: str
    text: str


@dataclass(frozen=True)
class Material:
    """Everything a report is made from.

    Args:
        title: of the page.
        baseline: the label of the method that the others are compared with.
        groups: the runs.
        recipes: how to reproduce them.
        notes: what is wrong with runs, a sentence each.
        paths: the folders it was collected from, as arguments of a command.
        claims: how many differences its tables have, if all runs are of strict comparisons: intervals then hold
            together for all of them; 0 otherwise.
    """

    title: str
    baseline: str
    groups: tuple[Group, ...]
    recipes: tuple[Recipe, ...]
    notes: tuple[str, ...]
    paths: tuple[str, ...] = ()
    claims: int = 0

    @property
    def settings(self) -> list[str]:
        """The settings, in order."""
        return list(dict.fromkeys(group.setting for group in self.groups))

    @property
    def labels(self) -> list[str]:
        """The methods, in order."""
        return list(dict.fromkeys(group.label for group in self.groups))

    @property
    def runs(self) -> list[LoadedRun]:
        """All runs."""
        return [run for group in self.groups for run in group.runs]

    def within(self, setting: str) -> list[Group]:
        """The methods of one setting."""
        return [group for group in self.groups if group.setting == setting]


def lookup(tree: Any, *keys: str) -> Any:
    """The value under keys of nested dicts; None if any of them is missing."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def from_here(folder: Path) -> str:
    """A folder as an argument of a command: its path from the current directory, quoted for a shell."""
    try:
        return as_argument(Path(relpath(folder)))
    except ValueError:  # another drive
        return as_argument(folder)


def find_runs(path: Path) -> Iterator[Path]:
    """The folders of runs at or below a path, in order; what is inside a run is not searched."""
    for place, folders, files in os.walk(path):
        folders.sort()
        if "config.toml" in files:
            folders.clear()
            yield Path(place)


def method_label(method: str, arguments: Mapping[str, Any]) -> str:
    """A method with its arguments, as in a composition."""
    texts = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return f"{method}({texts})" if texts else method


def shared_settings(config: Config) -> dict[str, Any]:
    """What runs of one setting have in common, as a flat dict."""
    values = config.model_dump(exclude={"method", "arguments", "seed", "rounds", "target", "engine", "output", "local"})
    return values | {f"local.{name}": value for name, value in asdict(config.local).items()}
