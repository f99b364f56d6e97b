"""From which server's state each client's state comes, so that two branches of a simulation do not mix theirs.

A store knows a client's states by their rounds alone. If a simulation is continued from an earlier state in another
way, with other clients or another model, it writes other states of the same rounds.
"""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from undrift.core.records.types import ServerState

_KEPT = 8  # rounds of a client that are remembered


class _Branch(NamedTuple):
    """How a state came about: a number that equal histories share, and that of each client's last accepted visit."""

    token: int
    visits: dict[int, int]


class Lineage:
    """The histories of the states that a simulation made; of states from elsewhere nothing is known."""

    def __init__(self) -> None:
        self._branches: WeakKeyDictionary[ServerState, _Branch] = WeakKeyDictionary()
        self._written: dict[int, dict[int, int]] = {}
        self._others = 0

    def begin(self, state: ServerState) -> ServerState:
        """The state itself, noted as one before round 0: all of these are alike.

        Args:
            state: the first state of a run.
        """
        self._branches[state] = _Branch(0, {})
        return state

    def check(self, state: ServerState, clients: Sequence[int]) -> None:
        """Raise if the state of a client was replaced by one of another branch.

        Args:
            state: what is continued.
            clients: whose states are needed.
        """
        branch = self._branches.get(state)
        for client in clients if branch is not None else ():
            round, own = state.accepted.get(client), branch.visits.get(client) if branch is not None else None
            found = None if round is None else self._written.get(client, {}).get(round)
            if own is not None and found is not None and own != found and round is not None:
                raise ValueError(
                    f"state: the state of client {client} after round {round + 1} was replaced when this simulation "
                    "was continued from another state; give each branch a Simulation of its own, or run this one again "
                    "from start()"
                )

    def note(self, before: ServerState, after: ServerState, clients: Sequence[int], accepted: Sequence[int]) -> None:
        """Remember a round.

        Args:
            before: the state that was sent.
            after: the state after it.
            clients: who was trained.
            accepted: whose uploads were accepted.
        """
        branch = self._branches.get(before)
        if branch is None:
            self._others += 1
            branch = self._branches[before] = _Branch(hash(("other", self._others)), {})
        visits = dict(branch.visits)
        if after.accepted:
            visits |= dict.fromkeys(accepted, branch.token)
            for client in clients:
                held = self._written.setdefault(client, {})
                held.pop(before.round, None)
                held[before.round] = branch.token
                while len(held) > _KEPT:
                    del held[next(iter(held))]
        self._branches[after] = _Branch(hash((branch.token, tuple(accepted))), visits)
