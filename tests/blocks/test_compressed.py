"""Top-k with error feedback, and stochastic quantisation."""

from pathlib import Path

import pytest
import torch

from oracle.compressed import quantized, top_k
from support.flower import state_of
from support.rounds import close, part_of, watch
from undrift import Local, Simulation, make, parse
from undrift.blocks import Quantized, TopK, Uniform
from undrift.blocks.release.compressed import step_for
from undrift.core.method.algorithm import Algorithm, cost
from undrift.core.model.random import generator
from undrift.core.records.packed_sum import BLOCK
from undrift.core.records.types import Broadcast, ServerState, Upload
from undrift.core.server import wire
from undrift.core.server.step import reset_parts, send
from undrift.planning.round_cost import method_size
from undrift.testing import Clinic, Quadratics, fingerprint
from undrift.testing.rounds import LOCAL, simulate

CHANCE = torch.Generator().manual_seed(3)
TASK = Quadratics(
    [torch.diag(torch.rand(9, generator=CHANCE, dtype=torch.float64)) for _ in range(3)],
    [torch.randn(9, generator=CHANCE, dtype=torch.float64) for _ in range(3)],
    {"a": torch.zeros(5, dtype=torch.float64), "b": torch.zeros(4, dtype=torch.float64)},
    [1, 2, 3],
)


class End:
    """What a release reads of the end of a visit."""

    def __init__(self, round: int = 0) -> None:
        self.round = round

    def random(self, purpose: str) -> torch.Generator:
        return generator(0, self.round, 0, purpose)


def broadcast_of(simulation: Simulation, state: ServerState) -> Broadcast:
    """What FedAvg's server sends of the model in another run's state."""
    return send(simulation.job.algorithm, reset_parts(simulation.job.algorithm, state), simulation.job.setting)


@pytest.mark.quick
def test_top_k_equals_its_oracle_and_telescopes() -> None:
    """What was sent and what is left are, to rounding, the sum of the displacements that FedAvg's clients would have.

    The displacements are those that the clients make from the models of this run: each is trained again, by FedAvg.
    """
    algorithm = Algorithm(release=TopK(0.1), aggregation=Uniform())
    plain = Simulation(Algorithm(aggregation=Uniform()), TASK, Local(lr=0.1, epochs=3))
    sent, moved, left = dict[int, torch.Tensor](), dict[int, torch.Tensor](), dict[int, dict[str, torch.Tensor]]()
    for frame in watch(algorithm, TASK, Local(lr=0.1, epochs=3), 6):
        part = plain.job.gate(broadcast_of(plain, frame.before), list(frame.uploads), 3)
        for client, upload in frame.uploads.items():
            own = plain.worker.visit(client, broadcast_of(plain, frame.before), None, part)
            assert own is not None
            rest = left.get(client, {"w": torch.zeros_like(own.delta)})
            expected, left[client] = top_k({"w": own.delta}, rest, 0.1)
            close(upload.delta, expected["w"])
            kept = part_of(frame.states[client][frame.before.round], "release").e
            close(kept, left[client]["w"])
            assert int((upload.delta != 0).sum()) <= 1
            sent[client] = sent.get(client, 0) + upload.delta
            moved[client] = moved.get(client, 0) + own.delta
            close(sent[client] + kept, moved[client])


def test_all_entries_are_fedavg_to_the_bit() -> None:
    assert cost(parse("fedavg + top-k(1.0)")).up == 1
    for base in ("fedavg", "krum", "fedadam", "fedsam"):
        runs = [simulate(parse(text)).run(3) for text in (base, f"{base} + top-k(1.0)")]
        assert torch.equal(runs[0].params, runs[1].params) and torch.equal(runs[0].buffers, runs[1].buffers)


@pytest.mark.quick
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantisation_equals_its_oracle(bits: int) -> None:
    algorithm = Algorithm(release=Quantized(bits), aggregation=Uniform())
    frame = watch(algorithm, TASK, Local(lr=0.1, epochs=3), 1, seed=5)[0]
    plain = Simulation(Algorithm(aggregation=Uniform()), TASK, Local(lr=0.1, epochs=3), seed=5)
    sent = broadcast_of(plain, frame.before)
    gate = plain.job.gate(sent, list(frame.uploads), 3)
    for client, upload in frame.uploads.items():
        own = plain.worker.visit(client, sent, None, gate).delta  # type: ignore[union-attr]
        random = generator(5, 0, client, "quantize")
        expected: list[float] = []
        for block in own.split(BLOCK):
            draws = torch.rand(len(block), generator=random, dtype=torch.float64).tolist()
            expected += quantized(block.tolist(), bits, draws) if block.any() else block.tolist()
        assert upload.delta.tolist() == expected
        step = 2.0**-60 if not own.any() else max(step_for(float(own.abs().max()), 2 ** (bits - 1) - 1), 2.0**-60)
        assert float((upload.delta - own).abs().max()) < step


def test_quantisation_is_unbiased() -> None:
    """Over many draws the mean is the displacement: within five standard errors, each at most s / 2 of one draw."""
    values = torch.tensor([1.0, -0.3, 0.01, 0.0, -0.77, 1e-4], dtype=torch.float64)

    for bits in (2, 4, 8):
        block, step, draws = Quantized(bits), step_for(1.0, 2 ** (bits - 1) - 1), 4000
        drawn = torch.stack([block.release(values.clone(), None, End(i)) for i in range(draws)])  # type: ignore[arg-type]
        assert float((drawn.mean(0) - values).abs().max()) < 5 * step / 2 / draws**0.5
        assert torch.equal(drawn.div(step), drawn.div(step).round()) and float(drawn.abs().max()) <= 1 + step


def test_uploads_are_small_on_the_wire_and_whole_again() -> None:
    """The bytes of one upload, beside what the table of costs says."""
    size = 200_000
    delta = torch.randn(size, generator=torch.Generator().manual_seed(0)) * 1e-3
    for block in (TopK(0.01), TopK(0.1), Quantized(4), Quantized(8)):
        algorithm = Algorithm(release=block)
        state = block.begin(None, block.init_client(delta), None)  # type: ignore[arg-type]
        released = block.release(delta.clone(), state, End())  # type: ignore[arg-type]
        empty = torch.empty(0)
        upload = Upload(0, 0, released, 5, 5, 0.1, empty, empty.long(), {})
        tensors = wire.flatten_short(upload, algorithm)
        share = tensors["delta"].nbytes / delta.nbytes
        assert share <= cost(algorithm).up + 2e-4 and share > 0.95 * cost(algorithm).up
        assert torch.equal(wire.restore(Upload, algorithm, tensors, size).delta, released)
        assert method_size(algorithm).sent == pytest.approx(cost(algorithm).up)
        with pytest.raises(wire.WireError, match="delta: "):
            wire.restore(Upload, algorithm, tensors | {"delta": tensors["delta"][:-1]}, size)
    with pytest.raises(wire.WireError, match="expected a vector"):  # a method that compresses nothing takes none
        wire.restore(Upload, make("fedavg"), tensors, size)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("text", ["fedavg + top-k(0.1)", "scaffold + quantized(4)", "krum + quantized(8)"])
def test_nodes_send_short_uploads_and_give_the_same_bits(text: str, tmp_path: Path) -> None:
    """On Flower with one client per node, and with several, whose sums are dense: the bits of one process."""
    pytest.importorskip("flwr")
    from support.flower import start, strategy_of
    from support.flower_grid import StandInGrid
    from undrift.flower import Job, client_app

    local = Local(lr=0.05, epochs=1, batch_size=4)
    alike = Simulation(parse(text), Clinic(), local, cohort=5, seed=3).run(3)
    sizes = {}
    for nodes in (8, 3):
        grid = StandInGrid(client_app(Job(parse(text), Clinic())), nodes, tmp_path / str(nodes))
        seen: list[int] = []

        def note(message: object, reply: object, seen: list[int] = seen) -> object:
            arrays = reply.content.array_records["arrays"]  # type: ignore[attr-defined]
            seen.extend(len(array.data) for name, array in arrays.items() if name.endswith("delta"))
            return reply

        grid.faults = dict.fromkeys(range(nodes), note)  # type: ignore[arg-type]
        strategy = strategy_of(text, cohort=5)
        start(strategy, grid)
        assert fingerprint(state_of(strategy)) == fingerprint(alike)
        sizes[nodes] = seen
    size = len(alike.params)
    assert sizes[8] and max(sizes[8]) <= 4 * size * cost(parse(text)).up + 30


def test_sums_of_quantised_uploads_are_shorter() -> None:
    """Several clients of one node: the sum on the wire, against that of FedAvg."""
    found = {}
    for text in ("fedavg", "fedavg + quantized(8)", "fedavg + quantized(4)"):
        simulation = Simulation(parse(text), Clinic(), LOCAL, seed=7)
        state = simulation.start()
        sent = send(simulation.job.algorithm, state, simulation.job.setting)
        tensors, _ = simulation.worker.serve(sent, range(8), {}, 8).flatten()
        found[text] = tensors["delta/sum"].nbytes / len(state.params)
    assert found["fedavg + quantized(4)"] <= found["fedavg + quantized(8)"] < found["fedavg"] - 1.5


def test_what_top_k_refuses_by_name() -> None:
    for other in ("scaffold", "feddyn", "fedcm"):
        with pytest.raises(TypeError, match=r"release=TopK\(k=0.1\) sends the largest entries .* use quantized"):
            parse(f"{other} + top-k(0.1)")
