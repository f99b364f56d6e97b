"""What all server states of a model and a method have in common: a state from elsewhere is checked against it."""

from typing import NamedTuple

from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Bound
from undrift.core.records.types import ServerState


class StateForm(NamedTuple):
    """What all server states of a model and a method have in common.

    Args:
        sizes: the lengths of the model's vectors, by their names.
        parts: for each slot that keeps something on the server, the class of what it keeps.
    """

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
        return cls(sizes, parts)

    def check(self, state: object) -> ServerState:
        """The state itself; raises if it is something else, or belongs to another model or method.

        Args:
            state: the state to continue from.
        """
        if not isinstance(state, ServerState):
            pair = isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], ServerState)
            advice = "; rounds() yields pairs of a state and a record: give the state" if pair else ""
            found = type(state).__name__
            raise TypeError(f"state must be a ServerState, as run and round return it, got {found}{advice}")
        for name, size in self.sizes.items():
            count = getattr(state, name).numel()
            if count != size:
                raise ValueError(
                    f"state: its {name} have {count:,} elements and those of the task's model {size:,}; give the state "
                    "of a run of the same model, or None to start anew"
                )
        kept = {slot: type(tree) for slot, tree in state.parts.items()}
        if kept != self.parts:
            raise ValueError(
                f"state: it is of another method: it keeps {_list_parts(kept)}, this method {_list_parts(self.parts)}; "
                "give the state of a run of the same method, or its params in a state of start()"
            )
        return state


def _list_parts(parts: dict[str, type]) -> str:
    """The kept parts of slots, as text."""
    return ", ".join(f"{kind.__name__} of {slot}" for slot, kind in sorted(parts.items())) or "nothing"
