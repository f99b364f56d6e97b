"""Collect the runs of a report from folders and group those of one method over seeds."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import commonpath
from pathlib import Path
from shlex import quote
from typing import Any

from undrift.experiment.compare import Comparison
from undrift.experiment.config import Config
from undrift.experiment.goals import Column
from undrift.experiment.inspect import place
from undrift.experiment.judge import run_judged_by
from undrift.experiment.results import result
from undrift.experiment.statistics import Result
from undrift.experiment.targets import Target
from undrift.util.metrics import Metrics

_SINGLE = "single runs"


class ReportError(ValueError):
    """A report that cannot be made; the message names the folder or file and what to do."""


@dataclass(frozen=True)
class LoadedRun:
    """A run as the report reads it: its folder, its name in the report, its settings and its relative targets.

    Its lens measurements are those after `round`, or at the end.
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
        return Metrics(self.folder / "metrics.jsonl").rows()[: self.config.rounds]

    @cached_property
    def result(self) -> Result:
        """Its entry in the table of a comparison."""
        return result(self.folder, self.config, self.relative)

    @cached_property
    def judged_by(self) -> Column:
        """The column of the rows by which it is judged."""
        return run_judged_by(self.folder, self.config)

    @cached_property
    def lens(self) -> Any:
        """The measurements at the end, or after its round; None if there are none."""
        return self.read(str(place(Path(), self.round)))

    @cached_property
    def looks(self) -> list[Any]:
        """The measurements after chosen rounds and at the end, in order."""
        names = sorted(path.name for path in (self.folder / "lens").glob("*.json"))
        looks = {measured["round"]: measured for name in names if (measured := self.read(f"lens/{name}"))}
        end = self.read("lens.json")
        last = {end["round"]: end} if end else {}
        return [measured for _, measured in sorted({**looks, **last}.items())]

    @cached_property
    def stream(self) -> list[dict[str, Any]]:
        """The measurements taken during the run, one row each."""
        return Metrics(self.folder / "lens.jsonl").rows()

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
    """Everything a report is made from."""

    title: str
    baseline: str
    groups: tuple[Group, ...]
    recipes: tuple[Recipe, ...]
    notes: tuple[str, ...]

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


def collect(paths: Sequence[Path]) -> Material:
    """Find the runs in folders.

    Args:
        paths: folders of runs or of comparisons, or folders that have runs anywhere below them. Runs of a comparison
            that are given one by one have its labels and settings.
    """
    given = list(dict.fromkeys(path.resolve() for path in paths))
    compared = {path: Comparison.read(path / "compare.toml") for path in given if (path / "compare.toml").is_file()}
    found = list(dict.fromkeys(run for path in given if path not in compared for run in _below(path)))
    chosen, alone = _chosen(found, compared)
    compared |= {path: Comparison.read(path / "compare.toml") for path in chosen}
    many = len(compared) + bool(alone) > 1
    runs = [
        run
        for path, it in compared.items()
        for run in _trials(path, it, it.name if many else "")
        if path not in chosen or run.folder in chosen[path]
    ]
    single = _alone(alone, _SINGLE if many else "")
    runs += single
    notes = [note for path in compared for note in _failures(path)]
    notes += [f"{run.name} has no round yet and is left out" for run in runs if not run.rows]
    notes += [_unfinished(run) for run in runs if 0 < len(run.rows) < run.config.rounds]
    groups = _groups([run for run in runs if run.rows])
    if not groups:
        raise ReportError(f"{', '.join(map(str, paths)) or 'no folder'}: no run with a round in it; see undrift run")
    labels = [group.label for group in groups]
    wanted = [*(it.baseline for it in compared.values()), "fedavg", labels[0]]
    title = next(iter(compared.values())).name if len(compared) == 1 else "Report"
    recipes = [_comparison_recipe(path, it) for path, it in compared.items()] + [_run_recipe(run) for run in single]
    return Material(title, next(b for b in wanted if b in labels), tuple(groups), tuple(recipes), tuple(notes))


def _below(path: Path) -> list[Path]:
    """The folders of runs at or below a path."""
    if (path / "config.toml").is_file():
        return [path]
    folders = sorted(file.parent for file in path.rglob("config.toml"))
    if not folders:
        raise ReportError(
            f"{path} holds no run (no config.toml or compare.toml in it or below); give the folder of a run"
        )
    return folders


def _chosen(runs: Sequence[Path], whole: Collection[Path]) -> tuple[dict[Path, set[Path]], list[Path]]:
    """Runs by the folder of the comparison they belong to, and the runs that belong to none or to a whole one."""
    chosen: dict[Path, set[Path]] = {}
    alone = []
    for run in runs:
        places = [place for place in run.parents[1:3] if (place / "compare.toml").is_file()]
        if places and places[0] not in whole:
            chosen.setdefault(places[0], set()).add(run)
        else:
            alone.append(run)
    return chosen, alone


def _trials(path: Path, comparison: Comparison, prefix: str) -> list[LoadedRun]:
    """The runs of a comparison that were started, in the order of its table."""
    order = [entry.label for entry in comparison.methods]
    trials = sorted(comparison.trials(), key=lambda trial: order.index(trial.label))
    runs = []
    for trial in trials:
        folder, setting = path / trial.name, ": ".join(filter(None, (prefix, trial.setting)))
        if (folder / "config.toml").is_file():
            asked = {"rounds": trial.config.rounds, "target": trial.config.target}
            config = Config.read(folder / "config.toml").model_copy(update=asked)
            name = f"{path.name}/{trial.name}" if prefix else trial.name
            runs.append(LoadedRun(folder, name, setting, trial.label, config, trial.relative))
    return runs


def _alone(folders: Sequence[Path], prefix: str) -> list[LoadedRun]:
    """Runs given one by one: a setting is whatever they differ in except the method and the seed."""
    configs = {folder: Config.read(folder / "config.toml") for folder in folders}
    values = {folder: shared_settings(config) for folder, config in configs.items()}
    varying = [key for key in shared_settings(Config()) if len({str(value[key]) for value in values.values()}) > 1]
    root, runs = Path(commonpath([folder.parent for folder in folders])) if folders else Path(), []
    for folder, config in configs.items():
        own = ", ".join(f"{key} {values[folder][key]}" for key in varying)
        arguments = ", ".join(f"{name}={value}" for name, value in config.arguments.items())
        label = f"{config.method}({arguments})" if arguments else config.method
        name = folder.relative_to(root).as_posix()
        runs.append(LoadedRun(folder, name, ": ".join(filter(None, (prefix, own))), label, config))
    return runs


def shared_settings(config: Config) -> dict[str, Any]:
    """What runs of one setting have in common, as a flat dict."""
    values = config.model_dump(exclude={"method", "arguments", "seed", "rounds", "target", "engine", "output", "local"})
    return values | {f"local.{name}": value for name, value in config.local}


def _groups(runs: Sequence[LoadedRun]) -> list[Group]:
    """Runs by setting and method, in order of appearance; a seed counts once."""
    styles = {label: n for n, label in enumerate(dict.fromkeys(run.label for run in runs))}
    groups: dict[tuple[str, str], Group] = {}
    for setting in dict.fromkeys(run.setting for run in runs):
        for run in (run for run in runs if run.setting == setting):
            before = groups.get((setting, run.label)) or Group(setting, run.label, styles[run.label], ())
            twin = next((other for other in before.runs if other.config.seed == run.config.seed), None)
            if twin:
                raise ReportError(
                    f"{twin.folder} and {run.folder} are both {run.label} with seed {run.config.seed}: leave one out"
                )
            groups[setting, run.label] = replace(before, runs=(*before.runs, run))
    return list(groups.values())


def _failures(path: Path) -> list[str]:
    """The runs of a comparison that failed, according to its table."""
    try:
        table = json.loads((path / "table.json").read_text(encoding="utf-8"))
        return [f"{failure['run']} failed: {failure['error']}" for failure in table["failures"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _unfinished(run: LoadedRun) -> str:
    return f"{run.name} has not ended: {len(run.rows)} of {run.config.rounds} rounds"


def _comparison_recipe(path: Path, comparison: Comparison) -> Recipe:
    command = f"undrift compare compare.toml --out {quote(path.name)}"
    return Recipe(path.name, command, "compare.toml", comparison.toml())


def _run_recipe(run: LoadedRun) -> Recipe:
    command = f"undrift run --config config.toml --out {quote(run.name)}"
    return Recipe(run.name, command, "config.toml", run.config.toml())
