"""The best round of a run, kept on request: the server's state and its clients', as they were after it.

RUN/best/<round>.json, .safetensors  a checkpoint
RUN/best/clients-<round>             the clients' states, for methods that keep some

The states are hard links where the file system has them, so they take up space only once the run has moved on. A new
best round is complete before the old one is deleted. A run that is resumed from before its best round deletes it and
reaches it again.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from undrift.core.records.types import ServerState
from undrift.engine.stores.object_store import download_states
from undrift.engine.stores.store import copy_states
from undrift.runs.folder.checkpoint import Checkpoints, kept_rounds
from undrift.runs.folder.files import RunError
from undrift.runs.folder.judge import best_row, measured_rows, run_column
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import states_root
from undrift.runs.settings.goals import Column
from undrift.runs.settings.schema import ConfigError
from undrift.util.steps import warn
from undrift.util.storage.metrics import read_rows

Round = int | Literal["best"]

BEST: Literal["best"] = "best"


class KeepBest:
    """Keeps the best evaluated round of a run in progress.

    Args:
        kept: the checkpoints of the folder `best`, of which one is kept.
        clients: the folder of the clients' states.
        column: by which the run is judged.
        rows: the rows of the rounds so far; a best round after the last of them is deleted.
    """

    def __init__(self, kept: Checkpoints, clients: Path, column: str, rows: Sequence[Mapping[str, Any]] = ()) -> None:
        self.kept, self.clients, self.column = kept, clients, Column(column)
        before, done = measured_rows(rows, column), rows[-1]["round"] if rows else 0
        self.so_far = best_row(rows, self.column)
        rounds = kept.rounds()
        there = next((row for row in before if row["round"] in rounds), None)
        if any(round > done for round in rounds):  # it took the place of the best of these rows
            there = self.so_far
        self.top = None if there is None else there[column]
        self.kept.rewind(done)
        self._delete_states(lambda there: there > done)

    def resume(self, state: ServerState, save: Callable[[Checkpoints, ServerState], None] | None = None) -> None:
        """Keep the state from which a run is resumed if it is the best so far and was not kept; warn if another one is.

        Args:
            state: the server's.
            save: as for `after`.
        """
        best = self.so_far
        if best is None or (self.top is not None and not self.column.better(best[self.column], self.top)):
            return
        if best["round"] == state.round:
            self.after(state, best, save)
        else:
            warn("the best round so far (%d) was not kept; the best of the next rounds will be", best["round"])

    def after(
        self, state: ServerState, row: Mapping[str, Any], save: Callable[[Checkpoints, ServerState], None] | None = None
    ) -> bool:
        """Keep the state after a round if it is the best so far; of equal rounds the first is the best.

        Args:
            state: the server's.
            row: the numbers of the round.
            save: saves the state with its event in the audit log; None saves it without.
        """
        if not measured_rows([row], self.column):
            return False
        if self.top is not None and not self.column.better(row[self.column], self.top):
            return False
        folder = _states(self.kept.folder, state.round)
        if state.accepted:
            root = states_root(self.clients, None)
            if isinstance(root, str):
                download_states(root, state.accepted, folder)
            else:
                copy_states(root, state.accepted, folder)
        self.kept.save(state) if save is None else save(self.kept, state)
        self.top = row[self.column]
        self._delete_states(lambda there: there != state.round)
        return True

    def _delete_states(self, which: Callable[[int], bool]) -> None:
        """Delete clients' states by their round."""
        for folder in self.kept.folder.glob("clients-*"):
            if which(int(folder.name.rpartition("-")[2])):
                shutil.rmtree(folder, ignore_errors=True)  # what is left goes at the next best round


def round_folders(folder: Path, round: int | None) -> tuple[Path, Path]:
    """Where a run has its checkpoint of a round, and where the clients' states of that round.

    Args:
        folder: the run's folder.
        round: how many rounds were done; None means the last.
    """
    best = folder / BEST
    if round is not None and round in kept_rounds(best):
        return best, _states(best, round)
    return folder / "checkpoints", folder / "clients"


def _states(best: Path, round: int) -> Path:
    return best / f"clients-{round:07d}"


def resolve_round(folder: Path, round: Round) -> int:
    """The number of a round that may be given as "best".

    Args:
        folder: the run's folder.
        round: how many rounds were done, or "best", if the run keeps it.
    """
    if round != BEST:
        return round
    rounds = kept_rounds(folder / BEST)
    config = Config.read(folder)
    if not rounds and not config.output.keep_best:
        raise RunError(f"{folder}: its best round was not kept; set output.keep_best = true in the run's file")
    column, rows = run_column(folder, config), read_rows(folder)
    found = {row["round"]: row[column] for row in measured_rows(rows, column)}
    best = best_row(rows, column)
    if best is None and not rounds:
        raise RunError(f"{folder}: no round has been evaluated yet; try it again after the first one")
    if best is None or (rounds and rounds[-1] not in found):  # it is being written
        return rounds[-1]
    if not rounds or column.better(best[column], found[rounds[-1]]):
        kept = f"; round {rounds[-1]} was: --round {rounds[-1]}" if rounds else "; give a kept round: --round N"
        raise RunError(
            f"{folder}: its best round ({best['round']}) was not kept, as keep_best or goal was changed later{kept}"
        )
    return rounds[-1]


def parse_round(text: str | None) -> Round | None:
    """A round as the command line takes it: a number, "best", or None for the last.

    Example:
        >>> parse_round("30"), parse_round("best")
        (30, 'best')
    """
    if text is None:
        return None
    if text == BEST:
        return BEST
    if not text.isdecimal():
        raise ConfigError(f"--round {text}: write a number of rounds, or best")
    return int(text)
