"""Rules that see every upload apart, each a tiny block with a number from the sheets or by hand."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from support.rounds import close, part_of, path
from undrift import Algorithm, Local, Simulation
from undrift.core.method.aggregation import Gathering
from undrift.core.method.block import Needs
from undrift.core.records.types import Array, ServerState
from undrift.core.server import step as server
from undrift.core.server import wire
from undrift.testing import Clinic, Quadratics, check_block, fingerprint

Q2 = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], start=1.0, sizes=[1, 3])
TWICE = Local(lr=0.5, epochs=2, batch_size=4)


@dataclass(frozen=True)
class Shrink(Gathering):
    """FedLWS: every layer of the mean model times a factor that falls with the clients' disagreement."""

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        moved, w0 = torch.stack([upload.delta for upload in uploads]), view.w0
        mean = moved.mean(dim=0)
        new = w0 + mean
        for layer in view.layout.layers:
            tau = (0.03 * (moved - mean)[:, layer].norm(dim=1).mean()).clamp(0.01, 0.2)
            size = w0[layer].norm()
            new[layer] *= size / (size + tau * mean[layer].norm())
        return new - view.w0, None


def test_a_gathering_rule_knows_model_and_layers() -> None:
    eye, double = torch.eye(2, dtype=torch.float64), torch.float64
    optima = [torch.tensor(b, dtype=double) for b in ([5.0, 4.0], [3.0, 6.0])]
    task = Quadratics([eye, eye], optima, {"w": torch.tensor([3.0, 4.0], dtype=double)}, [1, 1])
    close(path(Algorithm(aggregation=Shrink()), task, Local(lr=0.5), 1)[0], [3.4895314, 4.4865404], 1e-7)
    check_block(Shrink())


class Table(NamedTuple):
    """One number for every client seen so far."""

    ids: Array
    values: Array


@dataclass(frozen=True)
class Ledger(Gathering[Table]):
    """FedAWA's bookkeeping: a value per client on the server, found by the client's number."""

    def init_server(self, w: Any) -> Any:
        return Table(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64))

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        held = dict(zip(view.state.ids.tolist(), view.state.values.tolist(), strict=True))
        for upload in uploads:
            held[upload.client] = held.get(upload.client, 0.0) + 1.0
        shares = torch.tensor([held[upload.client] for upload in uploads]).softmax(dim=0)
        delta = sum(float(share) * upload.delta for share, upload in zip(shares, uploads, strict=True))
        ids = sorted(held)
        return delta, Table(torch.tensor(ids), torch.tensor([held[i] for i in ids], dtype=torch.float64))


def test_a_gathering_rule_keeps_what_it_found_by_client() -> None:
    simulation = Simulation(Algorithm(aggregation=Ledger()), Clinic(), Local(batch_size=4))
    state = simulation.start()
    for clients in ([3, 5], [5, 0], [5]):
        state, _ = simulation.round(state, clients)
    kept = part_of(state, "aggregation")
    assert kept.ids.tolist() == [0, 3, 5] and kept.values.tolist() == [1.0, 1.0, 3.0]
    back = wire.from_bytes(ServerState, simulation.job.algorithm, wire.to_bytes(state), len(state.params))
    assert fingerprint(back) == fingerprint(state)
    check_block(Ledger())


@dataclass(frozen=True)
class Judged(Gathering):
    """FedLAW's judge: the client's model with the smallest proxy loss, then a step along the proxy gradient."""

    @property
    def needs(self) -> Any:
        return Needs(proxy=True)

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        proxy = view.proxy
        models = [view.w0 + upload.delta for upload in uploads]
        best = min(models, key=proxy.mean_loss_at)
        for batch in proxy.data("epoch 0"):
            best = best - 0.1 * proxy.gradient_at(best, batch)
        return best - view.w0, None


class Proxied(Quadratics):
    """The server holds what client 1 holds."""

    def proxy(self) -> list[int]:
        return [1, 1]


def test_a_rule_judges_models_on_proxy_data() -> None:
    task = Proxied(Q2.curvatures, Q2.optima, Q2.start, Q2.sizes)  # client 1 ends at 3.25; twice 10 percent towards 4
    close(path(Algorithm(aggregation=Judged()), task, TWICE, 1), [4 - 0.75 * 0.81])
    check_block(Judged())
    with pytest.raises(
        TypeError, match=r"aggregation=Judged needs proxy data.*a method proxy\(\); Quadratics has none"
    ):
        Simulation(Algorithm(aggregation=Judged()), Q2).run(1)


def test_an_engine_without_a_task_refuses_a_judge() -> None:
    pytest.importorskip("flwr")
    from undrift.engine.flower.server.strategy import UndriftStrategy

    with pytest.raises(TypeError, match="aggregation=Judged needs proxy data at the server, and a Flower"):
        UndriftStrategy(Algorithm(aggregation=Judged()), Clinic().model(), population=8)


class Undeclared(Judged):
    """Reads proxy data it does not declare to need."""

    needs = Needs()


def test_a_server_step_without_the_proxy_data_a_rule_reads_is_refused() -> None:
    for rule in (Judged(), Undeclared()):
        simulation = Simulation(Algorithm(aggregation=rule), Clinic(), Local(batch_size=4))
        state = simulation.start()
        broadcast = server.send(simulation.job.algorithm, state, simulation.job.setting)
        total = simulation.collect(broadcast, [3, 4], {}).total
        with pytest.raises(RuntimeError, match=r"this rule needs proxy data .* set needs = Needs\(proxy=True\)"):
            server.close(simulation.job.algorithm, state, simulation.job.setting, [(broadcast, total)])
    with pytest.raises(RuntimeError, match="needs proxy data and declares none"):
        simulation.run(1)  # the engine gives proxy data only to a rule that declares it
