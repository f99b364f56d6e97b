"""Metrics by name, with arguments, against scikit-learn and by hand."""

from pathlib import Path

import pytest
import torch

from undrift.core.tasks.evaluation import find_metric, named_metrics
from undrift.core.tasks.metrics import auroc, balanced_accuracy, f1

OUTPUTS = torch.randn(300, 3, generator=torch.Generator().manual_seed(0)).round(decimals=1)
TARGETS = (OUTPUTS[:, 0] > 0.5).long() + (torch.arange(300) % 7 == 0).long()


def test_by_hand() -> None:
    outputs = torch.tensor([[2.0, 0], [2, 0], [2, 0], [0, 2]])
    targets = torch.tensor([0, 0, 1, 1])
    assert balanced_accuracy(outputs, targets) == 0.75
    assert f1(outputs, targets, label=1) == pytest.approx(2 / 3) and f1(outputs, targets, label=0) == pytest.approx(0.8)
    assert f1(outputs, targets) == pytest.approx((2 / 3 + 0.8) / 2)
    assert auroc(outputs, targets) == 0.75  # of four pairs two are right and two are equal
    constant = torch.ones(4, 2)
    assert auroc(constant, targets) == 0.5 and balanced_accuracy(constant, targets) == 0.5
    assert auroc(outputs, torch.zeros(4, dtype=torch.int64)) != auroc(outputs, torch.zeros(4, dtype=torch.int64))  # nan


def test_against_scikit_learn() -> None:
    known = pytest.importorskip("sklearn.metrics")
    found = OUTPUTS.argmax(1)
    assert balanced_accuracy(OUTPUTS, TARGETS) == pytest.approx(known.balanced_accuracy_score(TARGETS, found))
    assert f1(OUTPUTS, TARGETS) == pytest.approx(known.f1_score(TARGETS, found, average="macro"))
    shares = torch.softmax(OUTPUTS.double(), 1).numpy()
    assert auroc(OUTPUTS, TARGETS) == pytest.approx(known.roc_auc_score(TARGETS, shares, multi_class="ovr"))
    two = TARGETS.clamp(max=1)
    expected = known.roc_auc_score(two, torch.softmax(OUTPUTS[:, :2].double(), 1)[:, 1])
    assert auroc(OUTPUTS[:, :2], two) == pytest.approx(expected)


def test_names_and_references_take_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_scores.py").write_text(
        "def above(outputs, targets, limit=0.0): return float((outputs > limit).float().mean())\n"
        "class Count:\n"
        "    def __init__(self, start=0): self.start = start\n"
        "    def update(self, outputs, targets): self.seen += len(targets)\n"
        "    def compute(self): return self.seen\n"
        "    def reset(self): self.seen = self.start\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = named_metrics(
        ["f1(label=1)", "own_scores:above(limit=9.0)", "own_scores:Count(start=5)", "balanced-accuracy"]
    )
    assert list(found) == ["f1", "above", "count", "balanced_accuracy"]
    assert found["f1"](OUTPUTS, TARGETS) == f1(OUTPUTS, TARGETS, 1)  # type: ignore[operator]
    assert found["above"](OUTPUTS, TARGETS) == 0  # type: ignore[operator]
    assert found["count"].start == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f1(lable=1)", r"metrics: f1\(lable=1\): got an unexpected keyword argument 'lable'"),
        ("f1(1)", r"'f1\(1\)': name its arguments, for example f1\(label=1\)"),
        ("f2", "no metric is named 'f2'"),
        ("f1(label=one)", "arguments are numbers, texts in quotes"),
    ],
)
def test_arguments_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_metric(text)
