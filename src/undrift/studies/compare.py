"""Comparisons: methods x settings x seeds, each an ordinary run, all rows on the same data, cohorts and local settings.

OUT/compare.toml                   the complete settings of the comparison
OUT/<setting>/<label>/seed-<seed>  the folder of a run; without settings OUT/<label>/seed-<seed>
OUT/table.json, OUT/table.md       the results so far
OUT/tuning/<setting>/<label>       the trials of a row under the strict protocol, see undrift.studies.protocol
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Self

import tomli_w
from pydantic import Field, model_validator

from undrift.data import DataError
from undrift.runs.loop.run import complete
from undrift.runs.settings.config import Config, Scalar
from undrift.runs.settings.engine import Workers
from undrift.runs.settings.named_arguments import NamedOrNone
from undrift.runs.settings.schema import LISTED, ConfigError, Strict, merge_settings, read_toml, validate
from undrift.runs.settings.targets import split_targets
from undrift.runs.setup.prepare import Setup, check_names, prepare, variant
from undrift.studies.comparable import check_default_model, check_left_out, check_shared
from undrift.studies.grid import GRID, expand, value_name
from undrift.studies.protocol import TUNING, Protocol, TuneConfig, check_begun, row_tuning, tuned_row
from undrift.studies.results_sheet import Sheet, Trial, recording
from undrift.studies.statistics import Columns
from undrift.studies.tune import Tuning
from undrift.util.naming.names import suggest
from undrift.util.steps import tell_trial
from undrift.util.storage.files import make_private, write

Watch = Callable[["Trial", dict[str, Any] | None], None]

ROWS = "rows"
"""The key of a setting whose tables override rows: label -> method, arguments, local or model."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[0-9])){0,63}")
_ELSEWHERE = {"method": "[[methods]]", "arguments": "[[methods]]", "seed": "seeds"}


class Entry(Strict):
    """A row of the table.

    Args:
        method: an algorithm's name, a composition or a reference.
        label: the name of the row and of its folder; empty takes the method's name; a composition needs a label.
        arguments: of the method.
        local: local settings of its own, if the comparison allows them (`own_local`).
        model: a model of its own, if the comparison allows it (`own_model`); None takes that of all rows.
    """

    method: str
    label: str = ""
    arguments: dict[str, Scalar] = Field(default_factory=dict)
    local: dict[str, Any] = Field(default_factory=dict)
    model: NamedOrNone = None

    def values(self) -> dict[str, Any]:
        """The settings of a run that the row determines."""
        own = {"method": self.method, "arguments": self.arguments, "local": self.local}
        return own if self.model is None else {**own, "model": self.model}


def row_in(entry: Entry, setting: Mapping[str, Any], place: str = "settings") -> Entry:
    """A row as one part of the table has it.

    Args:
        entry: the row.
        setting: the settings of the part; its table `rows` overrides values of rows, label by label.
        place: what to call the part in errors.

    Example:
        >>> own = {"rows": {"fedsam": {"arguments": {"rho": 0.5}}}}
        >>> row_in(Entry(method="fedsam", label="fedsam", arguments={"rho": 0.1}), own).arguments
        {'rho': 0.5}
    """
    given = setting.get(ROWS, {}).get(entry.label, {})
    values = merge_settings(entry.model_dump(), given)
    return validate(Entry, values, f"{place}.{ROWS}.{entry.label}") if given else entry


def _check_rows(setting: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    """Refuse overrides of rows that do not exist, or of what a part cannot override."""
    rows = setting.get(ROWS, {})
    if not isinstance(rows, Mapping):
        raise ValueError(f"{place}.{ROWS}: write a table for each row, [{place}.{ROWS}.{known[0]}], got {rows!r}")
    for label, given in rows.items():
        if label not in known:
            raise ValueError(f"{place}.{ROWS}: no row is labelled {label!r}; {suggest(label, known)}")
        if not isinstance(given, Mapping) or "label" in given:
            raise ValueError(f"{place}.{ROWS}.{label}: write method, arguments, local or model, got {given!r}")


class TableConfig(Strict):
    """What the printed table and table.md show; table.json has everything."""

    columns: Annotated[tuple[Columns, ...], LISTED] = ("accuracy",)


class Comparison(Strict):
    """A comparison of methods.

    Args:
        name: the title.
        seeds: each method runs once with each seed.
        methods: the rows.
        baseline: the label of the row that the others are compared with; empty takes the first.
        base: settings that all runs share; `target` may also be "baseline" or "0.95 * baseline", of its best accuracy.
        settings: name -> settings of one part of the table; they override `base`, and their `rows` override rows.
        own_local: whether rows may change local settings.
        own_model: whether rows may have models of their own.
        table: which columns are shown.
        protocol: "plain" takes the rates of the file; "strict" replaces them: it tunes every row in every setting.
        tune: how the strict protocol tunes.

    The key `grid`, of the file, of a setting or of a row, makes several settings or rows of one: see `variants`.
    """

    shorthands = (GRID, f"methods.{GRID}")

    name: str = "comparison"
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**63)], ...], Field(min_length=1)] = (0, 1, 2)
    baseline: str = ""
    own_local: bool = False
    own_model: bool = False
    table: TableConfig = TableConfig()
    base: dict[str, Any] = Field(default_factory=dict)
    methods: Annotated[tuple[Entry, ...], Field(min_length=1)]
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    protocol: Protocol = "plain"
    tune: TuneConfig | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        labels = [entry.label for entry in self.methods]
        _check_distinct("seeds", list(map(str, self.seeds)), "each counts once")
        _check_distinct("methods", labels, "give one of them another label")
        for entry in self.methods:
            _check_label(entry)
        for name in self.settings:
            check_folder_name(name)
        for place, values in [("base", self.base), *((f"settings.{k}", v) for k, v in self.settings.items())]:
            for key in sorted(values.keys() & _ELSEWHERE.keys()):
                raise ValueError(f"{place}.{key}: every row has its own: write it in {_ELSEWHERE[key]}")
        for name, values in self.settings.items():
            _check_rows(values, labels, f"settings.{name}")
        for entry in (row for name in self.settings or [""] for row in self._rows(name)):
            if entry.model and not (self.own_model and self._named_model):
                raise ValueError(
                    f"methods: {entry.label} has a model of its own, but rows share their model, or the table compares "
                    "models and not methods: write own_model = true at the top and the others' model in [base]"
                )
            if entry.local.keys() - ({"lr"} if self.strict else set()) and not self.own_local:
                raise ValueError(
                    f"methods: {entry.label} changes {', '.join(entry.local)} of local, but rows share their local "
                    "settings, or the table compares these and not the methods: write them in [base.local], or "
                    "own_local = true at the top if each method has been tuned"
                )
        self._check_protocol(labels)
        if self.baseline not in labels:
            raise ValueError(f"baseline: no row is labelled {self.baseline!r}; {suggest(self.baseline, labels)}")
        return self

    def _check_protocol(self, labels: Sequence[str]) -> None:
        if self.strict:
            self.search.check(self.seeds, labels)
            if TUNING in (self.settings or labels):
                raise ValueError(f"{TUNING}: the strict protocol has a folder of this name; choose another")
        elif self.tune is not None:
            raise ValueError('tune: only the strict protocol tunes rows: write protocol = "strict", or leave tune out')

    @property
    def strict(self) -> bool:
        """Whether the strict protocol holds."""
        return self.protocol == "strict"

    @property
    def search(self) -> TuneConfig:
        """How the strict protocol tunes."""
        return self.tune or TuneConfig()

    @property
    def claims(self) -> int:
        """How many differences from the baseline the table of a strict comparison has; 0 of any other."""
        return (len(self.methods) - 1) * max(1, len(self.settings)) if self.strict else 0

    @property
    def _named_model(self) -> bool:
        """Whether every part names the model of the rows that have none of their own."""
        return "model" in self.base or all("model" in values for values in self.settings.values() or [{}])

    def _rows(self, setting: str) -> list[Entry]:
        """The rows as one part has them."""
        return [row_in(entry, self.settings.get(setting, {}), f"settings.{setting}") for entry in self.methods]

    @classmethod
    def read(cls, path: Path, *, check: bool = True) -> "Comparison":
        """A comparison from a TOML file; arguments as for `build`."""
        return cls.build(read_toml(path), str(path), check=check)

    @classmethod
    def build(cls, values: Mapping[str, Any], source: str = "the comparison", *, check: bool = True) -> "Comparison":
        """A comparison from a mapping; raises `ConfigError` if any of its runs has invalid settings.

        Args:
            values: as in a file.
            source: what to call it in errors.
            check: whether data sets, models and files that it names must be there: not if its runs are only read.
        """
        comparison = validate(cls, expand(values, source), source)
        comparison.trials(source=source, check=check)
        return comparison

    def trials(
        self, engine: Mapping[str, Any] | None = None, source: str = "the comparison", *, check: bool = True
    ) -> list["Trial"]:
        """Every run, ordered so that runs that share data follow each other.

        Args:
            engine: settings of the engine that override those of the file; a value of None overrides nothing.
            source: what to call the comparison in errors.
            check: as for `build`.
        """
        trials = [
            self._trial(setting, entry, seed, {"engine": dict(engine or {})}, source, check)
            for setting in self.settings or [""]
            for seed in self.seeds
            for entry in self._rows(setting)
        ]
        if check:
            check_default_model(trials, source)
        return trials

    def _trial(
        self, setting: str, entry: Entry, seed: int, given: Mapping[str, Any], source: str, check: bool
    ) -> "Trial":
        """A run, with validated settings."""
        part = {key: value for key, value in self.settings.get(setting, {}).items() if key != ROWS}
        values = merge_settings(
            merge_settings(merge_settings(self.base, part), {**entry.values(), "seed": seed}), given
        )
        where = f"{source}: {setting}/{entry.label}" if setting else f"{source}: {entry.label}"
        try:
            values["target"], relative = split_targets(values.get("target"))
            config = Config.build(values, "")
            if check:
                check_names(config)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}: {error}") from None
        return Trial(setting, entry.label, config, relative)

    def row_tuning(self, setting: str, label: str) -> Tuning:
        """The search of one row in one setting.

        Args:
            setting: the name of the part; empty without parts.
            label: of the row.
        """
        row = next(entry for entry in self._rows(setting) if entry.label == label)
        part = {key: value for key, value in self.settings.get(setting, {}).items() if key != ROWS}
        own = {key: value for key, value in row.values().items() if key in ("local", "model")}
        base = merge_settings(merge_settings(self.base, part), own)
        return row_tuning(self.search, self.seeds, row.model_dump(), base)

    def with_choice(self, setting: str, label: str, choice: Mapping[str, float]) -> "Comparison":
        """The comparison with the tuned values of one row in one setting.

        Args:
            setting: the name of the part; empty without parts.
            label: of the row.
            choice: "lr" and possibly an argument.
        """
        arguments = {name: value for name, value in choice.items() if name != "lr"}
        own = {"local": {"lr": choice["lr"]}, **({"arguments": arguments} if arguments else {})}
        values = self.model_dump(exclude_defaults=True)
        if self.settings:
            values["settings"] = merge_settings(self.settings, {setting: {ROWS: {label: own}}})
        else:
            values["methods"] = [merge_settings(x, own) if x["label"] == label else x for x in values["methods"]]
        return validate(Comparison, {**values, "baseline": self.baseline}, "the comparison")

    def toml(self) -> str:
        """The whole comparison as TOML, for `read`."""
        values = self.model_dump(exclude_defaults=True)
        return tomli_w.dumps({**values, "seeds": self.seeds, "baseline": self.baseline})


def compare(
    comparison: Comparison,
    out: Path,
    watch: Watch | None = None,
    engine: Mapping[str, Any] | None = None,
    only: Callable[["Trial"], bool] | None = None,
) -> dict[str, Any]:
    """Run what is not finished yet and return the table; it lists a run that fails, and the other runs continue.

    A folder that contains a run with other settings is refused before anything is written; a run fails if the finished
    ones of its part have other data.

    Under the strict protocol the rows of these runs are tuned first, setting by setting.

    Args:
        comparison: what to run.
        out: the folder to write to; a comparison that is already there is resumed.
        watch: called with a run and each of its rows, and with None when it has ended; of trials with their rows only.
        engine: settings of the engine that override those of the comparison.
        only: selects the runs to run; the table has the others too if they are finished.
    """
    wanted = only or (lambda _: True)
    failures: dict[str, dict[str, str]] = {}
    if comparison.strict:
        comparison, failures = _tune_rows(comparison, out, watch, engine, wanted)
    trials = comparison.trials(engine)
    sheet = Sheet(comparison.name, comparison.baseline, comparison.table.columns, trials, out, comparison.claims)
    sheet.failures |= failures
    notify = watch or (lambda *_: None)
    sheet.read(trials)  # finished runs first, so that the table never loses a row
    for setting in comparison.settings or [""]:
        check_left_out(sheet.finished_runs(setting), out)
    make_private(out)
    write(out / "compare.toml", comparison.toml())
    missing = [trial for trial in trials if not sheet.has(trial) and wanted(trial)]
    missing = [trial for trial in missing if str(_tuning_folder(trial.setting, trial.label)) not in failures]
    for trial in trials:
        if sheet.has(trial):
            notify(trial, None)
    absent: dict[str, DataError] = {}  # without a network each search takes a minute
    with Workers() as pool:

        @lru_cache(maxsize=1)
        def shared(setting: str, seed: int) -> Setup:
            trial = next(trial for trial in trials if (trial.setting, trial.config.seed) == (setting, seed))
            if trial.config.data in absent:
                raise absent[trial.config.data]
            try:
                setup = prepare(trial.config)
            except DataError as error:
                absent[trial.config.data] = error
                raise
            check_shared(sheet.finished_runs(setting), out, setup)
            return replace(setup, pool=pool)

        def ready(trial: Trial) -> Setup:
            return variant(shared(trial.setting, trial.config.seed), trial.config)

        for trial in missing:
            tell_trial(trials.index(trial) + 1, len(trials), trial.name)
            with recording(sheet.failures, trial.name):
                complete(trial.config, out / trial.name, partial(ready, trial), partial(notify, trial))
                sheet.add(trial)
            sheet.save()
            notify(trial, None)
    sheet.read(sheet.locked_trials())
    return sheet.save()


def _tune_rows(
    comparison: Comparison,
    out: Path,
    watch: Watch | None,
    engine: Mapping[str, Any] | None,
    wanted: Callable[["Trial"], bool],
) -> tuple[Comparison, dict[str, dict[str, str]]]:
    """A strict comparison with the tuned values of the wanted rows and of those tuned before; and what failed."""
    check_begun(out, comparison.seeds)
    make_private(out / TUNING)
    write(out / "compare.toml", comparison.toml())
    rows: dict[tuple[str, str], bool] = {}
    for trial in comparison.trials(engine):
        rows[trial.setting, trial.label] = rows.get((trial.setting, trial.label), False) or wanted(trial)
    tuned, failures = comparison, dict[str, dict[str, str]]()
    for (setting, label), needed in rows.items():
        folder = _tuning_folder(setting, label)
        if needed or (out / folder / "tune.json").exists():
            with recording(failures, str(folder)):
                tuning = comparison.row_tuning(setting, label)
                found = tuned_row(tuning, out / folder, _watch_tuning(watch, folder, tuning), engine)
                tuned = tuned.with_choice(setting, label, found["choice"])
    return tuned, failures


def _tuning_folder(setting: str, label: str) -> Path:
    """The folder of a row's trials, below that of the comparison."""
    return Path(TUNING, setting, label)


def _watch_tuning(watch: Watch | None, folder: Path, tuning: Tuning) -> Callable[[str, dict[str, Any]], None] | None:
    """What calls `watch` with the trials of a row."""
    if watch is None:
        return None
    first = tuning.config(tuple(values[0] for values in tuning.grid.values()), seed=tuning.seeds[0])
    return lambda name, row: watch(Trial(str(folder / "trials"), Path(name).parts[0], first), row)


def check_folder_name(name: str) -> str:
    """Validate a name of a folder, and return it."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be a folder's name: use 1 to 64 letters, digits, '_', '-', and '.' before a digit"
        )
    return name


def _check_label(entry: Entry) -> None:
    """Validate a row's label, which names its folder; a method that cannot be one needs a label."""
    if not _NAME.fullmatch(entry.method) and entry.label.startswith(entry.method):
        short = value_name(entry.method)[:40].strip("-.") or "mine"
        raise ValueError(
            f'methods: {entry.method!r} cannot name its row\'s folder; give the row a label, label = "{short}"'
        )
    check_folder_name(entry.label)


def _check_distinct(what: str, names: list[str], advice: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what}: {name} is given {names.count(name)} times; {advice}")
