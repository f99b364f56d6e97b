"""What a partition changes about the data: the server's proxy data, the test set and corruption."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.random import derive
from undrift.data import CorruptTests, Dataset, Split
from undrift.data.corruption import assign, corrupted
from undrift.data.partition import Partition


def balanced(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """The sorted indices of `count` examples, drawn evenly over the classes; those labelled -1 are not drawn."""
    draw, kinds = np.random.default_rng(derive(seed, "proxy")), np.unique(labels[labels >= 0])
    shares = [count // len(kinds) + (i < count % len(kinds)) for i in range(len(kinds))]
    drawn = [draw.permutation(np.flatnonzero(labels == k))[:n] for k, n in zip(kinds, shares, strict=True)]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def tested(dataset: Dataset, split: Partition) -> Dataset:
    """The data without the test examples of owners that a natural partition left out."""
    train, test = dataset.train.owners, dataset.test.owners
    if train is None or test is None:
        return dataset
    drawn = train[torch.from_numpy(np.concatenate(split.clients))]
    left = np.setdiff1d(train.numpy(), drawn.numpy())
    kept = torch.from_numpy(~np.isin(test.numpy(), left))
    if not kept.any():
        raise ValueError(f"{split.scheme}: the users that were drawn have no test examples; draw more of them")
    if kept.all():
        return dataset
    return replace(dataset, test=Split(dataset.test.inputs[kept], dataset.test.targets[kept], test[kept]))


def tested_on(dataset: Dataset, owner: int) -> Dataset:
    """The data with all examples of one owner, of both splits, as the test set."""
    splits = (dataset.train, dataset.test)
    kept = [(split, split.owners == owner) for split in splits if split.owners is not None]
    inputs = torch.cat([split.inputs[own] for split, own in kept])
    targets = torch.cat([split.targets[own] for split, own in kept])
    return replace(dataset, test=Split(inputs, targets, torch.full((len(targets),), owner)))


def shifted(dataset: Dataset, split: Partition, seed: int) -> tuple[Dataset, CorruptTests | None]:
    """The data with corrupted training images, and the corrupted tests, if the partition asks for them."""
    shift = split.corruption
    if shift is None:
        return dataset, None
    if dataset.kind != "image":
        raise ValueError(
            f'corrupt: only images can be corrupted, {dataset.name} is {dataset.kind}; use partition = "{shift.over}"'
        )
    tests = CorruptTests(dataset.test, shift.kinds, shift.severity, seed)
    inputs = corrupted(dataset.train.inputs.numpy(), assign(split, seed), seed, shift.severity)
    return replace(dataset, train=replace(dataset.train, inputs=torch.from_numpy(inputs))), tests
