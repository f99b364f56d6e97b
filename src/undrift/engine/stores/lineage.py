"""The histories of a simulation's server states: which of them share the states of their clients."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from undrift.core.records.types import ServerState
from undrift.util.overlay import Overlay

_REMEMBERED = 8  # rounds of a client


class _Branch(NamedTuple):
    """The history of a server state.

    Args:
        token: a number that states with equal histories share.
        visits: client -> the token of the state from which its last accepted visit started.
    """

    token: int
    visits: Overlay[int, int]


class Lineage:
    """The histories of a simulation's server states, so that two branches of it do not mix their clients' states.

    A store finds a client's state by its round alone. A simulation that is continued from an earlier state in another
    way, with other clients or another model, replaces states of the same rounds. States from elsewhere have no known
    history and are not checked.
    """

    def __init__(self) -> None:
        self._branches: WeakKeyDictionary[ServerState, _Branch] = WeakKeyDictionary()
        self._written: dict[int, dict[int, int]] = {}
        self._others = 0

    def begin(self, state: ServerState) -> ServerState:
        """Register a state before round 0 and return it; all of these have one history.

        Args:
            state: the first state of a run.
        """
        self._branches[state] = _Branch(0, Overlay({}))
        return state

    def check(self, state: ServerState, clients: Sequence[int]) -> None:
        """Raise if the state of a client was replaced by one of another branch.

        Args:
            state: the server state to continue from.
            clients: the clients whose states are needed.
        """
        branch = self._branches.get(state)
        if branch is None:
            return
        for client in clients:
            own, round = branch.visits.get(client), state.accepted.get(client, -1)
            found = self._written.get(client, {}).get(round)
            if own is not None and found is not None and own != found:
                raise ValueError(
                    f"state: the state of client {client} after round {round + 1} was replaced when this simulation "
                    "was continued from another state; give each branch a Simulation of its own, or run this one again "
                    "from start()"
                )

    def record(
        self, before: ServerState, after: ServerState, trained: Mapping[int, int], accepted: Sequence[int]
    ) -> None:
        """Add a round.

        Args:
            before: the state that was sent.
            after: the state after the round.
            trained: the clients that were trained, with the numbers under which their states are stored.
            accepted: the clients whose uploads were accepted.
        """
        branch = self._branches.get(before)
        if branch is None:
            self._others += 1
            branch = self._branches[before] = _Branch(hash(("other", self._others)), Overlay({}))
        visits = branch.visits
        if after.accepted:
            visits = visits.updated(dict.fromkeys(accepted, branch.token))
            for client, number in trained.items():
                held = self._written.setdefault(client, {})
                held.pop(number, None)
                held[number] = branch.token
                while len(held) > _REMEMBERED:
                    del held[next(iter(held))]
        self._branches[after] = _Branch(hash((branch.token, tuple(accepted))), visits)
