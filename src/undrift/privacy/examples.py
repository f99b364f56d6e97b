"""What clients' noisy gradients guarantee for one example: see `Local.example_clip`."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

from torch import nn

from undrift.blocks.aggregation import Uniform
from undrift.core.local.settings import Local
from undrift.core.method.aggregation import Robust
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Objective
from undrift.core.method.defaults import ByExamples
from undrift.core.tasks.task import Task
from undrift.privacy.accounting import gaussian_epsilon
from undrift.privacy.statement import Statement

_COVERS = (
    "all that follows from the clients' uploaded displacements, against those who see it; not a client's own data and "
    "personal model, nor losses and other numbers in the rows of the run"
)


def check_examples(algorithm: Algorithm, local: Local, module: nn.Module) -> None:
    """Refuse methods, settings and models with which the gradient of one example is not all that leaves of it.

    Args:
        algorithm: the method.
        local: the settings all clients share; without `example_clip` everything is accepted.
        module: the task's model.
    """
    if local.example_clip is not None and (why := _why_not(algorithm, local, module)):
        raise ValueError(f"example_clip = {local.example_clip:g}: {why}")


class ExampleReleases:
    """In how many noisy sums of gradients an example of each client was, at most.

    It is in one batch of every pass that a visit begins, and a method may take several gradients of a batch. A client
    counts in every round for which it was drawn, whatever became of its upload. All follows from the seed and the
    number of rounds, so that it is the same after a kill and a resume.

    Args:
        algorithm: the method.
        task: gives the number of examples of each client.
        local: the settings all clients share.
        seed: of the run.
        drawn: gives the clients of a round.
    """

    def __init__(
        self, algorithm: Algorithm, task: Task, local: Local, seed: int, drawn: Callable[[int], Sequence[int]]
    ) -> None:
        self.task, self.local, self.seed, self.drawn = task, local, seed, drawn
        self._each = 1 + sum(block.gradients for _, block in algorithm.slots())
        self._round, self._counts = 0, Counter[int]()

    @cached_property
    def largest(self) -> int:
        """The largest number of examples of a client."""
        return max(int(self.task.examples(client)) for client in range(self.task.population))

    def after(self, rounds: int) -> dict[int, int]:
        """The numbers by client after some rounds; those of earlier rounds are kept for the next call.

        Args:
            rounds: how many rounds were trained.
        """
        if rounds < self._round:
            self._round, self._counts = 0, Counter()
        for round in range(self._round, rounds):
            for client in self.drawn(round):
                if examples := int(self.task.examples(client)):
                    steps = self.local.step_count(examples, client, round, self.seed)
                    self._counts[client] += self._each * -(-steps // self.local.epoch_steps(examples))
        self._round = rounds
        return dict(self._counts)


def example_epsilons(noise: float, releases: dict[int, int], delta: float) -> dict[int, float]:
    """The privacy loss of an example of each client; exact, without amplification by the choice of batches.

    Batches are shuffled passes, which are no Poisson sampling: that an example's place in a pass is random does not
    count.

    Args:
        noise: `Local.example_noise`.
        releases: as `ExampleReleases.after` gives it.
        delta: the delta.

    Example:
        >>> {client: round(epsilon, 4) for client, epsilon in example_epsilons(10.0, {0: 100, 3: 25}, 1e-5).items()}
        {0: 4.3772, 3: 1.9931}
    """
    known = {count: gaussian_epsilon(noise, delta, count) for count in set(releases.values())}
    return {client: known[count] for client, count in releases.items()}


def example_statement(releases: ExampleReleases, rounds: int, delta: float | None = None) -> Statement | None:
    """What a run guarantees for an example after some rounds, of the client with most; None if it guarantees nothing.

    Args:
        releases: counts the noisy sums that an example is in.
        rounds: how many rounds were trained.
        delta: the delta; None is the largest number of examples of a client^-1.1.
    """
    local, largest = releases.local, releases.largest
    if local.example_clip is None or not local.example_noise:
        return None
    chosen = largest**-1.1 if delta is None else delta
    if not 0 < chosen < 1 or (largest > 1 and chosen >= 1 / largest):
        raise ValueError(f"delta must be above 0 and below 1 / {largest} examples of a client, got {chosen}")
    most = max(releases.after(rounds).values(), default=0)
    return Statement(
        unit="example of a client",
        relation="one example's gradients set to zero",
        sampling=f"none: shuffled passes, an example is in {most} gradients at most",
        clip=local.example_clip,
        noise=local.example_noise,
        rounds=rounds,
        delta=chosen,
        epsilon=gaussian_epsilon(local.example_noise, chosen, most),
        accountant="exact Gaussian, the maximum over clients (undrift)",
        covers=_COVERS,
    )


def _why_not(algorithm: Algorithm, local: Local, module: nn.Module) -> str:
    """Why an example's gradient is not all that leaves of it; "" if it is."""
    mixing = next((name for name, x in module.named_modules() if isinstance(x, nn.modules.batchnorm._BatchNorm)), None)
    if mixing is not None:
        return f"batch normalisation ({mixing}) couples the examples of a batch; use a model with GroupNorm"
    if type(algorithm.objective).penalty is not Objective.penalty:
        return f"objective={algorithm.objective!r} has a penalty over the batch, which has no noise; leave it out"
    if algorithm.needs.labels:
        return "the method reads the clients' labels, which has no noise; choose another one"
    if not (type(algorithm.aggregation) in (ByExamples, Uniform) or isinstance(algorithm.aggregation, Robust)):
        return f"aggregation={algorithm.aggregation!r} may read losses, which have no noise; use uniform"
    if algorithm.fills("selection") or algorithm.fills("schedule"):
        return "selections by losses and schedules with a clock are not accounted; leave them out"
    if algorithm.release.private:
        return f"release={algorithm.release!r} protects whole clients already; leave one of both out"
    if local.together > 1 or local.precision != "fp32":
        return 'gradients of single examples need together = 1 and precision = "fp32"'
    return ""
