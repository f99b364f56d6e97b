"""Every method with every local optimizer: as its oracle with that of torch in its steps, or refused with a reason."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import test_adapters as adapted
import test_drift_and_server_methods as drift
import test_feature_methods as features
import test_fedcr as cr
import test_fedetf as etf
import test_fedfsa_fedwmsam_fedscam as seeds
import test_fedsmoo as smoo
import test_label_methods as labelled
import test_moon as moon
import test_newest as newest
import test_oracle as basic
import test_personal_methods as personal
import test_pfedfda as fda
import test_weighting_rules as weighting
import test_whitened as whitened
from oracle.methods import Settings
from oracle.optimizers import TorchMover
from support.rounds import LATE
from undrift import Algorithm, Simulation
from undrift.algorithms import ALGORITHMS, make
from undrift.blocks import LocalAdam, LocalAdamW, LocalSGD
from undrift.core.method.block import LocalOptimizer

OPTIMIZERS: dict[str, tuple[LocalOptimizer[Any, Any, Any, Any, Any], Callable[[Settings], TorchMover]]] = {
    "momentum": (
        LocalSGD(0.6, nesterov=True),
        lambda s: TorchMover(torch.optim.SGD, momentum=0.6, nesterov=True, weight_decay=s.weight_decay),
    ),
    "adam": (
        LocalAdam(0.8, 0.95, 1e-3),
        lambda s: TorchMover(torch.optim.Adam, betas=(0.8, 0.95), eps=1e-3, weight_decay=s.weight_decay),
    ),
    "adamw": (
        LocalAdamW(0.8, 0.95, 1e-3),
        lambda s: TorchMover(torch.optim.AdamW, betas=(0.8, 0.95), eps=1e-3, weight_decay=s.weight_decay),
    ),
}
SLOPES = ("scaffold", "feddc", "fedgamma", "fedlesam-s", "fedfft-s", "fedwmsam")
MOMENTA = ("fedcm", "scaffold-m", "mofedsam", "fedfsa", "fedfsa-random", "fedfsa-reverse")
PLAIN = {
    **dict.fromkeys(SLOPES, "its variates are slopes"),
    **dict.fromkeys(MOMENTA, "its momentum is a slope"),
    "scaffnew": "its variates are displacements by the rate",
    "fedlin": "it reads the clients' gradients off their displacements",
    "fednova": "the reach by which it divides is that of SGD",
    "q-fedavg": "it takes displacements by the rate for gradients",
    "fedrep": "moments would change while their part of the model is frozen",
    "fedpac": "moments would change while their part of the model is frozen",
    "ditto": "v takes SGD steps with the rate of the global model; give it a rate: lr=0.1",
    "fedloge": "the client's head takes SGD steps with the rate of the global model",
    "fedrod": "v takes SGD steps with the rate of the global model",
    "apfl": "v and alpha take SGD steps with the rate of the global model",
}
"""Methods that need plain SGD, and why."""
OWN = {"fedswa", "fedmoswa", "fedadamw", "fedlada", "fedmuon", "fedpac-muon", "fedpac-soap", "fedmuon-cv", "delta-sgd"}
"""Methods whose local optimizer is a part of them: with another they are another method."""
DUALS = ("feddyn", "feddc", "fedspeed", "fedsmoo", "fedgloss", "fedlesam-d", "fedfft-d", "gradfilter-feddyn")
"""Methods whose duals are gradients of the loss at its minimum: they refuse decoupled decay."""

CASES: list[tuple[str, Callable[[], None]]] = [
    *(
        (c.host or c.name, partial(basic.test_equals_its_oracle_with_weight_decay, c, "quadratics"))
        for c in basic.EXACT
    ),
    *((name, partial(drift.test_equals_its_oracle, name, given, 0.05, "quadratics")) for name, given in drift.CASES),
    *((c.name, partial(personal.test_equals_its_oracle, c, "network")) for c in personal.CASES),
    ("fedbn", personal.test_fedbn_equals_its_oracle),
    ("moon", partial(moon.test_equals_its_oracle, "")),
    ("fedetf", partial(etf.test_equals_its_oracle, 1.0, 4)),
    ("fedcr", partial(cr.test_equals_its_oracle, 0.05, 0.6, False)),
    *(
        (c.split()[0], partial(smoo.test_equals_its_oracle, c, replace(smoo.STEPS, clip=2.0, weight_decay=0.05)))
        for c in smoo.SLOW
    ),
    *(
        (c.split()[0].rstrip(","), partial(seeds.test_equals_its_oracle_with_weight_decay, c))
        for c in seeds.CASES
        if "scam" in c
    ),
    *((row[0], partial(weighting.test_equals_its_oracle, *row, None)) for row in weighting.CASES),
    *((name, partial(newest.test_equals_its_oracle, name, given, 0.05, "quadratics")) for name, given in newest.CASES),
    # Logarithms of 1e-9 and correlations leave 1e-12 in a gradient, which Adam divides by eps.
    *((name, partial(labelled.compare, name, given, 1e-7)) for name, given in labelled.CASES),
    ("pfedfda", partial(fda.test_equals_its_oracle, {"beta": 0.3}, 3)),
    ("fedas", partial(features.test_equals_its_oracle, *features.CASES[0], 3)),
    *((name, partial(adapted.test_equals_its_oracle, name)) for name in adapted.METHODS if name != "fedavg"),
    ("whitened", partial(whitened.test_equals_its_oracle, "uniform", {})),
]


def refused(name: str, optimizer: str) -> str:
    """What the refusal of a method with its default arguments says; "" if it is kept."""
    return "a dual is the gradient" if optimizer == "adamw" and name in DUALS else PLAIN.get(name, "")


def test_every_method_is_kept_or_refused() -> None:
    assert {name for name, _ in CASES} | set(PLAIN) | OWN | LATE == set(ALGORITHMS)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_refusals_name_their_reason(name: str, optimizer: str) -> None:
    block, reason = OPTIMIZERS[optimizer][0], refused(name, optimizer)
    if reason:
        with pytest.raises(TypeError, match=r"needs (plain SGD|weight decay).*, found Local") as error:
            replace(make(name), local_optimizer=block)
        assert reason in str(error.value)
    else:
        assert replace(make(name), local_optimizer=block).local_optimizer == block


@pytest.mark.parametrize("name", ["fedper", "fedper-fft", "fedbn", "fedcr"])
def test_a_private_part_keeps_its_moments(name: str) -> None:
    with pytest.raises(TypeError, match=r"needs moments that the server does not average.*private part stay"):
        replace(make(name), local_optimizer=LocalAdamW(moments="average"))
    assert replace(make(name), local_optimizer=LocalAdamW(moments="keep"))


def test_what_is_switched_off_refuses_nothing() -> None:
    for method in (make("fedcm", a=1.0), make("q-fedavg", q=0.0), make("apfl", alpha=0.0), make("ditto", lr=0.1)):
        assert replace(method, local_optimizer=LocalAdam())
    for name in ALGORITHMS:
        assert replace(make(name), local_optimizer=LocalSGD(0.0))


def test_the_page_lists_what_is_refused() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "local-training.md").read_text()
    rows = [
        line.split(" | ")
        for line in page.splitlines()
        if line.startswith(("| all but", "| `local-adamw`, `local-muon`, `local-soap` | `"))
    ]
    listed = {(row[0], name) for row in rows for name in row[1].split("`")[1::2] if name in ALGORITHMS}
    assert listed == {("| all but plain SGD", x) for x in PLAIN} | {
        ("| `local-adamw`, `local-muon`, `local-soap`", x) for x in DUALS
    }


KEPT = [
    pytest.param(run, optimizer, id=f"{name}-{number}-{optimizer}")
    for number, (name, run) in enumerate(CASES)
    for optimizer in OPTIMIZERS
    if not refused(name, optimizer) or (name == "ditto" and "lr" in run.args[0].arguments)  # type: ignore[attr-defined]
]


@pytest.mark.sweep(every=20)
@pytest.mark.parametrize(("run", "optimizer"), KEPT)
def test_equals_the_oracle_with_torch_s_optimizer(
    run: Callable[[], None], optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the method's own oracle, with the optimizer in the library's steps and torch's in the oracle's."""
    block, mover = OPTIMIZERS[optimizer]
    begin = Simulation.__post_init__

    def with_optimizer(self: Simulation) -> None:
        self.algorithm = replace(self.algorithm, local_optimizer=block)  # type: ignore[type-var]
        begin(self)

    monkeypatch.setattr(Simulation, "__post_init__", with_optimizer)
    monkeypatch.setattr(Settings, "mover", mover)
    run()


def test_the_optimizer_is_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "mover", OPTIMIZERS["adamw"][1])
    with pytest.raises(AssertionError, match="is not"):
        basic.test_equals_its_oracle_with_weight_decay(basic.EXACT[0], "quadratics")
    assert Algorithm().local_optimizer.plain
