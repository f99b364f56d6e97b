"""The messages of a secure sum as Flower records: what is read is checked for its types and lengths."""

from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from undrift.core.server.wire import WireError
from undrift.engine.flower.records import read_config, read_integers, read_scalar
from undrift.engine.flower.versions import NEWEST
from undrift.secure.members import Keys, Terms
from undrift.secure.settings import Secure

SECURE = "secure"
"""The query for a party's part in a step, and the name of the sealed shares in an order to train."""

_LENGTHS = (32, 32, 32, 64)  # of the keys and the signature of a party


def step_content(step: str, **fields: Any) -> RecordDict:
    """A message of a step: its name, and what belongs to it."""
    return RecordDict({"undrift": ConfigRecord({"version": NEWEST, "step": step, **fields})})


def read_step(content: RecordDict, step: str | None = None) -> tuple[str, ConfigRecord]:
    """The step of a message, and its fields; raises if it is of another step than given."""
    record = read_config(content, (NEWEST,))
    found = read_scalar(record, "step", str)
    if step is not None and found != step:
        raise WireError(f"step {found[:20]!r} of a secure sum, expected {step!r}")
    return found, record


def write_terms(terms: Terms, party: int) -> dict[str, Any]:
    """What the parties agree on, for one of them, as fields."""
    setting = terms.setting
    return {
        "label": terms.label,
        "party": party,
        "least": setting.least,
        "threshold": setting.threshold,
        "neighbours": setting.neighbours,
    }


def read_terms(record: ConfigRecord) -> tuple[Terms, int]:
    """What the parties agree on, and the number of the party that is addressed; settings that do not protect raise."""
    least, neighbours = read_scalar(record, "least", int), read_scalar(record, "neighbours", int)
    try:
        setting = Secure(least, read_scalar(record, "threshold", float), neighbours)
    except ValueError as error:
        raise WireError(str(error)) from error
    return Terms(setting, read_scalar(record, "label", str)), read_scalar(record, "party", int)


def write_texts(texts: Mapping[int, bytes]) -> dict[str, Any]:
    """Texts of or for parties, as fields."""
    return {"parties": list(texts), "texts": list(texts.values())}


def read_texts(record: ConfigRecord) -> dict[int, bytes]:
    """The texts of or for parties."""
    parties, texts = read_integers(record, "parties"), record.get("texts")
    if not isinstance(texts, list) or not all(type(text) is bytes for text in texts) or len(texts) != len(parties):
        raise WireError("texts: expected one text for every party")
    if len(set(parties)) < len(parties):
        raise WireError("parties: one is there twice")
    return dict(zip(parties, texts, strict=True))  # type: ignore[arg-type]


def pack_keys(keys: Keys) -> bytes:
    """A party's keys, one behind the other."""
    return b"".join(keys[1:])


def unpack_keys(party: int, text: bytes) -> Keys:
    """The keys that `pack_keys` packed."""
    if len(text) != sum(_LENGTHS):
        raise WireError(f"keys: {len(text)} bytes of party {party}, expected {sum(_LENGTHS)}")
    ends = [sum(_LENGTHS[: place + 1]) for place in range(4)]
    return Keys(party, *(text[end - length : end] for end, length in zip(ends, _LENGTHS, strict=True)))
