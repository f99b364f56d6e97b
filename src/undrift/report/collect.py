"""Collect the runs of a report from folders and group those of one method over seeds."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os.path import commonpath
from pathlib import Path
from shlex import quote

from undrift.report.loaded import (
    Group,
    LoadedRun,
    Material,
    Recipe,
    ReportError,
    find_runs,
    from_here,
    method_label,
    shared_settings,
)
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.studies.compare import Comparison

_SINGLE = "single runs"
NAMED = 3  # at most so many comparisons or runs make up the title


def collect(paths: Sequence[Path]) -> Material:
    """Find the runs in folders.

    Args:
        paths: folders of runs or of comparisons, or folders that have runs anywhere below them. Runs of a comparison
            that are given one by one have its labels and settings.
    """
    given = list(dict.fromkeys(path.resolve() for path in paths))
    compared = {
        path: Comparison.read(path / "compare.toml", check=False) for path in given if (path / "compare.toml").is_file()
    }
    found = list(dict.fromkeys(run for path in given if path not in compared for run in _run_folders(path)))
    chosen, alone = _choose_comparisons(found, compared)
    compared |= {path: Comparison.read(path / "compare.toml", check=False) for path in chosen}
    many = len(compared) + bool(alone) > 1
    notes = [note for path in compared for note in _failures(path)]
    runs = [
        run
        for path, it in compared.items()
        for run in _trials(path, it, _comparison_title(path, it) if many else "", notes)
        if path not in chosen or run.folder in chosen[path]
    ]
    single = _single_runs(alone, _SINGLE if many else "", notes)
    runs = [run for run in [*runs, *single] if _readable(run, notes)]
    notes += [f"{run.name} has no round yet and is left out" for run in runs if not run.rows]
    notes += [
        f"{run.name} has not ended: {len(run.rows)} of {run.config.rounds} rounds"
        for run in runs
        if 0 < len(run.rows) < run.config.rounds and not run.stopped_early
    ]
    notes += [note for run in runs if run.rows for note in _round_notes(run)]
    groups = _groups([run for run in runs if run.rows])
    if not groups:
        why = "; ".join(["no run with a round in it", *notes])
        raise ReportError(f"{', '.join(map(str, paths)) or 'no folder'}: {why}; see undrift run")
    labels = [group.label for group in groups]
    wanted = [*(it.baseline for it in compared.values()), "fedavg", labels[0]]
    recipes = [
        Recipe(path.name, f"undrift compare compare.toml --out {quote(path.name)}", "compare.toml", it.toml())
        for path, it in compared.items()
    ]
    recipes += [
        Recipe(run.name, f"undrift run --config config.toml --out {quote(run.name)}", "config.toml", run.config.toml())
        for run in single
        if run in runs
    ]
    strict = not alone and all(it.strict for it in compared.values())
    return Material(
        _title(given, compared, single),
        next(b for b in wanted if b in labels),
        tuple(groups),
        tuple(recipes),
        tuple(notes),
        tuple(map(from_here, given)),
        sum(it.claims for it in compared.values()) if strict else 0,
    )


def _title(given: Sequence[Path], compared: Mapping[Path, Comparison], single: Sequence[LoadedRun]) -> str:
    """The names of the comparisons, or of the single run or folder; otherwise how many there are."""
    names = [_comparison_title(path, it) for path, it in compared.items()]
    if names and not single and len(names) <= NAMED:
        return "; ".join(names)
    if len(given) == 1:
        return single[0].name if len(single) == 1 and not names else given[0].name
    if len(single) <= NAMED and not names:
        return ", ".join(run.name for run in single)
    parts = [(len(names), "comparison"), (len(single), "run")]
    return " and ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in parts if count)


def _comparison_title(path: Path, comparison: Comparison) -> str:
    """The title of a comparison or, if its file has none, its folder's name."""
    return path.name if comparison.name == Comparison.model_fields["name"].default else comparison.name


def _run_folders(path: Path) -> list[Path]:
    """The folders of runs at or below a path."""
    folders = list(find_runs(path))
    if not folders:
        raise ReportError(
            f"{path} holds no run (no config.toml or compare.toml in it or below); give the folder of a run"
        )
    return folders


def _choose_comparisons(runs: Sequence[Path], whole: Collection[Path]) -> tuple[dict[Path, set[Path]], list[Path]]:
    """Runs by the folder of the comparison they belong to, but not of a whole one, and the runs that belong to none."""
    chosen: dict[Path, set[Path]] = {}
    alone = []
    for run in runs:
        place = comparison_of(run)
        if place is None:
            alone.append(run)
        elif place not in whole:
            chosen.setdefault(place, set()).add(run)
    return chosen, alone


def comparison_of(run: Path) -> Path | None:
    """The folder of the comparison that a run belongs to; None if it belongs to none."""
    return next((place for place in run.parents[1:3] if (place / "compare.toml").is_file()), None)


def _settings(folder: Path, name: str, notes: list[str]) -> Config | None:
    """The settings of a run; None, with a note, if they cannot be read."""
    try:
        return Config.read(folder)
    except ConfigError as error:
        notes.append(f"{name} is damaged and left out: {_shorten_paths(error, folder)}")
        return None


def _readable(run: LoadedRun, notes: list[str]) -> bool:
    """Whether a run's rows and summary can be read; a note gives the reason if not."""
    try:
        return bool(run.judged_by) and run.rows is not None
    except ValueError as error:
        notes.append(f"{run.name} is damaged and left out: {_shorten_paths(error, run.folder)}")
        return False


def _shorten_paths(error: Exception, folder: Path) -> str:
    """An error's text with paths below the run's folder."""
    return str(error).replace(f"{folder}/", "").replace(str(folder), from_here(folder))


def _trials(path: Path, comparison: Comparison, prefix: str, notes: list[str]) -> list[LoadedRun]:
    """The runs of a comparison that were started, in the order of its table."""
    order = [entry.label for entry in comparison.methods]
    trials = sorted(comparison.trials(check=False), key=lambda trial: order.index(trial.label))
    runs = []
    for trial in trials:
        folder, setting = path / trial.name, ": ".join(filter(None, (prefix, trial.setting)))
        name = f"{path.name}/{trial.name}" if prefix else trial.name
        if (folder / "config.toml").is_file() and (config := _settings(folder, name, notes)):
            config = config.model_copy(update={"rounds": trial.config.rounds, "target": trial.config.target})
            runs.append(LoadedRun(folder, name, setting, trial.label, config, trial.relative))
    return runs


def _single_runs(folders: Sequence[Path], prefix: str, notes: list[str]) -> list[LoadedRun]:
    """Runs given one by one: a setting is whatever they differ in except the method and the seed."""
    root, runs = Path(commonpath([folder.parent for folder in folders])) if folders else Path(), []
    names = {folder: folder.relative_to(root).as_posix() for folder in folders}
    configs = {folder: config for folder, name in names.items() if (config := _settings(folder, name, notes))}
    values = {folder: shared_settings(config) for folder, config in configs.items()}
    keys = [key for key in shared_settings(Config()) if key != "schedule"]  # which is in the label
    varying = [key for key in keys if len({str(value[key]) for value in values.values()}) > 1]
    for folder, config in configs.items():
        own = ", ".join(f"{key} {values[folder][key]}" for key in varying)
        label = method_label(config.method, config.arguments)
        label += "" if config.schedule is None else f" + {config.schedule}"
        runs.append(LoadedRun(folder, names[folder], ": ".join(filter(None, (prefix, own))), label, config))
    return runs


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


def _round_notes(run: LoadedRun) -> list[str]:
    """What a report shows, or leaves out, of other rounds than the last."""
    done, seen = len(run.rows), (run.lens or {}).get("round")
    notes = [f"{run.name} has {run.later} rounds, of which the first {done} are shown"] if run.later else []
    if seen is not None and seen < done:
        notes.append(f"{run.name} was measured by the lens after {seen} of its {done} rounds")
    return notes
