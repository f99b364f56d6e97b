"""Blocks that refuse each other because one would compute something else than its mathematics, and pairs they allow."""

import logging
from dataclasses import replace

import pytest
import torch

from support.rounds import part_of
from undrift import Local, Simulation
from undrift.compose.grammar import parse
from undrift.testing import Quadratics, clinic

REFUSED = {
    "scaffold + local-momentum(0.9)": "is not plain SGD, which drift=Scaffold needs: its variates are slopes",
    "q-fedavg + local-momentum(0.9)": "is not plain SGD, which aggregation=QFair needs",
    "fedrep + local-momentum(0.9)": "is not plain SGD, which personalization=Alternating needs",
    "normalized + local-momentum(0.9)": "is for steps with a local momentum of 0.0, found 0.9",
    "normalized + proximal(0.1)": r"write normalized\(rho=0.0, mu=0.1\)",
    "fedavg + normalized(rho=0.9)": r"found 0; add local-momentum\(0.9\) or write normalized\(rho=0, mu=0.0\)",
    "normalized(0.9) + momentum:server-momentum": "is for steps with a local momentum of 0.9, found 0",
    "fedavg + normalized(mu=0.1)": r"found 0; add proximal\(0.1\) or write normalized\(rho=0.0, mu=0\)",
    "normalized(mu=0.1) + proximal(0)": "is for steps with a proximal term of 0.1, found 0",
    "fednova + drift:feddyn(0.1)": "does not know the reach of FedDyn's proximal term",
    "normalized + momentum:feddyn(0.1)": "does not know the reach of FedDyn's proximal term",
    "fednova(rho=0.9) + scaffold": "which drift=Scaffold needs",
    "scaffold-i + whiten": "takes its variates over all data, where spectral=Whiten has no inputs of a step",
    "fedrep + scaffold": "moves the shared part in some of the steps only, but drift=Scaffold divides",
    "fedrep + fedcm": "but momentum=ServerMomentum divides",
    "fedrep + fednova": "but aggregation=Normalized divides",
    "fedala + scaffold": "starts from a mixture, which drift=Scaffold would take for gradient steps",
    "fedala + fednova": "starts from a mixture, which aggregation=Normalized would take for gradient steps",
    "fedala + q-fedavg": "starts from a mixture, which aggregation=QFair would take for gradient steps",
    "ditto + calibrated-logits(1.0)": "learns v by the data loss alone, without the term of objective=CalibratedLogits",
    "ditto + moon": "without the term of objective=Contrast; use personalization:latest, fedavg-ft or fedper",
    "apfl + restricted-logits": "learns v by the data loss alone, without the term of objective=RestrictedLogits",
    "fedala + common-representation(3, 4)": "learns W by the data loss alone",
    "fedscam + heavy-ball": "with the mean displacement of the last round, but server_optimizer=HeavyBall takes",
    "fedscam + drift:feddyn(0.1)": "but drift=FedDyn takes the global step in another direction",
    "scored-sam + momentum:feddyn(0.1)": "but momentum=FedDyn takes the global step in another direction",
    "fedscam-wa + server-optimizer:adam": "leave it out, or agreement: beta=0 and kappa=0",
    "fedlaw + fedper": "untrained private part, but aggregation=ByProxy tries whole models on proxy data",
    "pfedme + high-pass(0.05)": r"no perturbation to filter; write gradient:high_pass\(r=0.05\)",
}
ALLOWED = (
    "local-momentum(0.9)",
    "scaffold + local-momentum(0)",
    "scaffold-i + local-momentum(0.9)",
    "fednova(rho=0.9, mu=0.1)",
    "local-momentum(0.5) + normalized(0.5) + drift:scaffold-i",
    "normalized + momentum:server-momentum(0.5)",
    "normalized(0.9, 0.1) + local-momentum(0.9) + proximal(0.1)",
    "ditto(lr=0.1) + local-momentum(0.9)",
    "scaffold + whiten",
    "fedrep + scaffold-i",
    "fedala + feddyn",
    "fedala(rate=0) + scaffold",
    "fedala(rate=0) + fednova",
    "fedala + q-fedavg(q=0)",
    "fedscam + drift:scaffold",
    "fedscam + average(0.5)",
    "fedscam + server-sam",
    "fedscam(beta=0, kappa=0) + drift:feddyn(0.1)",
    "fedlaw + ditto",
    "ditto + fedprox(0.1)",
    "apfl(alpha=0) + moon",
    "fedala(rate=0) + moon",
    "latest + moon",
    "pfedme + gradient:high-pass(0.05)",
)


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_the_reason(text: str) -> None:
    with pytest.raises(TypeError, match=REFUSED[text]):
        parse(text)


@pytest.mark.parametrize("text", ALLOWED)
def test_allowed(text: str) -> None:
    assert parse(text)


LOCAL = Local(lr=0.05, epochs=2, batch_size=4)


def final(text: str, local: Local, rounds: int = 3) -> torch.Tensor:
    algorithm = parse(text)
    return Simulation(algorithm, clinic(algorithm), local, cohort=3, seed=1).run(rounds).params


@pytest.mark.parametrize("beside", ["ditto(lam=0)", "ditto(lam=1)", "apfl(0.5)"])
def test_a_second_model_does_not_change_what_whiten_reads(beside: str) -> None:
    assert torch.equal(final(f"{beside} + whiten", LOCAL), final("fedavg + whiten", LOCAL))


def test_clipped_steps_are_corrected_by_clipped_gradients() -> None:
    """One client: the variate is the clipped gradient at w0, of norm 0.5."""
    task = Quadratics.scalar([1.0], [10.0], 0.0, [1])
    local = Local(lr=0.1, steps=1, batch_size=1, clip=0.5)
    simulation = Simulation(parse("scaffold-i"), task, local)
    state, _ = simulation.round(simulation.start())
    assert torch.linalg.vector_norm(part_of(state, "drift").c) == pytest.approx(0.5)
    free = Simulation(parse("scaffold-i"), task, replace(local, clip=None))
    assert torch.linalg.vector_norm(part_of(free.round(free.start())[0], "drift").c) == pytest.approx(10.0)


def test_a_rule_that_does_not_protect_a_correction_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert parse("median").unprotected == parse("median + sam(0.1)").unprotected == parse("feddyn").unprotected == ()
    for rule in ("krum", "norm-clip"):
        assert parse(f"feddyn + {rule}").unprotected == ("drift",)
    for clip in ("norm-clip(1.0)", "norm-clip(1.0, q=0.5)"):  # what every block receives is clipped
        assert parse(f"feddyn + {clip}").unprotected == parse(f"fedavg + {clip}").unprotected == ()
        assert parse(f"scaffold-i + {clip}").unprotected == ("drift",)  # it uploads vectors of its own
    assert parse("krum + objective:common-representation").unprotected == ("objective",)  # it uploads arrays
    assert parse("fedcm + scaffold-i + median").unprotected == ("drift", "momentum")
    with caplog.at_level(logging.WARNING, logger="undrift"):
        final("median", LOCAL, rounds=1)
        assert not caplog.messages
        final("feddyn(0.1) + median", LOCAL, rounds=1)
    assert "aggregation=CoordinateMedian() does not protect drift=FedDyn(mu=0.1)" in caplog.text


def test_weights_too_small_to_be_added_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="undrift"):
        final("fedlw(rule='softmax', temperature=0.001)", LOCAL, rounds=1)
    assert "round 1: all weights of ByLoss(rule='softmax', temperature=0.001) are 0" in caplog.text


def test_fedscam_without_weights_goes_by_examples_and_does_not_say_zero(caplog: pytest.LogCaptureFixture) -> None:
    """The first step goes beyond the optimum, so that in round 2 both clients turn back and have no weight."""
    task, local = Quadratics.scalar([1, 1], [1, 1], 0.0, [1, 3]), Local(lr=1.9, batch_size=1, steps=1)
    simulation = Simulation(parse("fedscam(beta=2.0)"), task, local)
    first, _ = simulation.round(simulation.start())
    with caplog.at_level(logging.WARNING, logger="undrift"):
        second, record = simulation.round(first)
    assert not caplog.messages and not record.rejections
    assert abs(float(second.params - first.params)) > 0.1
