"""Whether a server's state is one of this model and this method, so that a run can go on from it."""

from typing import NamedTuple

from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Bound, Layout
from undrift.core.records.types import ServerState


class StateForm(NamedTuple):
    """What every state of a run has in common.

    Args:
        layout: the names and shapes of the model's tensors.
        sizes: the lengths of the model's vectors, by their names.
        parts: for each slot that keeps something on the server, the class of what it keeps.
    """

    layout: Layout
    sizes: dict[str, int]
    parts: dict[str, type]

    @classmethod
    def of(cls, algorithm: Algorithm, model: Bound) -> "StateForm":
        """The form of a method's states.

        Args:
            algorithm: the method.
            model: the task's model.
        """
        sizes = {"params": model.w.numel(), "buffers": model.buffers.numel(), "counts": model.counts.numel()}
        parts = {slot: block.Server for slot, block in algorithm.slots() if block.Server is not None}
        return cls(model.layout, sizes, parts)

    def check(self, state: object) -> ServerState:
        """The state itself; raises if it is none, or that of another model or method.

        Args:
            state: what was given to go on from.
        """
        if not isinstance(state, ServerState):
            advice = "; rounds() yields pairs of a state and a record: give the state" if _pair(state) else ""
            raise TypeError(f"state must be a ServerState, as run and round return it, got {_kind(state)}{advice}")
        for name, size in self.sizes.items():
            found = getattr(state, name).numel()
            if found != size:
                raise ValueError(
                    f"state: its {name} have {found:,} elements and those of the task's model {size:,}; give the state "
                    "of a run of the same model, or None to start anew"
                )
        kept = {slot: type(tree) for slot, tree in state.parts.items()}
        if kept != self.parts:
            raise ValueError(
                f"state: it is of another method: it keeps {_named(kept)}, this method {_named(self.parts)}; give the "
                "state of a run of the same method, or its params in a state of start()"
            )
        return state


def _named(parts: dict[str, type]) -> str:
    """What slots keep, in words."""
    return ", ".join(f"{kind.__name__} of {slot}" for slot, kind in sorted(parts.items())) or "nothing"


def _pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], ServerState)


def _kind(value: object) -> str:
    return type(value).__name__
