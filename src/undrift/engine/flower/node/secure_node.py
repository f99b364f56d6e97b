"""A node as a party of secure sums: it keeps its secrets in its own context between the messages of a round.

A server could order a node to send its upload without masks. A node whose config has `secure=true` refuses that, and
with `secure-least=5` also sums of fewer than five nodes.
"""

import json

import torch
from flwr.app import ConfigRecord, Context, Message

from undrift.core.records.types import Broadcast
from undrift.core.server.wire import WireError
from undrift.engine.flower.records import Answer, Order
from undrift.engine.flower.secure_records import (
    SECURE,
    pack_keys,
    read_step,
    read_terms,
    read_texts,
    step_content,
    unpack_keys,
    write_texts,
)
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.secure_partial import to_vector
from undrift.secure.members import Terms
from undrift.secure.party import Party
from undrift.secure.settings import SecureError

_STATE = "undrift-secure"


def answer_step(message: Message, context: Context) -> Message:
    """The node's reply to a message of a secure sum, in all steps but that with its upload."""
    try:
        step, record = read_step(message.content)
        if step == "keys":
            terms, number = read_terms(record)
            _check_terms(terms, context)
            party = Party(number, terms)
            reply = {"text": pack_keys(party.advertise())}
        elif step == "shares":
            party = _load(context)
            keys = [unpack_keys(number, text) for number, text in read_texts(record).items()]
            reply = write_texts(party.share(keys))
        elif step == "signatures":
            party = _load(context)
            reply = {"text": party.confirm(list(read_texts(record)))}
        else:
            party = _load(context)
            reply = write_texts(party.reveal(read_texts(record)))
    except SecureError as error:
        _forget(context)
        raise WireError(str(error)) from error
    if step == "revealed":
        _forget(context)
    else:
        context.state[_STATE] = ConfigRecord({"party": party.dump()})
    return Message(step_content(step, **reply), reply_to=message)


def is_secure(message: Message) -> bool:
    """Whether an order to train is part of a secure sum."""
    return SECURE in message.content


def check_plain(context: Context) -> None:
    """Raise if this node sends nothing that is not masked."""
    if context.node_config.get("secure") is True:
        raise WireError(
            "this node takes part in secure sums only (secure=true in its config): set secure= on the server"
        )


def check_least(least: int, context: Context) -> None:
    """Raise if the sum that the server will unmask may have fewer parties than a method's shares of noise are made for.

    Args:
        least: how many clients a sum must have; 0 if the method has no such noise.
        context: of the node, with its part in the secure sum.
    """
    if not least:
        return
    try:
        found = _load(context).terms.setting.least
    except SecureError as error:
        raise WireError(str(error)) from error
    if found < least:
        _forget(context)
        raise WireError(
            f"least: the server unmasks sums of {found} nodes, and the method's shares of noise are made for {least} "
            f"clients; set secure = Secure(least={least}) on the server"
        )


def mask_partial(partial: Partial, broadcast: Broadcast, order: Order, message: Message, context: Context) -> Message:
    """The node's masked upload, with the numbers of the clients in it; of others the reason why they are not in it."""
    record = message.content[SECURE]
    if not isinstance(record, ConfigRecord):
        raise WireError("the sealed shares are no config record")
    tensors, clients = {}, list(partial.total.clients)
    if clients:
        try:
            party = _load(context)
            masked = party.mask(read_texts(record), to_vector(partial, broadcast, order.cohort))
        except SecureError as error:
            _forget(context)
            raise WireError(str(error)) from error
        context.state[_STATE] = ConfigRecord({"party": party.dump()})
        tensors["masked"] = torch.frombuffer(bytearray(masked.to_bytes()), dtype=torch.uint8)
    else:
        _forget(context)
    rejections = [[rejection.client, rejection.reason.name] for rejection in partial.rejections]
    summary = json.dumps({"clients": clients, "rejections": rejections})
    return Message(Answer(order.round, summary, tensors).content(), reply_to=message)


def _check_terms(terms: Terms, context: Context) -> None:
    """Raise if this node demands more parties than the server."""
    least = context.node_config.get("secure-least", 2)
    if terms.setting.least < int(least):
        raise SecureError(f"least: the server unmasks sums of {terms.setting.least} nodes, this node demands {least}")


def _load(context: Context) -> Party:
    """The party of this node, as it was after the step before."""
    record = context.state.get(_STATE)
    if not isinstance(record, ConfigRecord):
        raise SecureError("this node has no part in a secure sum at the moment; it may have been restarted")
    return Party.load(str(record["party"]))


def _forget(context: Context) -> None:
    """Delete the party's secrets."""
    context.state.pop(_STATE, None)
