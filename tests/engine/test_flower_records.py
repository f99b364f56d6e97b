"""The records of Flower's messages: bits travel unchanged, and what is not as declared is refused."""

from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from support.flower_grid import travel
from undrift import Local
from undrift.core.server.wire import WireError
from undrift.engine.flower.records import STYPE, Order, claim, decode, encode, one_line, read_claim
from undrift.engine.flower.versions import NEWEST


def test_every_dtype_travels_bit_for_bit() -> None:
    draw = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 256, (48,), generator=draw, dtype=torch.uint8)
    tensors = {str(d): bits.clone().view(d) for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    tensors |= {str(d): bits.clone().view(d) for d in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)}
    tensors |= {"bool": bits > 127, "scalar": torch.tensor(2.5), "none": torch.empty(0), "table": torch.ones(2, 3).T}
    message = Message(RecordDict({"arrays": encode(tensors)}), 1, "train")
    back = decode(travel(message).content.array_records["arrays"])
    assert set(back) == set(tensors)
    for name, x in tensors.items():
        assert back[name].dtype == x.dtype and back[name].shape == x.shape
        assert encode({"x": back[name]})["x"].data == encode({"x": x})["x"].data, name
    same = back["torch.float32"].view(torch.int32)
    assert same.equal(tensors["torch.float32"].view(torch.int32)) and same.numpy().tobytes() == bits.numpy().tobytes()
    back["table"].add_(1)  # what comes may be written


def test_arrays_that_are_not_as_declared_are_refused() -> None:
    good: dict[str, Any] = {"dtype": "float32", "shape": (2,), "stype": STYPE, "data": bytes(8)}
    assert decode(ArrayRecord({"x": Array(**good)}))["x"].tolist() == [0.0, 0.0]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"stype": "numpy.ndarray"}, "serialised as 'numpy.ndarray'"),
        ({"dtype": "object"}, "dtype 'object' is not known"),
        ({"data": bytes(7)}, r"7 bytes for shape \(2,\) of float32"),
        ({"shape": (-2,)}, "is not a shape"),
        ({"shape": (2**62, 2**62)}, "8 bytes for shape"),
        ({"dtype": "bool", "data": b"\x01\x02"}, "neither 0 nor 1"),
    ]
    for wrong, message in refused:
        with pytest.raises(WireError, match=message):
            decode(ArrayRecord({"x": Array(**{**good, **wrong})}))
    with pytest.raises(WireError, match="have 8 bytes, at most 7"):
        decode(ArrayRecord({"x": Array(**good)}), 7)
    with pytest.raises(WireError, match="complex64 cannot be sent"):
        encode({"x": torch.zeros(1, dtype=torch.complex64)})


def test_a_long_text_keeps_its_end() -> None:
    """The message of a traceback is its last line."""
    line = one_line("Traceback:\n" + "  File x\n" * 200 + "WireError: give both the same")
    assert line.startswith("Traceback:") and " ... " in line and line.endswith("WireError: give both the same")
    assert len(line) == 500 == len(one_line("x" * 501)) and "\n" not in line
    assert one_line("a\tb") == "a b" and one_line("x" * 500) == "x" * 500


def test_orders_come_back_and_bad_ones_are_refused() -> None:
    order = Order("run-1", 4, -3, "Algorithm()", 9, [2, 7], {7: 1}, Local(1, clip=2.0, buffers="keep"), 5.0)
    assert Order.read(RecordDict({"undrift": order.record()})) == order
    for name, value, message in [
        ("version", 1, "version 1, expected 4 or 6: update undrift there"),
        ("version", 7, "version 7, expected 4 or 6: update undrift here"),
        ("version", True, "version True, expected 4 or 6: update undrift there"),
        ("run", "../../etc", "not a valid run name"),
        ("run", "a\nb", "not a valid run name"),
        ("run", ".hidden", "not a valid run name"),
        ("round", 1.0, "round: expected one int"),
        ("cohort", True, "cohort: expected one int"),
        ("clients", [1, 1], "do not fit"),
        ("clients", [], "do not fit"),
        ("clients", ["a", "b"], "list of whole numbers"),
        ("accepted", [1], "do not fit"),
        ("local.lr", -1.0, "lr: input should be greater than 0"),
        ("local.lr", "fast", "cannot be used"),
        ("local.warmth", 1.0, "not known to this node: .*warmth.*: update undrift on it"),
    ]:
        record = order.record()
        record[name] = value  # type: ignore[assignment]
        with pytest.raises(WireError, match=message):
            Order.read(RecordDict({"undrift": record}))


def test_claims_are_compact_and_checked() -> None:
    assert read_claim(claim(range(3, 1_000_000, 10)), 1_000_000).sum() == sum(range(3, 1_000_000, 10))
    assert len(claim(range(3, 1_000_000, 10))["undrift"]) == 4
    assert read_claim(claim([5, 2, 2]), 8).tolist() == [2, 5] and read_claim(claim([]), 8).tolist() == []
    for wrong in ({"clients": [8]}, {"clients": [-1]}, {"clients": [1, 1]}, {"start": 0, "stop": 9, "step": 1}):
        with pytest.raises(WireError):
            read_claim(RecordDict({"undrift": ConfigRecord({"version": NEWEST, **wrong})}), 8)


def test_a_claim_below_zero_is_named() -> None:
    with pytest.raises(WireError, match="it claims client -1; there are 8, numbered from 0"):
        read_claim(claim([-1, 3]), 8)
    with pytest.raises(WireError, match="it claims client 9; there are 8"):
        read_claim(claim([2, 9]), 8)
