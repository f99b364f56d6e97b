"""Metrics over batches equal those of the whole data, whichever kind they are."""

from math import exp
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from undrift.core.model.samples import clip_norm, examples_of, mean_of, weighted_sum
from undrift.core.tasks.evaluation import BatchMean, Judged, direction_of, evaluate, named_metrics, read_goal
from undrift.core.tasks.metrics import accuracy, exact_match, label_accuracy, mae, mse, rmse


class Largest:
    """A metric as torchmetrics has them: the largest error, and how many batches there were."""

    def __init__(self) -> None:
        self.top, self.batches = 0.0, 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.top, self.batches = max(self.top, float((outputs - targets).abs().max())), self.batches + 1

    def compute(self) -> dict[str, Tensor]:
        return {"top": torch.tensor(self.top), "batches": torch.tensor(self.batches)}

    def reset(self) -> None:
        self.top, self.batches = 0.0, 0


def judge(model: nn.Module, batch: Any) -> Judged:
    outputs = model(batch[0])
    return Judged(mse_loss(outputs, batch[1]), outputs, batch[1])


def test_uneven_batches_give_what_the_whole_gives() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(11, 3, generator=draw), torch.randn(11, 1, generator=draw)
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5))
    batches = list(zip(inputs.split(4), targets.split(4), strict=True))
    metrics = named_metrics({"rmse": "rmse", "mean": BatchMean(mae), "largest": Largest(), "ppl": "perplexity"})
    for _ in range(2):  # again: objects are reset
        row = evaluate(model, batches, judge, metrics)
        whole = model.eval()(inputs).detach()
        model.train()
        assert list(row) == ["test_loss", "rmse", "mean", "largest/top", "largest/batches", "ppl"]
        assert row["test_loss"] == pytest.approx(mse(whole, targets))
        means = sum(rmse(x, y) for x, y in zip(whole.split(4), targets.split(4), strict=True)) / 3
        assert row["rmse"] == pytest.approx(rmse(whole, targets)) and row["rmse"] != pytest.approx(means)
        assert row["mean"] == pytest.approx(mae(whole, targets))
        assert row["largest/top"] == pytest.approx(float((whole - targets).abs().max())) and row["largest/batches"] == 3
        assert row["ppl"] == pytest.approx(exp(row["test_loss"]))
    assert all(part.training for part in model.modules()), "the mode is restored"
    assert evaluate(model, [], judge, metrics) == {}


def test_metrics_by_hand() -> None:
    outputs = torch.tensor([[2.0, -1.0], [-1.0, 3.0], [1.0, 1.0], [-2.0, -2.0]])
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert accuracy(outputs, torch.tensor([0, 1, 1, 0])) == 0.75
    assert (label_accuracy(outputs, labels), exact_match(outputs, labels)) == (0.75, 0.5)
    assert (mse(outputs[:2, :1], torch.tensor([0.0, 0.0])), mae(outputs[:2, 0], torch.zeros(2))) == (2.5, 1.5)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["f2"], "no metric is named 'f2'; known are accuracy, balanced_accuracy, f1, auroc, mse"),
        ({"drift": mae}, "'drift' is already a column of the rows; give the metric another name"),
        ({"client_mae": mae}, "'client_mae' is already a column"),
        ({"a b": mae}, "a name has letters, digits"),
        ([lambda y, t: 0.0], r'a name has letters, digits, .*; write \{"name": f\}, got \'<lambda>\''),
        (["mae", mae], "mae is given twice; give a mapping with two names"),
        ([3], "int must be a function of \\(outputs, targets\\) or have update, compute, reset"),
        ("mae", "give a mapping or a list"),
        (["nowhere.metrics:f1"], "nowhere.metrics:f1: no module is named 'nowhere'"),
    ],
)
def test_refused(metrics: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        named_metrics(metrics)


def test_a_metric_gives_a_number() -> None:
    with pytest.raises(TypeError, match="metrics: words must give a number, got str"):
        evaluate(nn.Linear(1, 1), [(torch.ones(2, 1), torch.ones(2, 1))], judge, {"words": lambda *_: "many"})


def test_references_and_classes_are_metrics() -> None:
    assert named_metrics(["undrift.core.tasks.metrics:mae"]) == {"mae": mae}
    assert isinstance(named_metrics([Largest])["largest"], Largest)  # type: ignore[list-item]


def test_goals_and_directions() -> None:
    names = ("accuracy", "f1", "test_loss", "val-mae", "personal_rmse", "perplexity", "word_error", "smaell")
    assert [direction_of(name) for name in names] == ["max", "max", "min", "min", "min", "min", "min", "max"]
    assert read_goal("largest/top", {"largest": mae}) == ("largest/top", "max")
    with pytest.raises(ValueError, match="goal: no metric is named 'mea'; did you mean 'mae'"):
        read_goal("mea", {"mae": mae})
    with pytest.raises(ValueError, match='goal: the direction of mae must be "max" or "min", got \'down\''):
        read_goal(("mae", "down"), {"mae": mae})  # type: ignore[arg-type]


def test_means_and_sums_of_losses_by_hand() -> None:
    losses = [torch.tensor(1.0), torch.tensor(4.0)]
    assert mean_of(list(zip(losses, (3, 1), strict=True))) == 1.75
    assert weighted_sum(losses, (3, 1)) == 7.0


def test_padding_does_not_count_as_wrong() -> None:
    outputs = torch.eye(3)[torch.tensor([[0, 1, 2], [2, 1, 0]])].movedim(2, 1)
    assert accuracy(outputs, torch.tensor([[0, 1, -100], [2, 0, -100]])) == 0.75


def test_labels_of_one_axis_are_not_compared_with_every_output() -> None:
    outputs, targets = torch.tensor([[5.0], [-5.0], [5.0], [5.0]]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert label_accuracy(outputs, targets) == exact_match(outputs, targets) == 0.75
    assert exact_match(outputs[:, 0], targets) == 0.75


def test_examples_of_nested_batches() -> None:
    image, boxes = torch.zeros(3, 4, 4), [torch.zeros(2, 4), torch.zeros(5, 4)]
    for batch, count in (
        (({"x": torch.zeros(9, 2)}, {"y": torch.zeros(9)}), 9),
        ([{"x": torch.zeros(4)}, [torch.zeros(4), torch.zeros(4)]], 4),
        ((torch.zeros(()), {"x": torch.zeros(6)}), 6),
        (((image, image), ({"boxes": boxes[0]}, {"boxes": boxes[1]})), 2),
        ((["a", "b"], torch.zeros(7)), 7),
        ("text", 1),
        ((), 1),
    ):
        assert examples_of(batch) == count


@pytest.mark.parametrize("read", [True, False])
def test_a_gradient_whose_norm_is_beyond_float32_is_clipped(read: bool) -> None:
    huge = clip_norm(torch.full((10,), 2e19), 1.0, read=read)
    torch.testing.assert_close(huge, torch.full((10,), 10**-0.5))
    assert not torch.isfinite(clip_norm(torch.tensor([float("inf"), 1.0]), 1.0, read=read)).all()
    for ordinary in (torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4]), torch.zeros(2)):
        expected = ordinary * (1.0 / torch.linalg.vector_norm(ordinary)).clamp(max=1.0)
        assert torch.equal(clip_norm(ordinary.clone(), 1.0, read=read), expected)
