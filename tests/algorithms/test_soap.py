"""SOAP on the clients and FedPAC with SOAP: an oracle, limits, turned models, and where the factors are."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from oracle import methods, optimizing
from support.rounds import close, flat, part_of, path, watch
from test_newest import BOWLS, Several
from undrift import Algorithm, Local, Simulation, TensorTask, parse
from undrift.algorithms import make
from undrift.blocks import LocalAdamW, LocalSOAP, MixedSOAP, Uniform
from undrift.blocks.local_optimizer.soap import eigenbases, factors_length, squares, turn
from undrift.core import by_part
from undrift.core.model.flat_model import Layout
from undrift.core.records.rejection import Reason
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.testing import Quadratics

LOCAL = Local(lr=0.02, steps=4, batch_size=2)
ONE = Quadratics.random(clients=1, sizes=(7,))
"""A kernel of four axes, a matrix, and vectors: the first gradient leaves at most one direction of an axis open."""


@pytest.mark.parametrize(("gamma", "frequency"), [(0.5, 2), (0.0, 1), (0.3, 10)])
def test_equals_its_oracle(gamma: float, frequency: int) -> None:
    local = replace(LOCAL, decay=0.97, clip=5.0, weight_decay=0.05)
    settings = methods.Settings(local.lr, local.decay, 0.05, local.clip)
    expected = optimizing.fedpac_soap(Several(BOWLS, local, 3, 2), settings, 5, gamma, frequency)
    close(path(make("fedpac-soap", gamma=gamma, frequency=frequency), BOWLS, local, 5, 3, 2), flat(expected), 1e-9)


def test_a_visit_of_local_soap_equals_the_oracle() -> None:
    local = replace(LOCAL, steps=9)
    expected = optimizing.fedpac_soap(Several(ONE, local), methods.Settings(local.lr), 1, 0.0, 3, 0.8, 0.9)
    block = LocalSOAP(0.8, 0.9, frequency=3)
    # The second gradient is the first one: what rounding leaves of it outside of its own axes is divided by eps.
    close(path(Algorithm(local_optimizer=block, aggregation=Uniform()), ONE, local, 1), flat(expected), 1e-7)


def test_kept_moments_continue() -> None:
    """One client that keeps its moments takes six steps in one round or in two, or in six."""
    algorithm = Algorithm(local_optimizer=LocalSOAP(frequency=2, moments="keep"))
    whole = path(algorithm, ONE, replace(LOCAL, steps=6), 1)[-1]
    for rounds in (2, 6):
        close(path(algorithm, ONE, replace(LOCAL, steps=6 // rounds), rounds)[-1], whole)
    reset = path(Algorithm(local_optimizer=LocalSOAP(frequency=2)), ONE, replace(LOCAL, steps=3), 2)[-1]
    assert float((reset - whole).abs().max()) > 1e-3


def test_without_factors_it_is_adamw() -> None:
    local = replace(LOCAL, weight_decay=0.1)
    for moments in ("reset", "keep"):
        pair = LocalSOAP(0.8, 0.9, moments=moments, largest=1), LocalAdamW(0.8, 0.9, moments=moments)
        assert torch.equal(*(path(Algorithm(local_optimizer=x), BOWLS, local, 3, 3) for x in pair))
    shared = make("fedpac-soap", gamma=0.0, beta1=0.8, beta2=0.9, largest=1)
    assert torch.equal(
        path(shared, BOWLS, local, 3, 3),
        path(Algorithm(local_optimizer=LocalAdamW(0.8, 0.9), aggregation=Uniform()), BOWLS, local, 3, 3),
    )


def test_the_first_round_is_local() -> None:
    local = Algorithm(local_optimizer=LocalSOAP(), aggregation=Uniform())
    assert torch.equal(*(path(x, BOWLS, LOCAL, 1, 3) for x in (make("fedpac-soap", gamma=0.0), local)))


def test_only_the_first_gradient_of_a_run_moves_nothing() -> None:
    once = replace(LOCAL, steps=1)
    start = torch.cat([x.reshape(-1) for x in BOWLS.start.values()])
    found = path(make("fedpac-soap"), BOWLS, once, 2, 3)
    assert torch.equal(found[0], start) and not torch.equal(found[1], start)
    kept = path(Algorithm(local_optimizer=LocalSOAP()), BOWLS, once, 2, 3)
    assert torch.equal(kept[1], start)  # which reset loses in every round


class Bare(nn.Module):
    """A matrix whose loss is that of targets it multiplies."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x: Tensor) -> Tensor:
        """Rows times the matrix."""
        return x @ self.w


def regression(left: Tensor, right: Tensor) -> TensorTask:
    """The matrix U^T W V, inputs times U and targets times V: the same loss for all orthogonal U and V."""
    draw = torch.Generator().manual_seed(3)
    w, x, y = (torch.randn(n, 4, generator=draw, dtype=torch.float64) for n in (4, 40, 40))
    clients = torch.split(torch.arange(40), 20)
    return TensorTask(lambda: Bare(left.T @ w @ right), x @ left, y @ right, clients, mse_loss)


@pytest.mark.parametrize("name", ["fedpac-soap", "fedavg + local-soap(frequency=2)"])
def test_coordinates_do_not_matter(name: str) -> None:
    """In other orthonormal bases of rows and columns it takes the same path, which Adam does not."""
    draw = torch.Generator().manual_seed(1)
    u, v = (torch.linalg.qr(torch.randn(4, 4, generator=draw, dtype=torch.float64)).Q for _ in range(2))
    one = torch.eye(4, dtype=torch.float64)
    local = Local(lr=0.05, steps=5, batch_size=10)
    here, there = (path(parse(name), regression(*both), local, 3)[-1].view(4, 4) for both in ((one, one), (u, v)))
    close(u @ there @ v.T, here, 1e-8)
    here, there = (
        path(parse("fedavg + local-adamw"), regression(*both), local, 3)[-1].view(4, 4) for both in ((one, one), (u, v))
    )
    assert float((u @ there @ v.T - here).abs().max()) > 1e-3


def test_the_server_averages_factors() -> None:
    frames = watch(make("fedpac-soap"), BOWLS, LOCAL, 2, 3)
    layout = Layout(tuple(BOWLS.start), tuple(tuple(x.shape) for x in BOWLS.start.values()))
    length = factors_length(layout, 10_000)
    assert length == 4 + 4 + 9 + 4 + 9 + 16
    for frame in frames:
        ups = [upload.parts["local_optimizer"].x for upload in frame.uploads.values()]  # type: ignore[union-attr]
        known = part_of(frame.after, "local_optimizer")
        assert all(len(up) == length for up in ups)
        close(known.x, torch.stack(ups).mean(dim=0))
        close(known.d, (frame.before.params - frame.after.params) / LOCAL.lr)


def test_bases_are_eigenvectors() -> None:
    layout = Layout(("a", "b", "c"), ((3, 1, 2), (4,), (5, 2)))
    draw = torch.Generator().manual_seed(0)
    factors = torch.zeros(factors_length(layout, 4), dtype=torch.float64)
    for own in squares(factors, layout, 4):
        for _, factor in own:
            rows = torch.randn(len(factor), 9, generator=draw, dtype=torch.float64)
            factor.copy_(rows @ rows.T)
    bases = eigenbases(factors, layout, 4)
    pairs = zip(squares(bases, layout, 4), squares(factors, layout, 4), strict=True)
    found = [
        (axis, q.T @ factor @ q) for own, known in pairs for (axis, q), (_, factor) in zip(own, known, strict=True)
    ]
    assert [(axis, len(x)) for axis, x in found] == [(0, 3), (2, 2), (1, 2)]  # no axis of length 1, none above 4
    for _, diagonal in found:
        close(diagonal, diagonal.diagonal().sort(descending=True).values.diag(), 1e-9)
    v = torch.randn(layout.size, generator=draw, dtype=torch.float64)
    close(turn(turn(v, layout, squares(bases, layout, 4)), layout, squares(bases, layout, 4), back=True), v)


def test_factors_of_another_length_are_rejected() -> None:
    algorithm = make("fedpac-soap")
    simulation = Simulation(algorithm, BOWLS, LOCAL)
    state = simulation.start()
    frame = watch(algorithm, BOWLS, LOCAL, 1)[0]
    gate = Gate(algorithm, LOCAL, server.send(algorithm, state, simulation.job.setting), [0])
    good = frame.uploads[0]
    bad = replace(good, parts={"local_optimizer": type(good.parts["local_optimizer"])(torch.zeros(3))})  # type: ignore[misc]
    refused = gate.admit(bad, gate.total())
    assert refused is not None and refused.reason is Reason.SHAPE
    assert gate.admit(good, gate.total()) is None


def test_a_part_of_the_model_can_have_it() -> None:
    def parted(block: Any) -> Algorithm:
        return Algorithm(local_optimizer=by_part({"fc_*": block, "*": LocalAdamW()}), aggregation=Uniform())

    both = (path(parted(block), BOWLS, LOCAL, 3, 3) for block in (MixedSOAP(0.0, largest=1), LocalAdamW(0.95, 0.95)))
    close(*both)
    moved = path(parted(MixedSOAP(0.3)), BOWLS, LOCAL, 3, 3)
    assert bool(torch.isfinite(moved).all())


def test_a_mean_of_squares_in_different_bases_is_refused() -> None:
    with pytest.raises(ValueError, match=r"MixedSOAP\(gamma=0\) averages the factors"):
        parse("fedavg + local-soap(moments='average')")
    with pytest.raises(TypeError, match="needs moments that the server does not average"):
        parse("fedper + mixed-soap")
