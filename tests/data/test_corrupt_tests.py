"""The official test set under corruption: its images, their cache, and the tests of clients."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.corruption import COLOUR
from undrift.data import CorruptTests, Dataset, DataTask, Split
from undrift.data.arrays import cache
from undrift.data.tasks.corruption import corrupt, own_kinds, sample_keys

pytest.importorskip("PIL")
KINDS = ("gaussian-noise", "contrast", "brightness")


class Judge(nn.Module):
    """Answers 1 for images brighter than the clean ones are on average, else 0."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(float(COLOUR.mean()) / 255))

    def forward(self, images: Tensor) -> Tensor:
        brighter = (images.mean((1, 2, 3)) > self.level).long()
        return nn.functional.one_hot(brighter, 2).float()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path))
    return tmp_path


def clean() -> Split:
    return Split(torch.from_numpy(COLOUR.copy()), torch.arange(40) % 2)


def shifted(**changes: Any) -> CorruptTests:
    return CorruptTests(**{"clean": clean(), "kinds": KINDS, "severity": 4, "seed": 1, **changes})


def task(**changes: Any) -> DataTask:
    data = Dataset("toy", "image", clean(), clean(), 2, (0.0,) * 3, (1.0,) * 3, "Toy")
    clients = [np.arange(0, 16), np.arange(16, 40)]
    settings = {"dataset": data, "clients": clients, "make": Judge, "seed": 1, "corruptions": shifted(clean=data.test)}
    return DataTask(**{**settings, **changes})


def test_an_image_depends_on_its_index_type_and_severity_only() -> None:
    for kind in KINDS:
        whole = shifted().under(kind)
        assert torch.equal(whole.inputs, shifted(seed=7, kinds=(kind,)).under(kind).inputs)
        alone = corrupt(COLOUR[9:10], kind, sample_keys(0, [9], f"test {kind}"), 4)
        assert np.array_equal(whole.inputs[9:10].numpy(), alone) and torch.equal(whole.targets, clean().targets)
        assert not torch.equal(whole.inputs, shifted(severity=1).under(kind).inputs)
    with pytest.raises(ValueError, match="'snow' is none of the types tested: gaussian-noise, contrast, brightness"):
        shifted().under("snow")


def test_images_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(*arguments: object) -> object:
        made.append(str(arguments[1]))
        return corrupt(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("undrift.data.tasks.corruption.corrupt", counted)
    first = shifted()
    first.make()
    first.make()
    again = shifted()
    assert again.under("contrast").inputs.equal(first.under("contrast").inputs) and made == list(KINDS)
    assert len(list(folder.iterdir())) == 3
    changed = clean()
    changed.inputs[0, 0, 0, 0] += 1
    shifted(clean=changed).under("contrast")  # of other images
    assert made == [*KINDS, "contrast"]
    monkeypatch.setattr(cache, "write", lambda *_: False)  # a folder that cannot be written to
    other = shifted(severity=2)
    assert other.under("contrast") is other.under("contrast") and made[4:] == ["contrast"]


def test_images_are_not_pickled() -> None:
    made = shifted()
    before = len(pickle.dumps(made))
    made.make()
    assert len(pickle.dumps(made)) == before
    assert torch.equal(pickle.loads(pickle.dumps(made)).under("contrast").inputs, made.under("contrast").inputs)


def test_a_client_is_tested_under_its_own_types() -> None:
    ready, judge = task(), Judge()
    shift = ready.corruptions
    assert shift is not None
    accuracies = ready.per_client(judge)
    for client in range(2):
        own = ready.own(client)
        images = [
            shift.under(kind).inputs[i] for i, kind in zip(own.tolist(), own_kinds(client, own, 1, KINDS), strict=True)
        ]
        right = judge(torch.stack(images).float() / 255).argmax(1) == ready.dataset.test.targets[own]
        assert ready.own_score(judge, client).accuracy == pytest.approx(float(right.double().mean()))
        assert accuracies[client] == pytest.approx(float(right.double().mean()))
        taken = shift.take(shift.places(client, own))
        assert torch.equal(taken.inputs, torch.stack(images)) and len(taken) == len(own)
    under, losses = ready.under_types(judge)
    assert under.shape == (3, 40) and losses.shape == (3,)
    assert torch.equal(ready.per_client(judge, under), accuracies)
    assert not torch.equal(task(corruptions=None).per_client(judge), accuracies)


def test_the_test_is_that_of_all_types() -> None:
    ready, judge = task(), Judge()
    under, losses = ready.under_types(judge)
    result = ready.test(judge)
    assert result.accuracy == pytest.approx(float(under.double().mean())) and result.examples == 120
    assert result.loss == pytest.approx(float(losses.mean()))
    assert torch.equal(ready.correct(judge)[0], task(corruptions=None).correct(judge)[0])  # not corrupted
    assert result.accuracy != task(corruptions=None).test(judge).accuracy
    with pytest.raises(ValueError, match='the test set is not corrupted; give corruptions=, or partition = "corrupt"'):
        task(corruptions=None).under_types(judge)


def test_the_tests_are_those_of_the_data() -> None:
    with pytest.raises(ValueError, match=r"corruptions must be those of the data's test set: CorruptTests\(dataset"):
        task(corruptions=shifted())
    again = pickle.loads(pickle.dumps(task()))
    assert again.corruptions.clean is again.dataset.test  # the images are sent once


def test_held_out_examples_are_used_as_they_are() -> None:
    held = task(holdout=0.25)
    assert torch.equal(held.per_client(Judge()), task(holdout=0.25, corruptions=None).per_client(Judge()))


def test_grey_images_cannot_be_saturated() -> None:
    grey = Split(torch.zeros(4, 1, 28, 28, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="these images are grey; name the others: types=snow"):
        shifted(clean=grey, kinds=("snow", "saturate"))
    with pytest.raises(ValueError, match="these images are grey; name the others: types=standard"):
        shifted(clean=grey, kinds=("saturate",))
