"""What is sent to workers holds no memory of others."""

import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from undrift import LoaderTask, TensorTask
from undrift.core.tasks.compact import compact

X = torch.arange(200_000.0).view(1000, 200)
SIZE = X.numel() * X.element_size()


def size(task: object) -> int:
    return len(pickle.dumps(task))


@pytest.mark.quick
def test_rows_are_sent_once_each() -> None:
    rows = [{"input_ids": row, "labels": row} for row in X]
    clients = [rows[i::4] for i in range(4)]
    assert size(clients[0][:10]) > 9 * SIZE  # ten rows, ten times the tensor
    task = LoaderTask(nn.Identity, clients, test=rows[:10], client_tests=[rows[:1], None, None, None])
    assert size(task) < 2 * SIZE
    sent = pickle.loads(pickle.dumps(task))
    assert all(
        torch.equal(a["labels"], b["labels"]) and b["labels"] is b["input_ids"]
        for one, two in zip(task.sources, sent.sources, strict=True)
        for a, b in zip(one.dataset, two.dataset, strict=True)
    )


def test_data_sets_of_parts_and_shared_data_sets() -> None:
    parts = [TensorDataset(X[i : i + 100]) for i in range(0, 1000, 100)]
    assert size(LoaderTask(nn.Identity, [DataLoader(part, batch_size=10) for part in parts])) < 1.1 * SIZE
    pairs = list(zip(X, X[:, 0], strict=True))
    shared = [Subset[Any](pairs, range(i, 1000, 4)) for i in range(4)]  # type: ignore[arg-type]
    task = LoaderTask(nn.Identity, shared)
    assert size(task) < 2 * SIZE
    sent = pickle.loads(pickle.dumps(task))
    assert sent.sources[0].dataset.dataset is sent.sources[3].dataset.dataset
    assert torch.equal(sent.sources[3].dataset[1][0], X[7])


def test_tensors_and_lists_of_indices() -> None:
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    task = TensorTask(nn.Identity, X[:500], X[:500, :1], (order[order < 500]).split(5), test=(X[:10], X[:10, :1]))
    sent = pickle.loads(pickle.dumps(task))
    assert size(task) < 0.7 * SIZE
    assert torch.equal(sent.inputs, task.inputs) and all(
        torch.equal(a, b) for a, b in zip(sent.clients, task.clients, strict=True)
    )


def test_what_needs_no_copy_is_not_copied() -> None:
    whole = [X, (X, "text"), {"x": X, "n": 3}, None]
    assert compact(whole) is whole
    assert compact(X.t()).shape == (200, 1000) and compact(X.t()).data_ptr() == X.data_ptr()
