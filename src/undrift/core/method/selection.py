"""The kind of block that chooses the clients of a round, in the slot `selection`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

from undrift.core.method.block import Block
from undrift.core.model.random import weighted_draw
from undrift.core.records.types import ClientT, SentT, ServerT, StateT, UpT
from undrift.core.tasks.participation import Participation

Losses = Callable[[Sequence[int], int | None], Mapping[int, float]]
"""The losses of clients, see `Candidates.losses`."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a selection may read before a round.

    Args:
        round: the round.
        seed: the run's seed.
        participation: who is available, and how a cohort is drawn.
    """

    round: int
    seed: int
    participation: Participation
    _losses: Losses

    @property
    def size(self) -> int:
        """How many clients shall take part."""
        return self.participation.size(self.seed, self.round)

    def sample(self) -> list[int]:
        """The cohort as it is drawn without a selection."""
        return self.participation.sample(self.seed, self.round)

    def by_examples(self, count: int) -> list[int]:
        """Available clients, drawn without replacement in proportion to their examples, in the order of their draws.

        Weights of one's own, a list in `sampling`, are multiplied with the examples: 0 leaves a client out.
        """
        weights = self.participation.masked(self.participation.examples, self.round)
        own = self.participation.weights
        if own is not None and not isinstance(self.participation.sampling, str):
            weights = weights * own
        return weighted_draw(self.seed, self.round, weights, count, "candidates")

    def losses(self, clients: Sequence[int], batches: int | None = None) -> Mapping[int, float]:
        """Each client's mean loss over its training data, of the model that it would start from, in evaluation mode.

        Args:
            clients: who evaluates; each of them downloads the model.
            batches: how many batches each takes; None takes all its data.
        """
        return self._losses(clients, batches)


@dataclass(frozen=True)
class Selection(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """Which clients take part in a round. This base takes those that are drawn at random."""

    home = "selection"

    @property
    def candidates(self) -> int:
        """How many clients download the model before the cohort is chosen from them; 0 if none does."""
        return 0

    def select(self, candidates: Candidates) -> Sequence[int]:
        """The clients of the round; it may depend on nothing but what it is given."""
        return candidates.sample()


def check_cohort(block: Selection[Any, Any, Any, Any, Any], cohort: int | None) -> None:
    """Refuse a cohort that a selection cannot choose from its candidates.

    Args:
        block: the selection.
        cohort: how many clients take part; None is a random number, or all clients.
    """
    name, candidates = type(block).__name__, block.candidates
    if candidates and cohort is None:
        raise ValueError(f"{name} needs a cohort of fixed size: give cohort= instead of probability=")
    if cohort is not None and 0 < candidates < cohort:
        raise ValueError(f"{name}: candidates must be at least the cohort of {cohort} clients, got {candidates}")


def select_cohort(block: Selection[Any, Any, Any, Any, Any], candidates: Candidates) -> list[int]:
    """The clients that a selection takes, sorted and checked: each is one of the population and taken once.

    Args:
        block: the selection.
        candidates: what it may read.
    """
    population, out = candidates.participation.task.population, list[int]()
    for client in block.select(candidates):
        if isinstance(client, bool) or not isinstance(client, SupportsIndex) or not 0 <= index(client) < population:
            raise ValueError(
                f"selection={type(block).__name__}: select must return whole numbers between 0 and {population - 1}, "
                f"the clients' numbers, got {client!r}"
            )
        out.append(index(client))
    if len(set(out)) < len(out):
        twice = next(client for client in out if out.count(client) > 1)
        raise ValueError(f"selection={type(block).__name__}: select must return each client once, got {twice} twice")
    return sorted(out)
