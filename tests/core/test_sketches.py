"""Four sketches of what comes next, each a small block under the contract: the core carries them as it is."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from support.rounds import close
from undrift import Algorithm, Local, Simulation
from undrift.blocks import Alternating, LocalSGD, NormClip, Private, QFair, Uniform
from undrift.core import End, LocalOptimizer, Release, ServerView, Start, Step, Summing, Upload, Vector, by_part
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.testing import Quadratics, check_algorithm, check_block

PAIR = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], start=1.0, sizes=[1, 3])
HALF = Local(lr=0.5, batch_size=4)


@dataclass(frozen=True)
class ByAge(Summing):
    """FedBuff's weights of old uploads: delta = sum_i (1 + age_i)^-a delta_i / m."""

    a: float = 0.5

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        return float((1 + age) ** -self.a)

    def mean(self, up: None, view: ServerView[None]) -> Vector:
        return view.weighted / view.cohort


def test_two_versions_in_one_sum() -> None:
    algorithm = Algorithm(aggregation=ByAge(1.0))
    simulation = Simulation(algorithm, PAIR, HALF)
    setting, first = simulation.job.setting, simulation.start()
    old = server.send(algorithm, first, setting)
    second = simulation.round(first, [0])[0]  # client 0 moves the model from 1 to 1/2
    new = server.send(algorithm, second, setting)
    gate = Gate(algorithm, HALF, new, [0, 1], versions=[old.round])
    totals = []
    for client, sent in ((1, old), (0, new)):  # client 1 is a round late: it started from 1 and goes to 5/2
        upload = simulation.worker.visit(client, sent, second.accepted.get(client), gate)
        totals.append((sent, gate.total(sent.round)))
        assert upload is not None and gate.admit(upload, totals[-1][1]) is None, gate.rejections
    after = server.close(algorithm, second, setting, totals)
    close(after.params, 0.5 + (1.5 / 2 - 0.25) / 2)
    with pytest.raises(ValueError, match="each version has its own"):
        totals[0][1].merge(totals[1][1])
    closed = Gate(algorithm, HALF, new, [1])
    late = simulation.worker.visit(1, old, None, closed)
    assert late is not None and closed.admit(late, closed.total()) is not None  # a synchronous gate takes no version
    check_block(ByAge())


@dataclass(frozen=True)
class ClipAndNoise(NormClip):
    """Clients clip; the server adds c z N(0, I) to the sum, before the mean."""

    z: float = 1.0

    def release_sum(self, total: Tensor, view: ServerView[None]) -> Tensor:
        noise = torch.randn(len(total), generator=view.random("noise"), dtype=torch.float64)
        return total.add_(noise.to(total.device), alpha=self.c * self.z)


def test_noise_enters_between_the_sum_and_the_mean() -> None:
    algorithm = Algorithm(release=ClipAndNoise(0.1, 2.0), aggregation=Uniform())
    runs = [Simulation(algorithm, PAIR, HALF, seed=seed).run(2).params for seed in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])  # drawn from the run's seed
    still = Simulation(Algorithm(release=ClipAndNoise(0.1, 0.0), aggregation=Uniform()), PAIR, HALF)
    close(still.run(1).params, 1 + (-0.1 + 0.1) / 2)
    check_algorithm(algorithm)
    with pytest.raises(TypeError, match="changes the sum of the uploads"):
        replace(Simulation("krum", PAIR).algorithm, release=ClipAndNoise())  # type: ignore[type-var]


def test_one_factor_is_averaged_and_the_other_stays() -> None:
    """As FFA-LoRA and FedSA-LoRA treat the two factors of an adapter: here body and head of the contract's model."""
    algorithm = Algorithm(
        aggregation=by_part({"body.*": Uniform()}), personalization=by_part({"head.*": Private("all")})
    )
    simulation = check_and_simulate(algorithm)
    start, state = simulation.start(), simulation.run(2)
    head = simulation.worker.model.layout.mask(lambda name, _: name.startswith("head"))
    assert torch.equal(state.params[head], start.params[head])
    assert not torch.equal(state.params[~head], start.params[~head])
    models = [torch.cat([p.flatten() for p in simulation.personal(state, c).parameters()]).clone() for c in (3, 4)]
    assert torch.equal(*(model[~head] for model in models)) and not torch.equal(*(model[head] for model in models))


def check_and_simulate(algorithm: Algorithm) -> Simulation:
    """A method that keeps the contract, on the contract's own clients."""
    from undrift.testing.rounds import simulate

    check_algorithm(algorithm)
    return simulate(algorithm)


class Sign(NamedTuple):
    """The moving average of a client's gradients."""

    m: Vector


@dataclass(frozen=True)
class LocalLion(LocalOptimizer[None, Sign, None, None, Vector]):
    """Lion: w <- w - lr sign(b m + (1 - b) g);   m <- c m + (1 - c) g, kept between a client's rounds."""

    b: float = 0.9
    c: float = 0.99

    def init_client(self, w: Vector) -> Sign:
        return Sign(torch.zeros_like(w))

    def begin(self, sent: None, kept: Sign, start: Start) -> Vector:
        return kept.m.clone()

    def adjust(self, grad: Vector, state: Vector, step: Step) -> Vector:
        direction = torch.lerp(grad, state, self.b).sign_()
        state.mul_(self.c).add_(grad, alpha=1 - self.c)
        return direction

    def finish(self, state: Vector, end: End) -> tuple[None, Sign]:
        return None, Sign(state)


def test_a_local_optimizer() -> None:
    algorithm = Algorithm(local_optimizer=LocalLion(), aggregation=Uniform())
    close(
        Simulation(algorithm, PAIR, Local(lr=0.25, batch_size=1)).run(1).params, 1 + (-0.25 + 0.25 * 3) / 2
    )  # one and three steps
    check_block(LocalLion())


def test_a_release_leaves_a_block_that_does_not_use_it_alone() -> None:
    assert Algorithm().release == Release() and repr(Algorithm()) == "Algorithm()"


def test_parts_need_and_freeze_what_their_blocks_do() -> None:
    with pytest.raises(TypeError, match="needs plain SGD on the clients"):
        Algorithm(aggregation=by_part({"head.*": QFair(1.0)}), local_optimizer=LocalSGD(0.9))
    halves = Alternating("all", head_epochs=1)  # the private part moves in the first half of the steps only
    assert by_part({"head.*": halves}).needs.plain_sgd
    check_algorithm(Algorithm(personalization=by_part({"head.*": halves})))
