"""A test set for data that have none."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.core.model.random import derive
from undrift.data.arrays.dataset import Arrays, DataError, cut
from undrift.data.partitions.schemes import ranks


def hold_out(arrays: Arrays, share: float) -> dict[str, NDArray[Any]]:
    """Split a test set off: the same share of every owner and class, drawn at random, the same every time.

    An owner, a class and their common examples each have the share up to rounding; where owners and classes cannot both
    have it, owners do.

    Args:
        arrays: "train-inputs", "train-targets" and perhaps "train-owners".
        share: how much of it, between 0 and 1.
    """
    targets, owners = arrays["train-targets"], arrays.get("train-owners")
    count = len(targets)
    draw = np.random.default_rng(derive(0, "test"))
    if owners is not None and targets.dtype.kind != "f":
        test = _balanced_mask(owners, targets, share, draw)
    else:
        groups = owners if owners is not None else targets if targets.dtype.kind != "f" else np.zeros(count)
        order = draw.permutation(count)
        order = order[np.argsort(groups[order], kind="stable")]
        test = np.zeros(count, bool)
        test[order] = np.diff(np.floor(np.arange(count + 1) * share + 0.5)) > 0
    if not test.any() or test.all():
        raise DataError(f"{count} examples are too few to hold out a test set of {share:g}; give test=0.5")
    return cut(arrays, ~test, test)


def _balanced_mask(
    owners: NDArray[Any], targets: NDArray[Any], share: float, draw: np.random.Generator
) -> NDArray[np.bool_]:
    """Whether each example is held out: of an owner's class the share, rounded up or down.

    Owners are visited by their most frequent class, in random order, and get their quota along the way. It is rounded
    up in the classes of which least was taken so far, so that position and class are not tied to each other.
    """
    owner, kind = (np.unique(x, return_inverse=True)[1].reshape(-1) for x in (owners, targets))
    kinds = int(kind.max()) + 1
    cells, cell, counts = np.unique(owner * kinds + kind, return_inverse=True, return_counts=True)
    whose, which = np.divmod(cells, kinds)
    wanted = np.round(share * counts, 9)
    taken = np.floor(wanted).astype(np.int64)
    rest, missing = wanted - taken, 1e-6 * draw.random(kinds)  # equal classes in random order
    starts = np.searchsorted(whose, np.arange(int(owner.max()) + 2))
    main = which[np.lexsort((counts, whose))[starts[1:] - 1]]
    order = np.lexsort((draw.random(len(main)), main))
    ends = np.floor(np.round(np.cumsum(np.bincount(owner)[order]) * share, 9) + 0.5).astype(np.int64)
    for i, quota in zip(order.tolist(), np.diff(ends, prepend=0).tolist(), strict=True):
        own = np.arange(starts[i], starts[i + 1])
        missing[which[own]] += rest[own]
        some = own[rest[own] > 0]
        up = some[np.argsort(-missing[which[some]], kind="stable")[: quota - int(taken[own].sum())]]
        taken[up] += 1
        missing[which[up]] -= 1
    test: NDArray[np.bool_] = ranks(cell.reshape(-1), draw) < taken[cell.reshape(-1)]
    return test
