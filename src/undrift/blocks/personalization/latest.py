"""A client's own model is the one it last trained."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.core import End, Layout, Personalization, Vector


class Trained(NamedTuple):
    """The model a client last trained; the global one before its first round."""

    w: Vector


@dataclass(frozen=True)
class Latest(Personalization[None, Trained]):
    """client:  w_i <- w at the end of its round, running statistics included; it is evaluated with w_i

    Training is that of the global model: w_i starts nothing and leaves nowhere.
    """

    personalizes = True
    keeps_buffers = True

    def init_client(self, w: Vector) -> Trained:
        """The model received."""
        return Trained(w)

    def finish(self, state: Trained, end: End) -> tuple[None, Trained]:
        """Keep the model."""
        return None, Trained(end.w.clone())

    def personal(self, params: Vector, kept: Trained, layout: Layout) -> Vector:
        """The model kept."""
        return kept.w
