"""The results of a comparison so far, and the tables made of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exc
from typing import Any

from undrift.runs.folder.files import RunError, RunLockedError
from undrift.runs.loop.run import is_finished
from undrift.runs.settings.config import Config
from undrift.runs.settings.targets import Target
from undrift.studies.run_result import result
from undrift.studies.statistics import LEVEL, Columns, Result, Row, summarise, to_markdown
from undrift.util.storage.files import write
from undrift.util.storage.jsonable import to_json


@dataclass(frozen=True)
class Trial:
    """One run of a comparison; `relative` has the targets that depend on the baseline, `config` the others."""

    setting: str
    label: str
    config: Config
    relative: tuple[Target, ...] = ()

    @property
    def name(self) -> str:
        """Its folder below that of the comparison."""
        return str(Path(self.setting, self.label, f"seed-{self.config.seed}"))


@contextmanager
def recording(failures: dict[str, dict[str, str]], name: str) -> Iterator[None]:
    """An error of one run is recorded as a failure and does not stop the others.

    Args:
        failures: the errors so far, by the name of the run.
        name: of the run, its folder below that of the comparison.
    """
    try:
        yield
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        failures[name] = {"run": name, "error": why, "trace": format_exc()}


@dataclass
class Sheet:
    """The results and failures so far, written to table.json and table.md.

    Args:
        name: the title.
        baseline: the label of the row that the others are compared with.
        columns: which columns table.md has.
        trials: the runs of the comparison.
        out: its folder.
        claims: how many differences it has under the strict protocol; 0 otherwise.
    """

    name: str
    baseline: str
    columns: Sequence[Columns]
    trials: Sequence[Trial]
    out: Path
    claims: int = 0
    results: dict[str, Result] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)

    def has(self, trial: Trial) -> bool:
        """Whether a run is finished or has failed."""
        return trial.name in self.results or trial.name in self.failures

    def finished_runs(self, setting: str) -> dict[str, Config]:
        """The folders of the finished runs of a part, and their settings as given.

        Args:
            setting: the name of the part.
        """
        runs = [trial for trial in self.trials if trial.setting == setting and trial.name in self.results]
        return {trial.name: trial.config for trial in runs}

    def add(self, trial: Trial) -> None:
        """Read the result of a finished run."""
        self.results[trial.name] = result(self.out / trial.name, trial.config, trial.relative)

    def read(self, trials: Sequence[Trial]) -> None:
        """Read the results of the runs that are finished; raise if some have other settings or code.

        Args:
            trials: the runs that may be finished.
        """
        ended, others = [], []
        for trial in trials:
            with recording(self.failures, trial.name):
                try:
                    if is_finished(trial.config, self.out / trial.name):
                        ended.append(trial)
                except RunError as error:
                    others.append(str(error))
        if others:
            raise RunError(others[0] + (f" (and {len(others) - 1} more)" if others[1:] else ""))
        for trial in ended:
            self.failures.pop(trial.name, None)
            with recording(self.failures, trial.name):
                self.add(trial)

    def locked_trials(self) -> list[Trial]:
        """The runs that failed because another process had locked them."""
        return [
            x for x in self.trials if self.failures.get(x.name, {}).get("error", "").startswith(RunLockedError.__name__)
        ]

    def save(self) -> dict[str, Any]:
        """Write and return the table."""
        rows: list[Row] = []
        for setting in dict.fromkeys(trial.setting for trial in self.trials):
            runs: dict[str, dict[int, Result]] = {}
            for trial in self.trials:
                if trial.setting == setting:
                    found = runs.setdefault(trial.label, {})
                    found |= {trial.config.seed: self.results[trial.name]} if trial.name in self.results else {}
            rows += [{"setting": setting, **row} for row in summarise(runs, self.baseline, self.claims)]
        about: dict[str, Any] = {"name": self.name, "baseline": self.baseline, "level": LEVEL}
        about |= {"protocol": "strict", "claims": self.claims} if self.claims else {}
        table = {**about, "rows": rows, "failures": list(self.failures.values())}
        write(self.out / "table.json", to_json(table) + "\n")
        write(self.out / "table.md", to_markdown(rows, self.columns))
        return table
