"""The attackers of the study of poisoning upload what its page states, and without them it is a plain run."""

from pathlib import Path

import pytest
import torch

from support.small_images import small_images
from undrift import Local, Simulation, make
from undrift.data import DataTask

pytest.importorskip("flwr")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "studies")


def test_uploads_of_attackers() -> None:
    from poisoning import ATTACKS, forged

    own, honest = torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 6.0]])
    found = {name: forged(name, own, honest, 1).tolist() for name in ATTACKS}
    assert found["sign-flip"] == [-1.0, 2.0] and found["scale"] == [10.0, -20.0]
    assert found["label-flip"] == found["backdoor"] == own.tolist()
    assert found["alie"] == pytest.approx([2 - 1.5, 2 - 1.5 * 12**0.5])
    turned = (honest.sum(dim=0) + torch.tensor(found["inner-product"])) / 4
    assert turned.tolist() == pytest.approx([-0.15, -0.15])  # a tenth of the honest sum, turned round


def test_data_of_attackers() -> None:
    from poisoning import PATCH, poisoned, stamp

    data, own = small_images(), [[0, 1, 2, 3]]
    flipped = poisoned(data, own, "label-flip").train.targets
    assert flipped[:5].tolist() == [9, 8, 7, 6, 4] and torch.equal(flipped[4:], data.train.targets[4:])
    bad = poisoned(data, own, "backdoor").train
    assert bad.targets[:4].tolist() == [0, 1, 0, 3]
    assert torch.equal(bad.inputs[[0, 2]], stamp(data.train.inputs[[0, 2]]))
    assert torch.equal(bad.inputs[1], data.train.inputs[1]) and bool((bad.inputs[0, 0, -PATCH:, -PATCH:] == 255).all())


@pytest.mark.parametrize("method", ["median", "fedfft-d"])
def test_without_attackers_it_is_a_plain_run(method: str) -> None:
    from poisoning import Attack, Attacked, build

    task = DataTask(small_images(), list(torch.arange(200).split(40)), build)
    local = Local(lr=0.1, steps=2, batch_size=10)
    plain = Simulation(make(method), task, local).run(2)
    ours = Simulation(make(method), task, local, backend=Attacked(Attack("none", 0), False)).run(2)
    assert torch.equal(plain.params, ours.params)


def test_the_bound_rejects_the_longest() -> None:
    from poisoning import Attack, Attacked, build

    task = DataTask(small_images(), list(torch.arange(200).split(40)), build)
    backend = Attacked(Attack("scale", 1), True)
    simulation = Simulation(make("uniform"), task, Local(lr=0.1, steps=2, batch_size=10), backend=backend)
    simulation.run(3)
    assert backend.rejected == {True: 2, False: 0}, "in the first round the bound is the model's own norm"
