"""Bytes that are damaged, cut short, foreign or booby-trapped are refused by name."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch

from undrift import Algorithm, Local, ServerState, Simulation
from undrift.algorithms import make
from undrift.core import End, Objective, Vector
from undrift.core.records.types import ClientState
from undrift.core.server.wire import WireError, _digest, flatten, from_bytes, restore, to_bytes
from undrift.engine.round.backend import InProcess
from undrift.testing import Clinic, fingerprint

ALGORITHM = make("fedlesam-s")


@pytest.fixture(scope="module")
def state() -> ServerState:
    return Simulation(ALGORITHM, Clinic(), Local(batch_size=4), cohort=4).run(2)


def test_round_trip(state: ServerState) -> None:
    back = from_bytes(ServerState, ALGORITHM, to_bytes(state), len(state.params))
    assert fingerprint(back) == fingerprint(state) and back.accepted == state.accepted and back.round == 2


@pytest.mark.quick
def test_damage_is_found(state: ServerState) -> None:
    data, chance = to_bytes(state), Random(0)
    for _ in range(300):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with pytest.raises(WireError):
            from_bytes(ServerState, ALGORITHM, bytes(flipped), len(state.params))
    for length in range(0, len(data), 997):
        with pytest.raises(WireError):
            from_bytes(ServerState, ALGORITHM, data[:length], len(state.params))


def test_nothing_is_unpickled() -> None:
    class Trap:
        """Fires when unpickled."""

        def __reduce__(self) -> Any:
            return pytest.fail, ("unpickled",)

    with pytest.raises(WireError, match=r"not an undrift record.*only safetensors are read"):
        from_bytes(ServerState, ALGORITHM, pickle.dumps(Trap()), 3)


def test_fields_must_be_as_declared(state: ServerState) -> None:
    size = len(state.params)
    tensors = flatten(state)
    with pytest.raises(WireError, match=r"missing field 'parts.drift.c'"):
        restore(ServerState, ALGORITHM, {k: v for k, v in tensors.items() if k != "parts.drift.c"}, size)
    with pytest.raises(WireError, match=r"undeclared field 'parts.momentum.m'"):
        restore(ServerState, ALGORITHM, {**tensors, "parts.momentum.m": state.params}, size)
    with pytest.raises(WireError, match=f"expected a vector of length {size + 1}, got shape"):
        restore(ServerState, ALGORITHM, tensors, size + 1)
    with pytest.raises(WireError, match="round: expected one int"):
        restore(ServerState, ALGORITHM, {**tensors, "round": torch.tensor([0.5])}, size)
    with pytest.raises(WireError, match="undeclared field"):
        restore(ServerState, make("fedavg"), tensors, size)


def test_a_client_state_keeps_its_buffers_only_if_it_has_some() -> None:
    for buffers in (None, torch.ones(3)):
        kept = ClientState({}, buffers)
        back = from_bytes(ClientState, make("fedavg"), to_bytes(kept), 5)
        assert (back.buffers is None) == (buffers is None)


class Twice(NamedTuple):
    """Two fields."""

    one: Vector
    two: Vector


@dataclass(frozen=True)
class Sharing(Objective[Twice, Twice]):
    """Keeps one tensor under two names."""

    def init_server(self, w: Vector) -> Twice:
        return Twice(w, w)

    def init_client(self, w: Vector) -> Twice:
        return Twice(w, w)

    def finish(self, state: Twice, end: End) -> tuple[None, Twice]:
        kept = end.w.clone()
        return None, Twice(kept, kept)


def test_fields_that_share_memory_are_written(tmp_path: Path) -> None:
    algorithm = Algorithm(objective=Sharing())
    simulation = Simulation(algorithm, Clinic(), Local(batch_size=4), backend=InProcess(root=tmp_path))
    begun = simulation.start()
    assert fingerprint(from_bytes(ServerState, algorithm, to_bytes(begun), len(begun.params))) == fingerprint(begun)
    stored = simulation.run(2)
    assert fingerprint(stored) == fingerprint(Simulation(algorithm, Clinic(), Local(batch_size=4)).run(2))


def test_every_dtype_has_a_fingerprint() -> None:
    kept = ClientState({"objective": Twice(torch.zeros(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.complex64))})
    other = ClientState({"objective": Twice(torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.complex64))})
    assert fingerprint(kept) != fingerprint(other)


@pytest.mark.parametrize("x", [torch.tensor(3).expand(1), torch.empty(0, dtype=torch.int64).as_strided((0,), (0,))])
def test_a_tensor_of_stride_0_has_the_hash_of_its_values(x: torch.Tensor) -> None:
    assert x.stride() == (0,)
    assert _digest({"counts": x}) == _digest({"counts": torch.tensor(x.tolist(), dtype=torch.int64)})
