"""The settings of local training, their defaults, and named presets of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from undrift.core.presets import PAPERS, preset


@dataclass(frozen=True)
class Local:
    """How every client trains, whatever the algorithm.

    Args:
        lr: learning rate of round 0.
        decay: factor on the learning rate per round; 1 keeps it constant.
        weight_decay: coupled L2 coefficient, added last at the unperturbed point; 0 switches it off.
        clip: largest norm of the data gradient; None switches clipping off.
        epochs: passes over a client's data in a round.
        batch_size: examples per step; the last short batch is kept.
        buffers: "average" shares running statistics, "keep" leaves them with each client.
    """

    lr: float = 0.1
    decay: float = 1.0
    weight_decay: float = 0.0
    clip: float | None = None
    epochs: int = 1
    batch_size: int = 50
    buffers: Literal["average", "keep"] = "average"

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
        """The learning rate of a round."""
        return self.lr * self.decay**round

    def steps(self, examples: int) -> int:
        """The number of local steps of a client with so many examples."""
        return self.epochs * -(-examples // self.batch_size)


PRESETS: Mapping[str, Local] = {name: Local.preset(name) for name in PAPERS}
"""Name -> settings. "papers" is the common protocol of the papers: a slow decay, weight decay and clipped gradients."""
