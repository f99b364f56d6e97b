"""The messages of a round, one per node: the same for a strategy on real nodes and for a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass

from undrift.core import wire
from undrift.core.algorithm import Algorithm
from undrift.core.types import Broadcast, Local
from undrift.engine.flower.receive import SKEW
from undrift.engine.flower.records import Order, encode
from undrift.engine.flower.tally import Tally

try:
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error


@dataclass(frozen=True)
class Orders:
    """Writes the messages of a run's rounds.

    Args:
        run: the name under which nodes keep their clients' states.
        algorithm: the method.
        local: the settings all clients share.
        seed: fixes everything random.
        bound: largest norm of a client's displacement; None allows any that can be summed exactly.
    """

    run: str
    algorithm: Algorithm
    local: Local
    seed: int
    bound: float | None

    def write(
        self,
        broadcast: Broadcast,
        groups: Mapping[int, list[int]],
        accepted: Mapping[int, int],
        seconds: float,
        config: ConfigRecord | None = None,
    ) -> Tally:
        """A message for every node, in a tally that takes the replies.

        Args:
            broadcast: what the server sends.
            groups: the clients of the round, by node.
            accepted: for each client with state, the last round in which its upload was accepted.
            seconds: how long replies are waited for.
            config: passed on to the nodes, for train functions of one's own.
        """
        arrays, method = encode(wire.flatten(broadcast)), repr(self.algorithm)
        messages, count = [], sum(map(len, groups.values()))
        for node, clients in groups.items():
            known = {client: accepted[client] for client in clients if client in accepted}
            order = Order(self.run, broadcast.round, self.seed, method, count, clients, known, self.local, self.bound)
            content = RecordDict({"arrays": arrays, "undrift": order.record()})
            if config is not None:
                content["config"] = config
            ttl, group = seconds + SKEW, str(broadcast.round)
            messages.append(Message(content, node, MessageType.TRAIN, ttl=ttl, group_id=group))
        members = dict(zip(map(id, messages), groups.values(), strict=True))
        return Tally(self.algorithm, self.local, self.bound, broadcast, messages, members)
