"""One node of five is a hostile party of secure sums, with another behaviour in every round: see `hostile_node`."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from undrift.engine.flower.secure_records import SECURE, pack_keys, read_texts, unpack_keys, write_texts
from undrift.secure.keys import sign
from undrift.secure.party import Party

BAD, NODES, CLIENTS = 2, 5, 12


@dataclass
class Reply:
    """The honest reply in one step, which a behaviour changes.

    Args:
        content: its records.
        party: the node's part after the step.
        kept: what the node sent in this step in the first round.
    """

    content: RecordDict
    party: Party | None
    kept: RecordDict

    @property
    def record(self) -> Any:
        """The fields of the reply."""
        return self.content["undrift"]

    def keys(self, change: Callable[[bytes, bytes], Mapping[str, bytes]], signed: bool = True) -> None:
        """Send other public keys, with a signature that fits or without one."""
        assert self.party is not None
        keys = unpack_keys(self.party.number, self.record["text"])
        keys = keys._replace(**change(keys.sealing, keys.masking))  # type: ignore[arg-type]
        signature = sign(self.party.identity, self.party.terms.signed(keys)) if signed else bytes(64)
        self.record["text"] = pack_keys(keys._replace(signature=signature))

    def texts(self, change: Callable[[dict[int, bytes]], Mapping[int, bytes]]) -> None:
        """Send other shares."""
        for name, value in write_texts(change(read_texts(self.record))).items():
            self.record[name] = value

    def masked(self, data: Callable[[bytes], bytes]) -> None:
        """Send another masked sum."""
        array = self.content["arrays"]["masked"]
        new = data(array.data)  # type: ignore[union-attr]
        self.content["arrays"] = ArrayRecord({"masked": Array("uint8", (len(new),), array.stype, new)})  # type: ignore[union-attr]

    def pose(self) -> None:
        """Say that the masked sum has clients that other nodes host."""
        facts = json.loads(self.record["summary"])
        self.record["summary"] = json.dumps({**facts, "clients": [client + 1 for client in facts["clients"]]})


def fail(reply: Reply) -> None:
    """Nothing is sent."""
    raise ConnectionError("the node is gone")


def again(reply: Reply) -> None:
    """What was sent in the first round."""
    for name in ("text", "parties", "texts"):
        if name in reply.kept["undrift"]:
            reply.record[name] = reply.kept["undrift"][name]
    if "arrays" in reply.kept:
        reply.content["arrays"] = reply.kept["arrays"]


def noise(texts: Mapping[int, bytes]) -> dict[int, bytes]:
    """Random bytes in place of all texts."""
    return {party: secrets.token_bytes(len(text)) for party, text in texts.items()}


BEHAVIOURS: dict[str, tuple[str, Callable[[Reply], None], str]] = {
    "no keys": ("keys", fail, "left out"),
    "a public key of low order": ("keys", lambda it: it.keys(lambda s, m: {"sealing": bytes(32)}), "left out"),
    "one public key twice": ("keys", lambda it: it.keys(lambda s, m: {"masking": s}), "left out"),
    "public keys without a signature": ("keys", lambda it: it.keys(lambda s, m: {}, signed=False), "left out"),
    "public keys of an earlier round": ("keys", again, "left out"),
    "no shares": ("shares", fail, "left out"),
    "a share too few": ("shares", lambda it: it.texts(lambda x: dict(list(x.items())[1:])), "left out"),
    "wrong shares": ("shares", lambda it: it.texts(noise), "abandoned"),
    "shares of an earlier round": ("shares", again, "abandoned"),
    "nothing after its shares": ("masked", fail, "left out"),
    "a masked sum too short": ("masked", lambda it: it.masked(lambda x: x[:-13]), "left out"),
    "clients of others": ("masked", Reply.pose, "left out"),
    "a wrong masked sum": ("masked", lambda it: it.masked(lambda x: secrets.token_bytes(len(x))), "abandoned"),
    "the masked sum of an earlier round": ("masked", again, "abandoned"),
    "no signature": ("signatures", fail, "accepted"),
    "a wrong signature": ("signatures", lambda it: it.record.__setitem__("text", bytes(64)), "accepted"),
    "the signature of an earlier round": ("signatures", again, "accepted"),
    "nothing is revealed": ("revealed", fail, "accepted"),
    "too much is revealed": ("revealed", lambda it: it.texts(lambda x: {**x, 999: bytes(len(x))}), "accepted"),
    "wrong shares are revealed": ("revealed", lambda it: it.texts(noise), "abandoned"),
}
"""What the node does, in the order of the rounds after the first: the step, the change, and what becomes of its upload.

Where it is accepted, it was honest up to its masked sum. Abandoned rounds leave the model as it was.
"""


class HostileParty(ClientApp):
    """An app that is honest in the first round and then shows one behaviour after another; on other nodes it is honest.

    Args:
        honest: the app whose replies are changed.
    """

    def __init__(self, honest: ClientApp) -> None:
        super().__init__()
        self.honest = honest

    def __call__(self, message: Message, context: Context) -> Message:
        """Reply in a step of a secure sum with the behaviour of its round, to everything else as the honest app."""
        kind, training = message.metadata.message_type, message.metadata.message_type == "train"
        if context.node_config["partition-id"] != BAD or not (training or kind.endswith(SECURE)):
            return self.honest(message, context)
        step = "masked" if training else str(message.content["undrift"]["step"])
        round, names = int(message.metadata.group_id), list(BEHAVIOURS)
        content = self.honest(message, context).content
        if round == 0:
            for name, record in content.items():
                context.state[f"{step} {name}"] = record
        elif round <= len(names) and BEHAVIOURS[names[round - 1]][0] == step:
            kept = {name.removeprefix(f"{step} "): x for name, x in context.state.items() if name.startswith(step)}
            BEHAVIOURS[names[round - 1]][1](Reply(content, party_of(context), RecordDict(kept)))
        return Message(content, reply_to=message)


def party_of(context: Context) -> Party | None:
    """The node's part in the secure sum."""
    record = context.state.get("undrift-secure")
    return Party.load(str(record["party"])) if isinstance(record, ConfigRecord) else None


def own(context: Context) -> list[int]:
    """The clients of a node."""
    return list(range(int(context.node_config["partition-id"]), CLIENTS, NODES))
