"""Data sets and loaders as clients: one order for a seed, whatever the loader; what cannot be repeated is refused."""

import random
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from undrift import LoaderTask, Local, Simulation, TensorTask, make
from undrift.core.tasks.tensor_task import logits
from undrift.data import by_column, lightning_loss
from undrift.data.tasks.rng_streams import Streams

DRAW = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(30, 3, generator=DRAW), torch.randn(30, 1, generator=DRAW)
PARTS = [range(0, 12), range(12, 20), range(20, 30)]
WHOLE = TensorDataset(INPUTS, TARGETS)
SETS = [Subset(WHOLE, part) for part in PARTS]


def net() -> nn.Module:
    return nn.Linear(3, 1)


def state(task: Any, **local: Any) -> Tensor:
    with Simulation(make("scaffold"), task, Local(**{"lr": 0.1, "batch_size": 4, "epochs": 2, **local})) as simulation:
        return simulation.run(2).params


def epoch(task: LoaderTask, seed: int, size: int = 4) -> Any:
    return list(task.batches(0, size, Generator().manual_seed(seed)))


def test_data_sets_loaders_and_tensors_train_alike() -> None:
    loaders = [DataLoader(data, batch_size=4, shuffle=True, num_workers=2) for data in SETS]
    sets, loaded = (LoaderTask(net, data, criterion=nn.MSELoss()) for data in (SETS, loaders))
    assert torch.equal(state(sets), state(loaded))
    assert (loaded.batch_size, sets.batch_size, sets.examples(1)) == (4, None, 8)
    tensors = TensorTask(net, INPUTS, TARGETS, PARTS, nn.MSELoss())
    first, own = next(iter(tensors.batches(0, 4, Generator().manual_seed(5)))), epoch(sets, 5)[0]
    assert torch.equal(first[0], own[0]) and torch.equal(first[1], own[1])


def test_a_loader_without_shuffling_keeps_its_order() -> None:
    task = LoaderTask(net, [DataLoader(SETS[0], batch_size=5)], criterion=nn.MSELoss())
    assert torch.equal(torch.cat([x for x, _ in epoch(task, 3, 5)]), INPUTS[:12])
    assert [len(x) for x, _ in epoch(task, 3, 5)] == [5, 5, 2]
    with pytest.raises(
        ValueError, match=r"clients\[0\]: its DataLoader has batch_size 5, but the run 4; set the run's"
    ):
        epoch(task, 3, 4)


class Noisy(Dataset[Any]):
    """Draws from every global stream."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.tensor([random.random(), np.random.rand(), float(torch.rand(()))]), i


def test_random_transforms_depend_on_the_generator_only() -> None:
    task = LoaderTask(net, [Noisy()])
    states = random.getstate(), torch.get_rng_state()
    one = epoch(task, 1)
    random.random(), torch.rand(3), np.random.rand()
    two, other = epoch(task, 1), epoch(task, 2)
    assert all(torch.equal(x[0], y[0]) for x, y in zip(one, two, strict=True))
    assert not torch.equal(torch.cat([x for x, _ in one]).sort().values, torch.cat([x for x, _ in other]).sort().values)
    assert len(torch.unique(torch.cat([x for x, _ in one]))) == 18, "batch after batch the streams go on"
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    reference = random.random(), torch.rand(())
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    epoch(task, 1)
    assert (random.random(), torch.rand(())) == reference, "outside nothing was drawn"


def test_streams_come_back_after_an_error() -> None:
    before = random.getstate()
    with pytest.raises(ZeroDivisionError), Streams(1):
        random.choice([1]) / 0
    assert random.getstate() == before


class Stream(IterableDataset[Any]):
    """Has no length."""

    def __iter__(self) -> Any:
        return iter([])


def weighted(data: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=4, sampler=WeightedRandomSampler([1.0] * 12, 12))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (weighted(SETS[0]), r"clients\[0\]: its sampler, WeightedRandomSampler, draws in its own way"),
        (
            DataLoader(SETS[0], batch_sampler=BatchSampler(SequentialSampler(SETS[0]), 4, False)),
            "its own batch_sampler",
        ),
        (DataLoader(SETS[0], batch_size=None), "its own batch_sampler, or no batches"),
        (DataLoader(SETS[0], batch_size=4, drop_last=True), "drop_last leaves out other examples in every epoch"),
        (Stream(), "Stream has no length or no items by index"),
        (DataLoader(Stream()), "Stream has no length or no items by index"),
        (iter([1]), "has no length or no items by index"),
    ],
)
def test_what_cannot_be_given_again_is_refused(data: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        LoaderTask(net, [data])


def test_other_refusals() -> None:
    with pytest.raises(
        ValueError, match=r"one batch_size, that of the run, got 4 at clients\[1\] and 2 at clients\[0\]"
    ):
        LoaderTask(net, [DataLoader(SETS[0], batch_size=2), DataLoader(SETS[1], batch_size=4)])
    with pytest.raises(ValueError, match=r"give loss, of .model, batch., or criterion"):
        LoaderTask(net, SETS, lambda *_: torch.zeros(()), criterion=nn.MSELoss())
    task = LoaderTask(net, [TensorDataset(INPUTS, INPUTS, TARGETS)])
    with pytest.raises(
        ValueError, match=r"a batch is a list of 3, neither a pair .inputs, targets. nor a mapping; give loss="
    ):
        task.loss(net(), epoch(task, 0)[0])
    with pytest.raises(ValueError, match="called with x, Named returned no loss; give labels in the batch, or loss="):
        LoaderTask(net, [[{"x": 1.0}]]).loss(Named(), {"x": torch.ones(2, 1)})
    with pytest.raises(
        ValueError, match=r"ids: the examples of a batch cannot be stacked .*equally long, or give collate_fn"
    ):
        epoch(LoaderTask(net, [[{"ids": [1, 2]}, {"ids": [1]}]]), 0)


def test_one_data_set_or_one_model_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"clients: TensorDataset is one data set, .*Subset\(data, own\) for own in"):
        LoaderTask(net, WHOLE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"LoaderTask: make builds .* the model's class or a function"):
        LoaderTask(net(), SETS)
    assert LoaderTask(net, ClientSets()).population == len(SETS)  # type: ignore[arg-type]


class ClientSets(Dataset[Any]):
    """A data set of the clients' data sets."""

    def __len__(self) -> int:
        return len(SETS)

    def __getitem__(self, client: int) -> Any:
        return SETS[client]


class Named(nn.Module):
    """Returns an object, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        if labels is None:
            return SimpleNamespace(logits=x)
        logits = self.out(self.embed(x)).mean(1)
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


ROWS = [{"x": [i % 5, (i + 1) % 5], "labels": i % 5, "who": "ab"[i % 2]} for i in range(20)]


@pytest.mark.quick
def test_batches_with_names_and_clients_by_column() -> None:
    datasets = pytest.importorskip("datasets")
    arrow = datasets.Dataset.from_list(ROWS)
    found = []
    for data in (ROWS, arrow):
        clients = by_column(data, "who")
        test = [{key: row[key] for key in ("x", "labels")} for row in ROWS]
        task = LoaderTask(Named, clients, test=test, metrics=["accuracy", "perplexity"])
        assert [task.examples(i) for i in range(task.population)] == [10, 10]
        batch = epoch(task, 0)[0]
        assert isinstance(batch, Mapping) and list(batch) == ["x", "labels"] and batch["x"].shape == (4, 2)
        row = task.evaluate(task.model())
        assert list(row) == ["test_loss", "accuracy", "perplexity"]
        found.append((state(task), row))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]
    with pytest.raises(ValueError, match="by_column: no column is named 'whom'; there are x, labels, who"):
        by_column(ROWS, "whom")


class Lit(nn.Module):
    """A Lightning-style module."""

    def __init__(self, mapping: bool = False) -> None:
        super().__init__()
        self.layer, self.mapping = nn.Linear(3, 1), mapping

    def training_step(self, batch: Any, _: int) -> Any:
        loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        return {"loss": loss} if self.mapping else loss


@pytest.mark.parametrize("mapping", [False, True])
def test_lightning_style(mapping: bool) -> None:
    task = LoaderTask(lambda: Lit(mapping), SETS, lightning_loss, test=WHOLE)
    assert torch.equal(state(task), state(LoaderTask(net, SETS, criterion=nn.MSELoss())))
    assert list(task.evaluate(task.model())) == ["test_loss"]
    with pytest.raises(TypeError, match="Linear has no training_step"):
        lightning_loss(net(), None)


def test_own_loss_and_predictions() -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        out: Tensor = (model(batch[0]) - batch[1]).square().mean()
        return out

    def predict(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return 2 * model(batch[0]), 2 * batch[1]

    plain = LoaderTask(net, SETS, loss, test=WHOLE, client_tests=[SETS[0], None, SETS[2]], metrics=["mae"])
    doubled = LoaderTask(net, SETS, loss, test=WHOLE, metrics=["mae"], predict=predict)
    model = plain.model()
    assert doubled.evaluate(model)["mae"] == pytest.approx(2 * plain.evaluate(model)["mae"])
    assert plain.evaluate_client(model, 1) == {} and len(plain.evaluate_client(model, 2)) == 2


class Two(nn.Module):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        out: Tensor = self.head(a) + b
        return out


def test_several_inputs_that_the_model_does_not_take_are_answered_with_advice() -> None:
    pairs = [((INPUTS[i], TARGETS[i]), TARGETS[i]) for i in range(8)]
    task = LoaderTask(Two, [pairs], criterion=nn.MSELoss(), test=pairs)
    with pytest.raises(TypeError, match=r"Two was called with one list of inputs.*give loss= a function of"):
        task.evaluate(task.model())
    named = [{"image": INPUTS[i], "mask": TARGETS[i]} for i in range(8)]

    def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        out: Tensor = model(batch["image"]).square().mean()
        return out

    own = LoaderTask(net, [named], loss=loss, test=named, metrics=["mae"])
    with pytest.raises(TypeError, match=r"names image, mask.*give predict= .* that returns outputs and targets"):
        own.evaluate(own.model())


class Answers(nn.Module):
    """Returns a dict, with the loss if it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"logits": logits} | ({} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)})


@pytest.mark.parametrize("named", [True, False])
def test_outputs_in_a_dict(named: bool) -> None:
    inputs = torch.linspace(-1, 1, 10).view(10, 1)
    rows = [{"x": x, "labels": i % 2} if named else (x, i % 2) for i, x in enumerate(inputs)]
    task = LoaderTask(Answers, [rows], test=rows, metrics=["accuracy"])
    model: Any = task.model()
    right = float((model.layer(inputs).argmax(1) == torch.arange(10) % 2).double().mean())
    assert task.evaluate(model)["accuracy"] == pytest.approx(right)
    assert torch.isfinite(task.loss(model, epoch(task, 0)[0]))
    assert logits(model(inputs)) is not None and logits(inputs) is None


class Drawn(Dataset[Any]):
    """Draws anew whenever an example is read, and counts how often that is."""

    reads = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> dict[str, Any]:
        self.reads += 1
        return {"x": torch.rand(1), "labels": 0, "who": i % 2}


def test_clients_by_column_are_read_when_they_are_needed() -> None:
    data, before = Drawn(), torch.get_rng_state()
    clients = by_column(data, "who")
    reads = data.reads
    assert torch.equal(before, torch.get_rng_state()) and [len(own) for own in clients] == [3, 3]
    task = LoaderTask(lambda: nn.Linear(1, 1), clients)
    first, second = (torch.cat([b["x"] for b in task.batches(0, 3, Generator().manual_seed(s))]) for s in (1, 2))
    assert not torch.equal(first.sort(0).values, second.sort(0).values) and data.reads == reads + 2 * 3


def test_clients_by_column_are_cut_by_slices() -> None:
    first = by_column([{"x": i, "who": i % 2} for i in range(8)], "who")[1][1:3]
    assert len(first) == 2
    assert [first[0], first[1]] == [{"x": 3}, {"x": 5}]


def test_clients_by_column_are_sent_without_memory_that_is_not_theirs() -> None:
    rows = [{"x": x, "labels": 0, "who": i % 2} for i, x in enumerate(torch.zeros(200, 50))]
    task = LoaderTask(net, by_column(rows, "who"))
    sent = task.__getstate__()["sources"]
    assert sent[0].dataset.dataset is sent[1].dataset.dataset and torch.equal(sent[0].dataset[1]["x"], rows[2]["x"])
    assert sent[0].dataset[1]["x"].untyped_storage().nbytes() == 4 * 50


@pytest.mark.parametrize("value", [None, float("nan")])
def test_by_column_needs_an_owner_of_every_example(value: Any) -> None:
    with pytest.raises(ValueError, match=r"by_column: 'who' has (None|nan) at example 1; fill it or leave it out"):
        by_column([{"x": 1, "who": 1.0}, {"x": 1, "who": value}], "who")
    with pytest.raises(ValueError, match=r"the values of 'who' cannot be sorted: .* give them one type"):
        by_column([{"who": 1}, {"who": "a"}], "who")


class Balanced(RandomSampler):
    """Draws the first example ten times."""

    def __iter__(self) -> Iterator[int]:
        return iter([0] * 10)


def test_loaders_that_draw_in_their_own_way() -> None:
    data = TensorDataset(torch.rand(10, 1), torch.zeros(10).long())
    for sampler, message in (
        (SequentialSampler(range(3)), "its sampler draws 3 examples per epoch; give a Subset"),
        (Balanced(data), "its sampler, Balanced, draws in its own way"),
    ):
        with pytest.raises(ValueError, match=message):
            LoaderTask(net, [DataLoader(data, batch_size=2, sampler=sampler)])
    with pytest.raises(TypeError, match="DataLoader is one data set, and each of its examples would be a client"):
        LoaderTask(net, DataLoader(data, batch_size=2))  # type: ignore[arg-type]
