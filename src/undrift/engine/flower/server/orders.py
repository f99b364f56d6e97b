"""The messages of a round, one per node: the same for a strategy on real nodes and for a simulation."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import Broadcast, Local
from undrift.core.server import wire
from undrift.engine.flower.holdings import Holdings
from undrift.engine.flower.records import LOSSES, Order, encode
from undrift.engine.flower.server.receive import SKEW
from undrift.engine.flower.server.tally import Tally
from undrift.engine.flower.versions import NEWEST
from undrift.engine.worker.job import NOW, Timing


@dataclass(frozen=True)
class Orders:
    """Writes the messages of a run's rounds.

    Args:
        run: the name under which nodes store their clients' states.
        algorithm: the method.
        local: the settings all clients share.
        seed: fixes everything random.
        bound: largest norm of a client's displacement; None allows any that can be summed exactly.
        examples: the most examples that single clients may claim.
        share: the most of a round's weight that one node may have.
        known: displacements that were accepted in earlier rounds, by digest, with the round from 1.
        head: the hash of the last event in the run's audit log; None if there is no log.
        versions: the version of the messages to each node; the newest to others.
        holdings: the models that nodes hold, which are sent and answered without what does not travel; None sends and
            takes whole vectors.
    """

    run: str
    algorithm: Algorithm
    local: Local
    seed: int
    bound: float | None
    examples: Mapping[int, int] = field(default_factory=dict)
    share: float = 1.0
    known: Mapping[str, int] = field(default_factory=dict)
    head: str | None = None
    versions: Mapping[int, int] = field(default_factory=dict)
    holdings: Holdings | None = None

    def write(
        self,
        broadcast: Broadcast,
        groups: Mapping[int, list[int]],
        accepted: Mapping[int, int],
        seconds: float,
        config: ConfigRecord | None = None,
        lost: Collection[int] = (),
        timing: Timing = NOW,
        cohort: int | None = None,
    ) -> Tally:
        """A message for every node, in a tally that collects the replies.

        Args:
            broadcast: what the server sends.
            groups: the clients of the round, by node.
            accepted: for each client with state, the last round in which its upload was accepted.
            seconds: how long to wait for replies.
            config: sent to the nodes, for custom train functions.
            lost: the clients of the round without a node.
            timing: when their uploads arrive, under a schedule without a barrier.
            cohort: how many uploads the server adds up in all; None is those of these clients.
        """
        clients = frozenset(lost).union(*groups.values())
        limits = (self.examples, self.share, self.known, timing, cohort or len(clients))
        if self.holdings is not None:
            self.holdings.open(broadcast)
        tally = Tally(self.algorithm, self.local, self.bound, broadcast, clients, self.seed, *limits, self.holdings)
        self.add(tally, groups, accepted, seconds, config)
        return tally

    def add(
        self,
        tally: Tally,
        groups: Mapping[int, list[int]],
        accepted: Mapping[int, int],
        seconds: float,
        config: ConfigRecord | None = None,
    ) -> list[Message]:
        """Further messages of a round, for clients that are ordered again or have a node only now.

        Args:
            tally: that of the round.
            groups: the clients, by node.
            accepted: for each client with state, the last round in which its upload was accepted.
            seconds: how long to wait for replies.
            config: sent to the nodes, for custom train functions.
        """
        given = (tally.cohort, seconds, config, tally.timing)
        messages = self._messages(MessageType.TRAIN, tally.broadcast, groups, accepted, *given)
        for message, clients in zip(messages, groups.values(), strict=True):
            tally.expect(message, clients)
        return messages

    def ask(
        self,
        broadcast: Broadcast,
        groups: Mapping[int, list[int]],
        accepted: Mapping[int, int],
        batches: int | None,
        seconds: float,
    ) -> list[Message]:
        """A message for every node that requests the losses of clients before a round.

        Args:
            broadcast: what the server sends.
            groups: the clients, by node.
            accepted: for each client with state, the last round in which its upload was accepted.
            batches: how many batches each client takes; None takes all.
            seconds: how long to wait for replies.
        """
        kind = f"{MessageType.QUERY}.{LOSSES}"
        return self._messages(kind, broadcast, groups, accepted, batches or 0, seconds)

    def _messages(
        self,
        kind: str,
        broadcast: Broadcast,
        groups: Mapping[int, list[int]],
        accepted: Mapping[int, int],
        count: int,
        seconds: float,
        config: ConfigRecord | None = None,
        timing: Timing = NOW,
    ) -> list[Message]:
        """A message for every node."""
        method, messages, round = repr(self.algorithm), [], broadcast.round
        common, holdings = (self.local, self.bound, self.head, timing), self.holdings
        short = holdings is not None and holdings.part(round, up=True) is not None
        forms: dict[tuple[int, ...] | None, ArrayRecord] = {}  # by what has changed for a node
        for node, clients in groups.items():
            known = {client: accepted[client] for client in clients if client in accepted}
            changed = None if holdings is None else holdings.changed(node, round)
            form = None if changed is None else tuple(changed.tensors)
            if form not in forms:
                cut = None if holdings is None or changed is None else holdings.tensors(broadcast, changed)
                forms[form] = encode(wire.flatten(broadcast) if cut is None else cut)
            lacking = () if changed is None else changed
            given = (*common, self.versions.get(node, NEWEST), short, *lacking)
            order = Order(self.run, round, self.seed, method, count, clients, known, *given)
            content = RecordDict({"arrays": forms[form], "undrift": order.record()})
            if config is not None:
                content["config"] = config
            messages.append(Message(content, node, kind, ttl=seconds + SKEW, group_id=str(broadcast.round)))
        return messages
