"""The settings of local training, their defaults, and named presets of them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from undrift.core.presets import PAPERS, preset
from undrift.core.schedule import Schedule


@dataclass(frozen=True)
class Local:
    """How every client trains, whatever the algorithm.

    Args:
        lr: learning rate of round 0.
        decay: factor on the learning rate per round; 1 keeps it constant.
        weight_decay: L2 coefficient, added to the gradient last, at the unperturbed point, or to the direction of a
            local optimizer whose decay is decoupled; 0 switches it off.
        clip: largest norm of the data gradient; None switches clipping off.
        epochs: passes over a client's data in a round.
        batch_size: examples per step; the last short batch is kept.
        buffers: "average" shares running statistics, "keep" leaves them with each client.
        schedule: factor on the learning rate over rounds, as text: see `undrift.core.schedule`; None has none.
        step_schedule: the same over the steps of a client's visit, where a cosine without `over` takes all of them.
    """

    lr: float = 0.1
    decay: float = 1.0
    weight_decay: float = 0.0
    clip: float | None = None
    epochs: int = 1
    batch_size: int = 50
    buffers: Literal["average", "keep"] = "average"
    schedule: str | None = None
    step_schedule: str | None = None

    def __post_init__(self) -> None:
        positive = {"lr": self.lr, "decay": self.decay, "epochs": self.epochs, "batch_size": self.batch_size}
        if self.clip is not None:
            positive["clip"] = self.clip
        for name, value in positive.items():
            if not 0 < value < float("inf"):
                raise ValueError(f"Local: {name} must be positive and finite, got {value}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"Local: weight_decay must be 0 or more, got {self.weight_decay}")
        if self.buffers not in ("average", "keep"):
            raise ValueError(f'Local: buffers must be "average" or "keep", got {self.buffers!r}')
        for text in (self.schedule, self.step_schedule):
            if text is not None:
                Schedule.parse(text)
        if self.schedule is not None and self.decay != 1:
            raise ValueError(f"Local: give decay or schedule, not both: set decay to 1, got {self.decay}")
        if self.schedule is not None and Schedule.parse(self.schedule).open:
            raise ValueError(f"Local: {self.schedule!r} must say over how many rounds: cosine(over=100)")

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
        """The learning rate of a round, before the factors of `step_schedule`."""
        if self.schedule is not None:
            return self.lr * Schedule.parse(self.schedule).factor(round)
        return self.lr * self.decay**round

    def factor(self, step: int, steps: int) -> float:
        """The factor on the round's learning rate at one of a visit's steps."""
        if self.step_schedule is None:
            return 1.0
        return Schedule.parse(self.step_schedule).ending(steps).factor(step)

    def factors(self, steps: int, power: int = 1) -> float:
        """The sum of these factors, or of their powers, over a visit; as many as the steps without a schedule."""
        if self.step_schedule is None:
            return float(steps)
        return sum(self.factor(step, steps) ** power for step in range(steps))

    def share(self, steps: int) -> float:
        """The mean share of a step in a visit's path, sum f^2 / (sum f)^2 of its factors f; 1 / steps if all are 1."""
        return self.factors(steps, 2) / self.factors(steps) ** 2

    def steps(self, examples: int) -> int:
        """The number of local steps of a client with so many examples."""
        return self.epochs * -(-examples // self.batch_size)


PRESETS: Mapping[str, Local] = {name: Local.preset(name) for name in PAPERS}
"""Name -> settings. "papers" is the common protocol of the papers: a slow decay, weight decay and clipped gradients."""
