"""A run read from its folder: its settings, rows, result and models. Nothing is trained, and no lock is needed."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from undrift.core.model.modules import load_plain, plain_copy
from undrift.core.tasks.task import Task
from undrift.data.arrays.preprocess import Preprocess
from undrift.models import build
from undrift.models.start import MODEL
from undrift.runs.folder.audit import read_log
from undrift.runs.folder.audit_checks import check_file
from undrift.runs.folder.checkpoint import kept_rounds
from undrift.runs.folder.files import RunError, check_run, read_summary
from undrift.runs.folder.judge import has_personal, run_column
from undrift.runs.folder.preprocess_file import read_preprocess
from undrift.runs.folder.signature import audit_key
from undrift.runs.folder.verify import LOG
from undrift.runs.reading.best_round import Round, resolve_round
from undrift.runs.reading.open_checkpoint import open_state
from undrift.runs.settings.config import Config
from undrift.runs.setup.choose_model import build_arguments
from undrift.runs.setup.prepare import prepare
from undrift.util.display.html import html_table, short_text
from undrift.util.steps import warn
from undrift.util.storage.history import History
from undrift.util.storage.metrics import read_rows


@dataclass(frozen=True)
class SavedRun:
    """A run in a folder, finished or in progress; `load_run` returns it.

    Args:
        folder: the run's folder.
    """

    folder: Path

    @cached_property
    def config(self) -> Config:
        """The settings."""
        return Config.read(self.folder)

    @property
    def history(self) -> History:
        """The rows of all rounds so far."""
        return History(read_rows(self.folder))

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, or None if the run has not ended."""
        return read_summary(self.folder)

    @property
    def report(self) -> Path | None:
        """The run's report, if `undrift report RUN --out RUN/report.html` has written one."""
        path = self.folder / "report.html"
        return path if path.is_file() else None

    def weights(
        self, task: Task | None = None, *, client: int | None = None, round: Round | None = None
    ) -> dict[str, Tensor]:
        """The weights of a model, for `load_state_dict`.

        Args:
            task: the run's task, if it was made in Python; the last global model needs none.
            client: the number of a client, for its personal model; None takes the global model.
            round: after how many rounds, if that checkpoint was kept, or "best", if the run keeps its best round
                (`output.keep_best`); None takes the last.
        """
        if client is None and round is None and self._has_last():
            if (self.folder / LOG).is_file():  # raises if it is not the file that the run wrote
                check_file(self.folder, read_log(self.folder / LOG, audit_key()), MODEL)
            weights: dict[str, Tensor] = load_file(self.folder / MODEL)
            return weights
        if client is not None and not has_personal(self.config.algorithm(), self.config.local):
            raise RunError(f"client {client}: {self.config.method} has no personal models; leave the client out")
        number = None if round is None else resolve_round(self.folder, round)
        with open_state(self.folder, number, task) as (setup, simulation, state):
            population = setup.task.population
            if client is not None and not 0 <= client < population:
                raise RunError(f"client {client}: there are {population} clients, numbered from 0 to {population - 1}")
            module = simulation.module(state) if client is None else simulation.personal(state, client)
            return plain_copy(module)

    def warn_of_global(self, client: int | None) -> None:
        """Warn who takes the model for all clients of a run that was judged by each client's own.

        Args:
            client: whose model is taken; None takes the global one.
        """
        if client is None and str((self.summary or {}).get("judged_by")).startswith("personal_"):
            last = (self.config.clients or 1) - 1
            warn("%s: this is the model for all; clients have their own, by their number: 0 to %d", self.folder, last)

    @cached_property
    def preprocess(self) -> Preprocess | None:
        """What is done to an example before the model receives it; None for a task of one's own."""
        if self.config.task is not None:
            return None
        found = read_preprocess(self.folder)
        return found or prepare(self.config, folder=self.folder).data_task.dataset.preprocess  # an earlier version's

    def _has_last(self) -> bool:
        """Whether the file of the final model is there and of the last round; it is not while a run is extended."""
        summary = self.summary if (self.folder / MODEL).is_file() else None
        return summary is not None and summary["rounds"] >= max(kept_rounds(self.folder / "checkpoints"), default=0)

    def model(self, task: Task | None = None, *, client: int | None = None, round: Round | None = None) -> nn.Module:
        """A model of the run, ready to evaluate.

        Args:
            task: the run's task, which builds the model; None builds what the settings describe.
            client: as in `weights`.
            round: as in `weights`.
        """
        weights = self.weights(task, client=client, round=round)
        made = self.preprocess if task is None else None
        if made is not None:  # no data are read
            name, arguments = build_arguments(str(self.config.model), made)
            module = build(name, **arguments)
        else:
            module = (prepare(self.config).task if task is None else task).model()
        load_plain(module, weights)
        return module.eval()

    def __repr__(self) -> str:
        return f"SavedRun({str(self.folder)!r}: {self.config.method} on {self.config.subject}, {self._state()})"

    def _state(self) -> str:
        """How far it is and how good, in a few words."""
        found, done = self.history.last(), len(self.history)
        shown = [
            f"{name} {short_text(found[name])}" for name in (run_column(self.folder, self.config),) if name in found
        ]
        return ", ".join([f"{done} of {self.config.rounds} rounds", *shown])

    def _repr_html_(self) -> str:
        """The settings and the result, for notebooks."""
        config, summary = self.config, self.summary or {}
        source = ("data", "partition") if config.task is None else ("task",)
        names = ("method", *source, "clients", "cohort", "model", "init", "seed")
        settings = {name: getattr(config, name) for name in names}
        best = run_column(self.folder, config).best_key
        wanted = (best, "best_round", "parameters", "seconds", "sha256")
        result = {name: summary[name] for name in wanted if name in summary}
        rows = {"rounds": f"{len(self.history)} of {config.rounds}", **settings, **self.history.last(), **result}
        shown = [(name.replace("_", " "), value) for name, value in rows.items() if value is not None]
        return html_table((), shown, title=str(self.folder))


def load_run(folder: str | Path) -> SavedRun:
    """The run in a folder.

    Args:
        folder: a folder that `undrift run` or `runs.start` has written.
    """
    check_run(Path(folder))
    return SavedRun(Path(folder))


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Args:
        folder: its folder.
        summary: the content of summary.json, which has the SHA-256 of the server's final state; if the run had ended
            already, by the goal and the target that were given.
        trained: whether there was a round left to train.
    """

    folder: Path
    summary: dict[str, Any]
    trained: bool = True

    def __repr__(self) -> str:
        return repr(SavedRun(self.folder)).replace("SavedRun", "Outcome", 1)

    def _repr_html_(self) -> str:
        """The settings and the result, for notebooks."""
        return SavedRun(self.folder)._repr_html_()

    @property
    def sha256(self) -> str:
        """The hash of every bit of the final state."""
        return str(self.summary["sha256"])
