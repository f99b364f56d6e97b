"""The task over a data set: its batches, its augmentation, the tests of all and of each client."""

import pickle
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from undrift import Local, Simulation, TensorTask, make
from undrift.core.tasks.metrics import mae
from undrift.data import Augment, Dataset, DataTask, Evaluation, Split
from undrift.data.tasks.evaluate import answers, apportion, check_indices, owner_tests

CLASSES = 4
MEAN, STD = (0.5, 0.25), (0.2, 0.1)


class Brightest(nn.Module):
    """Answers with the class written into the first pixel; its mode is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.modes: list[bool] = []
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.modes.append(self.training)
        self.seen += len(images)
        said = ((images[:, 0, 0, 0] * STD[0] + MEAN[0]) * 255).round().long()
        return nn.functional.one_hot(said, CLASSES).float() * self.weight


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * 6 * 6, CLASSES))


def split(count: int, seed: int, owners: Sequence[int] | None = None, wrong: int = 0) -> Split:
    """Random images with their class in the first pixel, except that the first few lie."""
    draw = Generator().manual_seed(seed)
    inputs = torch.randint(256, (count, 2, 6, 6), generator=draw, dtype=torch.uint8)
    targets = torch.arange(count) % CLASSES
    inputs[:, 0, 0, 0] = targets.to(torch.uint8)
    inputs[:wrong, 0, 0, 0] = (targets[:wrong] + 1).remainder(CLASSES).to(torch.uint8)
    return Split(inputs, targets, None if owners is None else torch.tensor(owners))


def data(train: Split | None = None, test: Split | None = None) -> Dataset:
    return Dataset("toy", "image", train or split(40, 0), test or split(80, 1, wrong=8), CLASSES, MEAN, STD, "Toy")


CLIENTS = [np.arange(0, 20), np.arange(20, 37), np.array([39, 37, 38])]


def toy(**changes: Any) -> DataTask:
    return DataTask(**{"dataset": data(), "clients": CLIENTS, "make": linear, **changes})


def epoch(task: DataTask, client: int, size: int = 8, seed: int = 5) -> list[tuple[Tensor, Tensor]]:
    return list(task.batches(client, size, Generator().manual_seed(seed)))


def test_batches_are_those_of_a_tensor_task() -> None:
    task = toy()
    raw = task.dataset.train.inputs.double() / 255
    mean, std = (torch.tensor(x, dtype=torch.float64).view(2, 1, 1) for x in (MEAN, STD))
    plain = TensorTask(linear, (raw - mean) / std, task.dataset.train.targets, [torch.as_tensor(c) for c in CLIENTS])
    ours, theirs = Generator().manual_seed(5), Generator().manual_seed(5)
    for _ in range(2):  # the second epoch goes on with the same generator
        for (x, y), (a, b) in zip(task.batches(1, 8, ours), plain.batches(1, 8, theirs), strict=True):
            assert torch.allclose(x.double(), a, atol=1e-5) and torch.equal(y, b)
            assert x.dtype == torch.float32 and x.is_contiguous(memory_format=torch.channels_last)
    assert [len(y) for _, y in epoch(task, 1)] == [8, 8, 1]
    assert task.population == 3 and [task.examples(c) for c in range(3)] == [20, 17, 3]
    for p, q in zip(task.model().parameters(), plain.model().parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("augment", ["flip", "crop", "flip+crop"])
def test_augmenting_keeps_the_order_and_the_generator(augment: str) -> None:
    plain, changed = toy(), toy(augment=augment)
    one, two = Generator().manual_seed(3), Generator().manual_seed(3)
    for _ in range(2):
        pairs = list(zip(plain.batches(0, 8, one), changed.batches(0, 8, two), strict=True))
        assert all(torch.equal(a[1], b[1]) for a, b in pairs)
        assert any(not torch.equal(a[0], b[0]) for a, b in pairs)
        assert torch.equal(one.get_state(), two.get_state())
    assert all(torch.equal(a[0], b[0]) for a, b in zip(epoch(changed, 0), epoch(changed, 0), strict=True))
    other = zip(epoch(changed, 0), epoch(changed, 0, seed=6), strict=True)
    assert not all(torch.equal(a[0], b[0]) for a, b in other)


def test_flip_mirrors_half() -> None:
    images = split(2000, 3).inputs
    out = Augment(flip=True)(images, Generator().manual_seed(0))
    mirrored = (out == images.flip(3)).flatten(1).all(1)
    same = (out == images).flatten(1).all(1)
    assert bool((mirrored ^ same).all()) and 900 < int(mirrored.sum()) < 1100


@pytest.mark.parametrize("augment", ["crop", "flip+crop"])
def test_crop_cuts_from_the_padded_image(augment: str) -> None:
    images = split(300, 4).inputs
    out = Augment.parse(augment)(images, Generator().manual_seed(0))
    padded = nn.functional.pad(images, [4] * 4)
    found = torch.zeros(2, 300, 9, 9, dtype=torch.bool)  # as it is or mirrored, for each image and offset
    for top in range(9):
        for left in range(9):
            cut = padded[:, :, top : top + 6, left : left + 6]
            found[0, :, top, left] = (out == cut).flatten(1).all(1)
            found[1, :, top, left] = (out == cut.flip(3)).flatten(1).all(1)
    offsets = found.any(0)
    assert out.dtype == torch.uint8 and bool(offsets.flatten(1).any(1).all())
    assert bool(offsets.any(0).any(1).all()) and bool(offsets.any(0).any(0).all())  # every offset occurs
    straight = int(found[0].flatten(1).any(1).sum())
    assert straight == 300 if augment == "crop" else 110 < straight < 190


def test_augment_off_changes_nothing() -> None:
    images = split(3, 0).inputs
    assert Augment.parse("none")(images, Generator()) is images


def test_holdout_is_disjoint_and_fixed() -> None:
    task, again, other = toy(holdout=0.3), toy(holdout=0.3), toy(holdout=0.3, seed=1)
    assert [len(task.own(c)) for c in range(3)] == [6, 5, 1]
    for client, own in enumerate(CLIENTS):
        train, held = task.training(client), task.own(client)
        assert sorted([*train.tolist(), *held.tolist()]) == sorted(own.tolist())
        assert len(train) == task.examples(client) == int(task.label_counts(client).sum())  # type: ignore[union-attr]
        assert torch.equal(held, again.own(client))
        seen = torch.cat([y for _, y in epoch(task, client)])
        assert torch.equal(torch.bincount(seen, minlength=CLASSES), task.label_counts(client))  # type: ignore[arg-type]
    assert not torch.equal(task.own(0), other.own(0))
    assert task.own_split is task.dataset.train
    lonely = toy(clients=[np.array([7]), np.array([], np.int64)], holdout=0.9)
    assert lonely.examples(0) == 1 and len(lonely.own(0)) == 0 and lonely.examples(1) == 0
    assert epoch(lonely, 1) == []


def test_no_client_trains_on_what_another_holds_out() -> None:
    for clients in ([range(30), range(10, 40), [3]], [range(20)] * 3, [[0, 0, 1, 1, 2, 3], range(4, 40)]):
        task = toy(clients=clients, holdout=0.3)
        trained = {int(i) for c in range(task.population) for i in task.training(c)}
        tested = {int(i) for c in range(task.population) for i in task.own(c)}
        assert not trained & tested and trained | tested == {i for own in clients for i in own}
        assert abs(len(tested) - 0.3 * len(trained | tested)) <= 1
        for client in range(task.population):
            assert task.examples(client) == len(task.training(client)) >= 1
    assert toy(clients=[[5], [5]], holdout=0.9).examples(1) == 1


def test_an_empty_client_does_not_change_the_tests_of_others() -> None:
    owned = data(split(40, 0, [i // 20 for i in range(40)]), split(80, 1, [i // 40 for i in range(80)]))
    task = toy(dataset=owned, clients=[range(20), range(20, 40), []])
    assert [len(task.own(c)) for c in range(3)] == [40, 40, 0] and torch.equal(task.own(1), torch.arange(40, 80))
    assert toy(dataset=owned, clients=[[], []]).own(0).tolist() == []
    assert owner_tests(owned, [torch.arange(10, 30)]) is None


def test_histogram() -> None:
    assert toy().label_counts(2).tolist() == [0, 1, 1, 1]  # type: ignore[union-attr]
    assert sum(toy().label_counts(c) for c in range(3)).tolist() == [10] * 4  # type: ignore[misc, attr-defined]


@pytest.mark.parametrize(
    ("counts", "seats", "expected"),
    [([3, 3, 3], 1, [1, 0, 0]), ([7, 2, 1], 10, [7, 2, 1]), ([5, 3, 0], 4, [3, 1, 0]), ([0, 0], 3, [0, 0])],
)
def test_apportion(counts: list[int], seats: int, expected: list[int]) -> None:
    """[5, 3] of 4 seats: 2.5 and 1.5, equal remainders, the earlier wins."""
    assert apportion(torch.tensor(counts), seats).tolist() == expected


def test_own_test_is_drawn_like_the_training_labels() -> None:
    train = Split(torch.zeros(600, 2, 6, 6, dtype=torch.uint8), torch.tensor([0] * 300 + [1] * 250 + [3] * 50))
    task = toy(dataset=data(train), clients=[np.arange(600), np.arange(290, 310)])
    large, small = task.own(0), task.own(1)
    drawn = torch.bincount(task.dataset.test.targets[large], minlength=CLASSES).tolist()
    assert drawn == [20, 20, 0, 8]  # of 100, 50 and 42 were due, but a class has 20
    assert torch.bincount(task.dataset.test.targets[small], minlength=CLASSES).tolist() == [10, 10, 0, 0]
    assert len(large.unique()) == len(large) and torch.equal(
        large, toy(dataset=data(train), clients=task.clients).own(0)
    )
    assert not torch.equal(small, toy(dataset=data(train), clients=task.clients, seed=1).own(1))


def test_own_test_by_owner() -> None:
    train, test = split(40, 0, [9] * 20 + [2] * 17 + [5] * 3), split(8, 1, [2, 9, 5, 5, 2, 9, 9, 7])
    task = toy(dataset=data(train, test))
    assert [task.own(c).tolist() for c in range(3)] == [[1, 5, 6], [0, 4], [2, 3]]
    mixed = toy(dataset=data(train, test), clients=[np.arange(18, 22), np.arange(22, 40)])
    assert len(mixed.own(0)) == 4  # two owners in one client: drawn by label instead
    given = toy(dataset=data(train, test), local_tests=[[0], [1, 7], torch.tensor([3])])
    assert [given.own(c).tolist() for c in range(3)] == [[0], [1, 7], [3]]


def test_scores() -> None:
    task, module = toy(), Brightest()
    right, loss = task.correct(module)
    assert right.tolist() == [False] * 8 + [True] * 72
    sure, unsure = -np.log(np.e / (np.e + 3)), -np.log(1 / (np.e + 3))
    assert loss == pytest.approx(0.9 * sure + 0.1 * unsure, rel=1e-6)
    assert task.test(module) == Evaluation(0.9, loss, 80)
    assert bool(task.correct(module, "train")[0].all())
    assert module.training and not any(module.modes)
    module.eval()
    task.test(module)
    assert not module.training


def test_mode_is_restored_after_an_error() -> None:
    module = linear().train()
    with pytest.raises(RuntimeError):
        answers(module, split(3, 0), lambda x: x)
    assert module.training


def test_batches_of_evaluation_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    task = toy()
    module = task.model()
    whole = task.correct(module)
    monkeypatch.setattr("undrift.data.tasks.evaluate.BATCH", 7)
    parts = task.correct(module)
    assert torch.equal(whole[0], parts[0]) and whole[1] == pytest.approx(parts[1], rel=1e-6)


@pytest.mark.parametrize("settings", [{}, {"holdout": 0.3}, {"local_tests": [[0, 9], [], [8, 9, 7, 1]]}])
def test_per_client_is_the_own_score_of_each(settings: dict[str, Any]) -> None:
    task, module = toy(**settings), Brightest()
    accuracies = task.per_client(module)
    needed = {n for c in range(3) for n in task.own(c).tolist()}
    assert module.seen == len(needed)  # each example once
    for client in range(3):
        score = task.own_score(module, client)
        assert float(accuracies[client]) == pytest.approx(score.accuracy, nan_ok=True)
        assert score.examples == len(task.own(client))
    if "local_tests" in settings:
        assert accuracies[[0, 2]].tolist() == [0.5, 0.5] and bool(accuracies[1].isnan())


def test_text() -> None:
    tokens = Split(torch.randint(50, (30, 9), dtype=torch.uint8), torch.arange(30) % CLASSES)
    text = Dataset("toy", "text", tokens, tokens, CLASSES, (), (), "Toy", symbols=50)
    task = DataTask(
        text, [torch.arange(30)], lambda: nn.Sequential(nn.Embedding(50, 3), nn.Flatten(), nn.Linear(27, CLASSES))
    )
    batch = epoch(task, 0)[0]
    assert batch[0].dtype == torch.int64 and text.shape == (9,)
    assert task.loss(task.model(), batch).isfinite() and task.test(task.model()).examples == 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment": "rotate"}, '"crop" or "flip\\+crop", got \'rotate\''),
        ({"holdout": 1.0}, r"holdout must be a fraction in \[0, 1\), got 1.0"),
        ({"holdout": 0.1, "local_tests": [[], [], []]}, "give holdout or local_tests, not both"),
        ({"local_tests": [[]]}, "one list for each of 3 clients, got 1"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toy(**changes)


def test_indices_that_cannot_be_written_to_are_read_without_a_warning() -> None:
    """As those that come from another process are."""
    chosen, warned = np.arange(5), torch.is_warn_always_enabled()
    chosen.flags.writeable = False
    torch.set_warn_always(True)  # otherwise torch warns once in a process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert check_indices(chosen, 5, "client 0").tolist() == [0, 1, 2, 3, 4]
    finally:
        torch.set_warn_always(warned)


def test_bad_numbers() -> None:
    with pytest.raises(ValueError, match=r"client 1 must contain indices in \[0, 40\), got 3 to 40"):
        epoch(toy(clients=[[0], [3, 40]]), 1)
    with pytest.raises(ValueError, match=r"local_tests of client 0 must contain indices in \[0, 80\), got -1 to 2"):
        toy(local_tests=[[-1, 2], [], []]).own(0)
    with pytest.raises(ValueError, match='split must be "train" or "test", got \'valid\''):
        toy().correct(linear(), "valid")
    tokens = Split(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="augment must be \"none\" for text, got 'flip'"):
        toy(dataset=Dataset("t", "text", tokens, tokens, 1, (), (), "T", 5), augment="flip")


def test_travels_and_trains() -> None:
    task = toy(augment="flip+crop", holdout=0.2)
    task.per_client(task.model())
    other = pickle.loads(pickle.dumps(task))
    assert torch.equal(other.own(0), task.own(0))
    runs = [Simulation(make("fedavg"), t, Local(lr=0.1, batch_size=8), seed=1).run(rounds=2) for t in (task, other)]
    assert torch.equal(runs[0].params, runs[1].params)


def table(targets: torch.Tensor, classes: int = 0) -> Dataset:
    inputs = torch.randn(len(targets), 3, generator=torch.Generator().manual_seed(1))
    split = Split(inputs, targets)
    return Dataset("rows", "table", split, split, classes, (), (), "Rows")


def test_numbers_and_labels_as_targets() -> None:
    """Loss and metrics follow the targets: numbers, several labels, classes."""
    draw = torch.Generator().manual_seed(0)
    numbers, labels = torch.randn(30, generator=draw), (torch.rand(30, 4, generator=draw) > 0.5).float()
    regression = DataTask(table(numbers), [range(10), range(10, 30)], partial(nn.Linear, 3, 1), holdout=0.2)  # type: ignore[list-item]
    model = regression.model()
    outputs = model(regression.dataset.test.inputs).detach().squeeze(1)
    found = regression.evaluate(model)
    assert list(found) == ["test_loss", "mse", "mae"] and not regression.classifies
    assert (
        found["test_loss"] == pytest.approx(found["mse"]) == pytest.approx(float((outputs - numbers).square().mean()))
    )
    assert found["mae"] == pytest.approx(float((outputs - numbers).abs().mean()))
    held = regression.own(0)
    assert regression.evaluate_client(model, 0)["mae"] == pytest.approx(float((outputs - numbers)[held].abs().mean()))
    assert regression.label_counts(0) is None
    multi = DataTask(table(labels), [range(30)], partial(nn.Linear, 3, 4), metrics={"mae": mae})  # type: ignore[list-item]
    assert list(multi.evaluate(multi.model())) == ["test_loss", "label_accuracy", "exact_match", "mae"]
    assert len(multi.own(0)) == 0 and multi.evaluate_client(multi.model(), 0) == {}, "no labels to draw a test by"
    with Simulation(make("scaffold"), multi, Local(lr=0.1)) as simulation:
        after = multi.evaluate(simulation.module(simulation.run(5)))
    assert after["test_loss"] < multi.evaluate(multi.model())["test_loss"]


def test_a_loss_of_ones_own_on_classes() -> None:
    classes = torch.arange(30) % 3
    own = DataTask(
        table(classes, 3),
        [range(30)],  # type: ignore[list-item]
        partial(nn.Linear, 3, 3),
        criterion=nn.CrossEntropyLoss(label_smoothing=0.5),
    )
    plain = DataTask(table(classes, 3), [range(30)], partial(nn.Linear, 3, 3))  # type: ignore[list-item]
    model = plain.model()
    assert plain.classifies and not own.classifies
    assert own.evaluate(model)["accuracy"] == plain.test(model).accuracy == plain.evaluate(model)["accuracy"]
    assert own.evaluate(model)["test_loss"] != pytest.approx(plain.test(model).loss)
