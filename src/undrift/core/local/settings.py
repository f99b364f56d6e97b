"""The settings of local training, their defaults, and named presets of them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from undrift.core.local.amounts import Amount, amount, check_population, normalize_amount
from undrift.core.local.presets import PAPERS, preset
from undrift.core.local.schedule import Schedule
from undrift.core.model.precision import Precision
from undrift.util.naming.binding import check_fields

AMOUNTS = {"epochs": 10_000, "steps": 1_000_000, "speed": 1e9, "rank": 1_000_000}
"""The settings that may differ between clients and rounds, and the largest number of each."""

Positive = Annotated[float, Field(gt=0, le=1e6, strict=True)]
WorkAmount = Annotated[Amount, SkipValidation]  # checked when a `Local` is made, not by pydantic


@dataclass(frozen=True)
class Local:
    """How every client trains, whatever the algorithm: the table `local` of run files has these fields and rules.

    Args:
        lr: learning rate of round 0.
        decay: factor on the learning rate per round; 1 keeps it constant.
        weight_decay: L2 coefficient, added to the gradient last, at the unperturbed point, or to the direction of a
            local optimizer whose decay is decoupled; 0 switches it off.
        clip: largest norm of the data gradient; None switches clipping off.
        epochs: passes over a client's data in a round, also fractions of one; an amount, which may differ between
            clients and rounds: see `undrift.core.local.amounts`.
        batch_size: examples per step.
        buffers: "average" shares running statistics, "keep" leaves them with each client.
        schedule: factor on the learning rate over rounds, as text: see `undrift.core.local.schedule`; None has none.
        step_schedule: the same over the steps of a client's visit, where one without `over` takes all of them.
        steps: local steps of a client in a round, whatever its number of examples; an amount that replaces `epochs`.
            The data are passed over as often as needed, in a new order each time.
        drop_last: leave out the last batch of a pass if it is short, unless it is the client's only one.
        deadline: simulated seconds after which a client's local work is cut off; it needs `speed`. None has no
            deadline.
        speed: a client's local steps per simulated second; an amount.
        precision: what the passes through the model compute in: "fp32", or "bf16" or "fp16" by autocast; the model, its
            gradient and all sums are float32 in each case.
        together: how many clients of a worker are trained in one vectorised call; 1 trains them one after the other.
            Results differ by rounding.
        example_clip: largest norm of the gradient of one example, of which a step takes the mean; None takes the
            gradient of the batch. With noise, this protects single examples: see `undrift.privacy`.
        example_noise: the standard deviation of the noise on the sum of these gradients, in units of that norm.
        rank: the rank of a client's adapters, for methods that have several, such as hetlora; an amount. None is the
            model's.
    """

    lr: Positive = 0.1
    decay: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    weight_decay: Annotated[float, Field(ge=0, le=10, strict=True)] = 0.0
    clip: Positive | None = None
    epochs: WorkAmount = 1
    batch_size: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] = 50
    buffers: Literal["average", "keep"] = "average"
    schedule: str | None = None
    step_schedule: str | None = None
    steps: WorkAmount | None = None
    drop_last: bool = False
    deadline: Positive | None = None
    speed: WorkAmount | None = None
    precision: Precision = "fp32"
    together: Annotated[int, Field(ge=1, le=4096, strict=True)] = 1
    example_clip: Positive | None = None
    example_noise: Annotated[float, Field(ge=0, le=1e6, strict=True)] = 0.0
    rank: WorkAmount | None = None

    @check_fields
    def __post_init__(self) -> None:
        for name, most in AMOUNTS.items():
            if (value := getattr(self, name)) is not None or name == "epochs":
                found = normalize_amount(f"Local: {name}", value, whole=name in ("steps", "rank"), most=float(most))
                object.__setattr__(self, name, found)
        if (self.deadline is None) != (self.speed is None):
            raise ValueError(
                "Local: a deadline in simulated seconds needs every client's speed in steps per second, and a speed a "
                f"deadline: give both or neither, got deadline={self.deadline} and speed={self.speed}"
            )
        for name in ("schedule", "step_schedule"):
            if (text := getattr(self, name)) is not None:
                try:
                    object.__setattr__(self, name, str(Schedule.parse(text)))
                except ValueError as error:
                    raise ValueError(f"Local: {name}: {str(error).removeprefix('schedule: ')}") from None
        if self.example_noise and self.example_clip is None:
            raise ValueError(
                f"Local: example_noise = {self.example_noise} needs example_clip, the norm it is a multiple of"
            )
        if self.schedule is not None and self.decay != 1:
            raise ValueError(f"Local: give decay or schedule, not both: set decay to 1, got {self.decay}")
        if self.schedule is not None and Schedule.parse(self.schedule).open:
            raise ValueError(f"Local: {self.schedule!r} needs the number of rounds: cosine(over=100)")

    def __repr__(self) -> str:
        """The learning rate and what differs from the defaults."""
        shown = [f for f in fields(self) if f.name == "lr" or getattr(self, f.name) != f.default]
        return f"Local({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"

    @classmethod
    def preset(cls, name: str, **settings: Any) -> "Local":
        """The local settings of a named preset, with those given here put over them.

        Args:
            name: a key of `PRESETS`, the name of a paper.
            settings: fields that differ from the preset's.

        Example:
            >>> Local.preset("papers", lr=0.05).weight_decay
            0.001
        """
        return replace(cls(**preset(name).local), **settings)

    def rate(self, round: int) -> float:
        """The learning rate of a round, before the factors of `step_schedule`; raises if it is 0 or infinite.

        Many methods divide a client's displacement by the rate: control variates, momenta, normalised steps.
        """
        rate = self.lr * (self.decay**round if self.schedule is None else Schedule.parse(self.schedule).factor(round))
        if not 0 < rate < inf:
            raise ValueError(
                f"Local: the learning rate of round {round + 1} is {rate:g}, schedule={self.schedule!r}, "
                f"decay={self.decay}; a small rate such as 1e-6 of the first keeps every method defined"
            )
        return rate

    def check_rates(self, first: int, rounds: int) -> None:
        """Raise if a round of a run has no learning rate, before it is trained.

        Args:
            first: the first round, from 0.
            rounds: how many there are.
        """
        constant = self.schedule is None and self.decay == 1
        for round in range(first, first + (1 if constant else rounds)):
            self.rate(round)

    def factor(self, step: int, steps: int) -> float:
        """The factor on the round's learning rate at one of a visit's steps."""
        if self.step_schedule is None:
            return 1.0
        return _ending(self.step_schedule, steps).factor(step)

    def factors(self, steps: int, power: int = 1) -> float:
        """The sum of these factors, or of their powers, over a visit; as many as the steps without a schedule."""
        if self.step_schedule is None:
            return float(steps)
        return _factors(self.step_schedule, steps, power)

    def share(self, steps: int) -> float:
        """The mean share of a step in a visit's path, sum f^2 / (sum f)^2 of its factors f; 1 / steps if all are 1."""
        return self.factors(steps, 2) / self.factors(steps) ** 2

    def epoch_steps(self, examples: int) -> int:
        """The number of batches in one pass over so many examples."""
        return max(1, examples // self.batch_size) if self.drop_last else -(-examples // self.batch_size)

    def batch_sizes(self, examples: int, steps: int) -> list[int]:
        """The number of examples in the batch of every step."""
        each = self.epoch_steps(examples)
        return [min(self.batch_size, examples - step % each * self.batch_size) for step in range(steps)]

    def step_count(self, examples: int, client: int, round: int, seed: int) -> int:
        """The number of local steps of a client in a round; 0 if it has no work, or too little time for one step.

        A fraction of an epoch is rounded to whole steps, one at least. Steps that all have the rate 0 are no work.

        Args:
            examples: how many training examples the client has.
            client: its number.
            round: the round.
            seed: the run's seed.

        Example:
            >>> Local(epochs=1.5, batch_size=10).step_count(35, client=0, round=0, seed=0)
            6
        """
        if not examples:
            return 0
        if self.steps is not None:
            steps = int(amount("steps", self.steps, seed, client, round, whole=True))
        else:
            epochs = amount("epochs", self.epochs, seed, client, round)
            steps = max(int(epochs * self.epoch_steps(examples) + 0.5), int(epochs > 0))
        if self.deadline is not None and self.speed is not None:
            reached = self.deadline * amount("speed", self.speed, seed, client, round)
            steps = min(steps, int(reached + 1e-9))
        return steps if any(self.factor(step, steps) for step in range(steps)) else 0

    def attributes(self, client: int, round: int, seed: int) -> Mapping[str, float]:
        """What is public of a client in a round, as far as these settings have it: "rank" and "speed".

        Args:
            client: its number.
            round: the round.
            seed: the run's seed.

        Example:
            >>> dict(Local(rank=(8, 4)).attributes(client=1, round=0, seed=0))
            {'rank': 4}
        """
        given = {name: getattr(self, name) for name in ("rank", "speed")}
        known = {name: amount(name, x, seed, client, round) for name, x in given.items() if x is not None}
        return MappingProxyType(known)

    def whole(self, epochs: int) -> "Local":
        """The same settings with so many whole epochs for every client and no deadline."""
        return replace(self, epochs=epochs, steps=None, deadline=None, speed=None, together=1)

    def check_population(self, population: int) -> None:
        """Raise if a list does not have one number per client."""
        for name in AMOUNTS:
            check_population(f"Local: {name}", getattr(self, name), population)


@lru_cache(maxsize=64)
def _ending(text: str, steps: int) -> Schedule:
    """The schedule of a visit of so many steps."""
    return Schedule.parse(text).ending(steps)


@lru_cache(maxsize=1024)
def _factors(text: str, steps: int, power: int) -> float:
    """The sum of a visit's factors to a power."""
    schedule = _ending(text, steps)
    return sum(schedule.factor(step) ** power for step in range(steps))


PRESETS: Mapping[str, Local] = {name: Local.preset(name) for name in PAPERS}
"""Name -> settings. "papers" is the common protocol of the papers: a slow decay, weight decay and clipped gradients."""
