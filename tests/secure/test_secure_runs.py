"""Runs with secure sums: the plain run over the same survivors bit for bit, and what they refuse."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from undrift import Algorithm, Local, Secure, Simulation, TensorTask, make, parse
from undrift.core.records.rejection import Reason
from undrift.core.server.wire import fingerprint
from undrift.engine.round import secure_round
from undrift.ray import RayBackend
from undrift.runs import Config, ConfigError, load_run, start
from undrift.secure.exchange import STEPS, add_uploads
from undrift.secure.settings import why_not_secure
from undrift.testing.tasks import Quadratics

TASK = Quadratics.random(14)
LOCAL = Local(lr=0.05, batch_size=4, steps=3, weight_decay=0.01)
METHODS = ("fedavg", "scaffold", "fedfft-d", "uniform", "feddyn", "fedcm", "fedsam", "specgrad", "fedavgm", "fedprox")
CASES = (
    *((method, 5) for method in METHODS[:3]),
    *(pytest.param(method, 20, marks=pytest.mark.slow) for method in METHODS),
)


def simulate(method: str | Algorithm, **settings: Any) -> Simulation:
    return Simulation(method, TASK, LOCAL, **{"cohort": 10, "seed": 3, **settings})


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(("method", "rounds"), CASES)
def test_a_secure_run_ends_with_the_hash_of_the_plain_one(
    method: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each round 30 % of the clients drop out in one of the steps of the protocol, in turns."""
    random = Random(1)
    secure, plain = simulate(method, secure=True), simulate(method)
    state, other = secure.start(), plain.start()
    for number in range(rounds):
        clients = secure.sample(number)
        lost, step = set(random.sample(clients, 3)), STEPS[number % len(STEPS)]
        drops = lambda at, party, step=step, lost=lost: at == step and party in lost  # noqa: E731
        monkeypatch.setattr(secure_round, "add_uploads", partial(add_uploads, drops=drops))
        state, record = secure.round(state)
        assert set(record.clients) == (set(clients) - lost if STEPS.index(step) < 3 else set(clients))
        other, _ = plain.round(other, record.clients)
        assert fingerprint(state) == fingerprint(other), f"round {number + 1}, drop-outs in {step}"
    assert state.round == rounds


@pytest.mark.quick
def test_rows_have_means_and_no_number_of_a_client() -> None:
    secure, plain = simulate("fedavg", secure=Secure(least=5)), simulate("fedavg")
    (_, ours), (_, other) = (simulation.round(simulation.start()) for simulation in (secure, plain))
    assert {(visit.examples, visit.loss, visit.weight, visit.norm, visit.gradients) for visit in ours.visits} == {
        (0, 0.0, 0.0, 0.0, 0)
    }
    expected = other.row(0.1)
    assert ours.row(0.1) == pytest.approx({key: x for key, x in expected.items() if key in ours.row(0.1)}, rel=1e-9)
    assert set(expected) - set(ours.row(0.1)) == {key for key in expected if key.startswith("aggregation.")}


def test_a_rejected_client_drops_out_and_is_recorded() -> None:
    """A client longer than the bound is rejected at its own gate; the others are summed."""
    norms = sorted(visit.norm for visit in simulate("fedavg").round(simulate("fedavg").start())[1].visits)
    bound = (norms[-1] + norms[-2]) / 2
    (state, ours), (plain, other) = (
        s.round(s.start()) for s in (simulate("fedavg", bound=bound, secure=True), simulate("fedavg", bound=bound))
    )
    assert fingerprint(state) == fingerprint(plain)
    assert ours.clients == other.clients and len(ours.clients) == 9
    assert [r.reason for r in ours.rejections] == [Reason.SIZE]


def test_a_round_with_too_few_clients_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation("fedavg", TASK, LOCAL, probability=0.9, secure=Secure(least=14))
    state, record = simulation.round(simulation.start(), [0, 1, 2])
    assert not record.clients and {r.reason for r in record.rejections} == {Reason.MASKED}
    assert "3 parties, and a sum needs 14 or more" in record.rejections[0].detail
    assert state.round == 1 and (state.params == simulation.start().params).all()
    assert "round 1 is abandoned, nothing is unmasked" in caplog.text


@pytest.mark.parametrize(
    ("method", "settings", "why"),
    [
        ("median", {}, "takes uploads one by one, which a secure sum hides"),
        ("krum", {}, "takes uploads one by one"),
        ("fedavg + power-of-choice(12)", {}, "reads the loss of every candidate"),
        ("fedavg", {"cohort": 2}, "a cohort of 2, and a sum of fewer than 3 is not unmasked"),
        ("fedavg", {"backend": RayBackend()}, "RayBackend adds uploads where they are trained"),
    ],
)
def test_what_a_secure_sum_cannot_hide_is_refused(method: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"secure: .*{why}"):
        simulate(method, secure=True, **settings)


def test_counters_of_batches_are_refused_unless_they_stay_with_the_clients() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))

    task = TensorTask(model, torch.randn(48, 4), torch.arange(48) % 2, [range(i, 48, 4) for i in range(4)])
    with pytest.raises(ValueError, match="counters of batches, whose maximum over clients is no sum"):
        Simulation("fedavg", task, Local(steps=2), secure=True)
    kept = Local(steps=2, buffers="keep")
    states = [Simulation("fedavg", task, kept, secure=secure).run(3) for secure in (True, None)]
    assert fingerprint(states[0]) == fingerprint(states[1])


def test_every_method_of_sums_can_be_secure() -> None:
    assert why_not_secure(make("scaffold"), Local()) == ""
    assert "one by one" in why_not_secure(make("median"), Local())
    assert why_not_secure(parse("uniform + private-sum(1.0, 1.0)"), Local()) == ""


def test_private_noise_on_a_secure_sum() -> None:
    """The noise is the server's, on the sum that it unmasks: the same run."""
    states = [simulate("uniform + private-sum(0.05, 1.0)", secure=secure).run(2) for secure in (True, None)]
    assert fingerprint(states[0]) == fingerprint(states[1])


def test_a_run_file_with_secure_sums(tmp_path: Path) -> None:
    common = {"data": "digits", "clients": 6, "cohort": 4, "rounds": 2, "output": {"lens_every": 0}}
    files = {"secure": {"secure": {"least": 4}}, "plain": {}}
    runs = {name: start(Config.build({**common, **own}), tmp_path / name) for name, own in files.items()}
    assert runs["secure"].sha256 == runs["plain"].sha256
    first, other = (load_run(tmp_path / name).history[0] for name in files)
    assert first["bytes_up"] > other["bytes_up"] and first["train_loss"] == pytest.approx(other["train_loss"])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "secure: the lens reads uploads of single clients"),
        ({"engine": {"name": "ray"}}, "secure: the ray engine adds uploads where they are trained"),
        ({"method": "median", "output": {"lens_every": 0}}, "secure: .*takes uploads one by one"),
        ({"secure": {"threshold": 0.3}}, "secure.threshold"),
    ],
)
def test_run_files_that_would_not_hide_uploads_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Config.build({"data": "digits", "secure": True, **settings})
