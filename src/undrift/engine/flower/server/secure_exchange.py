"""A secure sum over the nodes of a round: every node that hosts clients of it is a party."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from undrift.core.records.rejection import Reason, Rejection
from undrift.core.server.gate import Gate
from undrift.core.server.wire import WireError
from undrift.engine.flower.records import Answer, one_line, read_scalar
from undrift.engine.flower.secure_records import (
    SECURE,
    pack_keys,
    read_step,
    read_texts,
    step_content,
    unpack_keys,
    write_terms,
    write_texts,
)
from undrift.engine.flower.server.mailbox import Mailbox, Reply
from undrift.engine.flower.server.receive import SKEW, receive
from undrift.engine.flower.server.tally import Tally
from undrift.engine.worker.secure_partial import from_vector, vector_sizes
from undrift.secure.collector import Collector
from undrift.secure.members import Terms
from undrift.secure.residues import WIDTH, Residues
from undrift.secure.settings import Secure, SecureError

_log = logging.getLogger("flwr")  # Flower shows what is logged here
_SHORT = 8  # a step without training has this part of the deadline
_SPARE = 1 << 12  # bytes of a reply besides its texts or numbers, and per client or party


@dataclass(eq=False)
class SecureExchange:
    """The exchange of messages with the nodes in one round, in the steps of a secure sum.

    A node that does not reply in a step, or wrongly, has dropped out. If too few are left, nothing is unmasked.

    Args:
        mailbox: that of the grid.
        tally: has the orders to train, and gets the outcome of every client.
        secure: the settings.
        run: the name of the run.
        seconds: how long the round may take; of this each of the four steps without training has an eighth at most.
        poll: longest pause between two polls.
    """

    mailbox: Mailbox
    tally: Tally
    secure: Secure
    run: str
    seconds: float
    poll: float
    _clients: dict[int, list[int]] = field(default_factory=dict)  # party -> the clients in its masked upload

    def __post_init__(self) -> None:
        # A party has the number of its node's first client.
        self._orders = {min(self.tally.clients_of(order)): order for order in self.tally.messages}
        self._terms = Terms(self.secure, f"{self.run}, round {self.tally.broadcast.round}")
        self._size = sum(vector_sizes(self.tally.total, self.tally.broadcast).values())
        self._server = Collector(self._terms, self._size)
        self._end = monotonic() + self.seconds

    def collect(self) -> None:
        """Sum the uploads of the round, and record the outcome of every client."""
        tally = self.tally
        try:
            vector = self._add()
        except SecureError as error:
            _log.warning("round %d: nothing is unmasked: %s", tally.broadcast.round + 1, error)
            left = [client for client in tally.open_clients() if client not in tally.absent]
            tally.settle([], [Rejection(client, Reason.MASKED, one_line(error)) for client in left])
            return
        clients = [client for party in self._server.survivors for client in self._clients[party]]
        part = from_vector(vector, clients, tally.empty(), tally.broadcast)
        gate = Gate(tally.algorithm, tally.local, tally.broadcast, tally.clients, tally.bound, seed=tally.seed)
        refused = gate.merge(part.total, tally.total)
        if refused is not None:
            tally.settle([], [Rejection(client, refused.reason, refused.detail) for client in clients])
        else:
            tally.settle(part.visits, [])
            tally.summed = part.summed

    def _add(self) -> Residues:
        """The unmasked sum, after all steps of the protocol."""
        server = self._server
        terms = {party: write_terms(self._terms, party) for party in self._orders}
        self._step(
            "keys",
            terms,
            lambda party, record: server.take_keys(unpack_keys(party, read_scalar(record, "text", bytes))),
        )
        keys = write_texts({keys.party: pack_keys(keys) for keys in server.members.keys})
        self._step(
            "shares",
            dict.fromkeys(server.keys, keys),
            lambda party, record: server.take_shares(party, read_texts(record)),
        )
        self._train()
        survivors = write_texts(dict.fromkeys(server.survivors, b""))
        self._step(
            "signatures",
            dict.fromkeys(server.survivors, survivors),
            lambda party, record: server.take_signature(party, read_scalar(record, "text", bytes)),
        )
        self._step(
            "revealed",
            {party: write_texts(server.signatures_for(party)) for party in server.signatures},
            lambda party, record: server.take_revealed(party, read_texts(record)),
        )
        return server.total()

    def _step(
        self,
        step: str,
        fields: Mapping[int, Mapping[str, object]],
        take: Callable[[int, ConfigRecord], None],
    ) -> None:
        """Send the messages of a step to parties, and take the replies."""
        seconds, kind = min(self._left, self.seconds / _SHORT), f"{MessageType.QUERY}.{SECURE}"
        asked = {party: self._message(party, kind, step_content(step, **own), seconds) for party, own in fields.items()}
        self._receive(asked, seconds, _SPARE * (1 + len(self._orders)), lambda p, r: take(p, read_step(r, step)[1]))

    def _train(self) -> None:
        """Send the orders to train with the sealed shares, and add the masked uploads."""
        orders = {party: self._orders[party] for party in self._server.sealed}
        for party, order in orders.items():
            order.content[SECURE] = ConfigRecord(write_texts(self._server.shares_for(party)))
        seconds = self._left - 2 * self.seconds / _SHORT
        self._receive(orders, seconds, WIDTH * self._size + _SPARE * (1 + len(self.tally.clients)), self._take_masked)

    def _take_masked(self, party: int, content: RecordDict) -> None:
        """Add a node's masked upload; a node without one has dropped out."""
        tally, ordered = self.tally, self.tally.clients_of(self._orders[party])
        answer = Answer.read(content, WIDTH * self._size, _SPARE * (1 + len(ordered)))
        if answer.round != tally.broadcast.round:
            raise WireError(f"a reply of round {answer.round}")
        facts = json.loads(answer.summary)
        clients, rejected = list(facts["clients"]), {int(client): str(name) for client, name in facts["rejections"]}
        if (
            len(set(clients)) < len(clients)
            or not {*clients, *rejected} <= {*ordered}
            or rejected.keys() & set(clients)
        ):
            raise WireError("the clients are not those of the order, once each")
        if clients:
            masked = answer.tensors.get("masked")
            data = b"" if masked is None else masked.numpy().tobytes()
            self._server.take_masked(party, Residues.from_bytes(data, self._size))
            self._clients[party] = clients
        tally.settle([], [Rejection(client, Reason[name]) for client, name in rejected.items()])
        tally.mark_absent(set(ordered) - set(clients), "left out of its node's reply")

    def _receive(
        self, messages: Mapping[int, Message], seconds: float, most: int, take: Callable[[int, RecordDict], None]
    ) -> None:
        """Send messages to parties, and take the replies; a party without a sound reply has dropped out."""
        parties = {id(message): party for party, message in messages.items()}
        for reply in receive(self.mailbox, messages.values(), max(0.0, seconds), poll=self.poll, most=lambda _: most):
            party = parties[id(reply.sent)]
            try:
                take(party, _content(reply))
            except Exception as error:  # a hostile reply may fail in any way
                clients, node = self.tally.clients_of(self._orders[party]), reply.sent.metadata.dst_node_id
                _log.warning("node %d dropped out of the secure sum: %s", node, one_line(error))
                if party not in self._clients:
                    self.tally.mark_absent(clients, f"node {node}: {one_line(error)}")

    def _message(self, party: int, kind: str, content: RecordDict, seconds: float) -> Message:
        """A message to a party's node."""
        node, round = self._orders[party].metadata.dst_node_id, str(self.tally.broadcast.round)
        return Message(content, node, kind, ttl=seconds + SKEW, group_id=round)

    @property
    def _left(self) -> float:
        """The seconds until the round is closed."""
        return max(0.0, self._end - monotonic())


def _content(reply: Reply) -> RecordDict:
    """The records of a reply; raises if there is none."""
    if reply.message is None:
        raise WireError(reply.why)
    return reply.message.content
