"""The messages about tables at nodes as Flower records: questions, replies, and the preprocessing that was found."""

import json

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from undrift.core.server.wire import WireError
from undrift.data.arrays.preprocess import Preprocess
from undrift.data.own.sites import Question, SiteReply
from undrift.data.own.statistics import Arrays
from undrift.engine.flower.records import check_name, decode, encode, read_config, read_scalar
from undrift.engine.flower.versions import NEWEST

TABLE = "table"
"""The query for a node's answer about its table, and for keeping the preprocessing that was found."""


def write_question(question: Question) -> RecordDict:
    """A question to a node."""
    head = ConfigRecord({"version": NEWEST, "question": question.text()})
    return RecordDict({"undrift": head, "arrays": _encode(question.given)})


def write_result(run: str, made: Preprocess) -> RecordDict:
    """What a node is to keep for a run."""
    record = json.dumps(made.record())
    return RecordDict({"undrift": ConfigRecord({"version": NEWEST, "run": run, "prepared": record})})


def read_question(content: RecordDict) -> Question | None:
    """The question in a message; None if it has a result to keep."""
    head = read_config(content)
    if "question" not in head:
        return None
    return Question.from_text(read_scalar(head, "question", str), _decode(content))


def read_result(content: RecordDict) -> tuple[str, Preprocess]:
    """The run and the preprocessing that a node is to keep."""
    head = read_config(content)
    made = Preprocess.from_record(json.loads(read_scalar(head, "prepared", str)))
    return check_name(read_scalar(head, "run", str)), made


def write_reply(reply: SiteReply) -> RecordDict:
    """A node's answer."""
    head = ConfigRecord({"version": NEWEST, "facts": json.dumps(reply.facts)})
    return RecordDict({"undrift": head, "arrays": _encode(reply.arrays)})


def read_reply(content: RecordDict) -> SiteReply:
    """The answer in a node's message."""
    facts = json.loads(read_scalar(read_config(content), "facts", str))
    if not isinstance(facts, dict):
        raise WireError(f"facts: expected an object, got {type(facts).__name__}")
    return SiteReply(facts, _decode(content))


def _encode(arrays: Arrays) -> ArrayRecord:
    return encode({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()})


def _decode(content: RecordDict) -> Arrays:
    record = content.get("arrays")
    if not isinstance(record, ArrayRecord):
        raise WireError("there is no array record named 'arrays'")
    return {name: tensor.numpy() for name, tensor in decode(record).items()}
