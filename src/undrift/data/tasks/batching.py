"""Data sets and loaders as sources of reproducible batches: the same in another process and in a resumed run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, overload

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, default_collate

from undrift.data.tasks.rng_streams import Streams

Collate = Callable[[list[Any]], Any]


class Source(NamedTuple):
    """What is kept of a data set or a loader: its examples, how they become a batch, and what the loader fixes."""

    dataset: Any
    collate: Collate
    shuffle: bool = True
    size: int | None = None


def by_column(dataset: Any, column: str) -> list[Any]:
    """A data set split over clients by a column that names each example's client, in the order of its sorted values.

    The column itself is left out of the batches. Each example is read once for its client's name, and again whenever it
    is needed, so that transforms that draw do so anew.

    Args:
        dataset: a Hugging Face data set, or one whose examples are mappings.
        column: its name.

    Example:
        >>> rows = [{"x": 1.0, "who": "b"}, {"x": 2.0, "who": "a"}, {"x": 3.0, "who": "b"}]
        >>> [[example["x"] for example in own] for own in by_column(rows, "who")]
        [[2.0], [1.0, 3.0]]
    """
    columnar = hasattr(dataset, "column_names") and hasattr(dataset, "select")
    with Streams(0):  # transforms that draw do not change the global streams
        known = dataset.column_names if columnar else list(dataset[0])
        if column not in known:
            raise ValueError(f"by_column: no column is named {column!r}; there are {', '.join(map(str, known))}")
        values = list(dataset[column]) if columnar else [dataset[i][column] for i in range(len(dataset))]
    values = [value.item() if isinstance(value, Tensor) else value for value in values]
    empty = next((i for i, value in enumerate(values) if value is None or value != value), None)
    if empty is not None:
        raise ValueError(f"by_column: {column!r} has {values[empty]} at example {empty}; fill it or leave it out")
    groups: dict[Any, list[int]] = {}
    for i, value in enumerate(values):
        groups.setdefault(value, []).append(i)
    try:
        owned = [groups[value] for value in sorted(groups)]
    except TypeError as error:
        raise ValueError(f"by_column: the values of {column!r} cannot be sorted: {error}; give them one type") from None
    if columnar:
        return [dataset.select(own).remove_columns(column) for own in owned]
    return [Owned(dataset, own, column) for own in owned]


class Owned(Dataset[Any]):
    """Some examples of a data set whose examples are mappings, read when they are needed, without one of their keys.

    Args:
        dataset: the data set.
        indices: of the examples.
        without: the key to leave out.
    """

    compacts: ClassVar[str] = "dataset"

    def __init__(self, dataset: Any, indices: list[int], without: str) -> None:
        self.dataset, self.indices, self.without = dataset, indices, without

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, i: int) -> dict[Any, Any]: ...

    @overload
    def __getitem__(self, i: slice) -> "Owned": ...

    def __getitem__(self, i: int | slice) -> "dict[Any, Any] | Owned":
        """An example, or some of them as a data set."""
        if isinstance(i, slice):
            return Owned(self.dataset, self.indices[i], self.without)
        return {key: x for key, x in self.dataset[self.indices[i]].items() if key != self.without}


def check_one_each(clients: Any) -> None:
    """Raise if the clients' data are a single data set, of which every example would be a client.

    Args:
        clients: what was given; a data set whose items are data sets passes.
    """
    one = isinstance(clients, DataLoader) or (_is_data(clients) and len(clients) and not _is_data(clients[0]))
    if one:
        raise TypeError(
            f"clients: {type(clients).__name__} is one data set, and each of its examples would be a client; give a "
            "list with one data set for each client, as in [Subset(data, own) for own in indices], or "
            "by_column(data, name)"
        )


def _is_data(value: Any) -> bool:
    """Whether a value is a data set of torch or of Hugging Face, or a loader."""
    columnar = hasattr(value, "column_names") and hasattr(value, "select")
    return columnar or isinstance(value, Dataset | DataLoader)


def as_source(data: Any, collate: Collate | None, what: str, training: bool) -> Source:
    """What is kept of a data set or a loader; raises if its batches would not be reproducible.

    Args:
        data: a data set with length and items, a loader of one, or a `Source`.
        collate: makes a batch of examples, if the data are no loader; None takes `collate_examples`.
        what: what to call the data in errors.
        training: whether clients train on it.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, DataLoader):
        return _of_loader(data, what, training)
    if isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(
            f"{what}: {type(data).__name__} has no length or no items by index, so its batches cannot be reproduced "
            "in another process; give a Dataset with __len__ and __getitem__, or a list of its examples"
        )
    return Source(data, collate or collate_examples)


def _of_loader(loader: "DataLoader[Any]", what: str, training: bool) -> Source:
    """What is kept of a loader."""
    if isinstance(loader.dataset, IterableDataset):
        return as_source(loader.dataset, None, what, training)
    if loader.batch_size is None:
        raise ValueError(
            f"{what}: its DataLoader has its own batch_sampler, or no batches: such batches cannot be reproduced "
            "from a seed; give the loader's dataset, or a DataLoader with batch_size"
        )
    sampler: Any = loader.sampler
    if type(sampler) not in (RandomSampler, SequentialSampler) or getattr(sampler, "replacement", False):
        raise ValueError(
            f"{what}: its sampler, {type(sampler).__name__}, draws in its own way, which cannot be reproduced "
            "from a seed; use shuffle=True or shuffle=False, or give the loader's dataset"
        )
    if len(sampler) != len(loader.dataset):  # type: ignore[arg-type]
        raise ValueError(
            f"{what}: its sampler draws {len(sampler)} examples per epoch; give a Subset of the data instead"
        )
    if training and loader.drop_last:
        raise ValueError(
            f"{what}: drop_last leaves out other examples in every epoch, and a client's examples are its weight; "
            "make the DataLoader without drop_last"
        )
    shuffle = isinstance(sampler, RandomSampler)
    own = loader.collate_fn
    return Source(loader.dataset, collate_examples if own is default_collate else own, shuffle, loader.batch_size)


def common_size(sources: Sequence[Source]) -> int | None:
    """The batch size that the loaders fix; None without loaders."""
    sizes = {source.size: f"clients[{i}]" for i, source in reversed(list(enumerate(sources))) if source.size}
    if len(sizes) > 1:
        listed = " and ".join(f"{size} at {place}" for size, place in sizes.items())
        raise ValueError(f"clients: the DataLoaders must have one batch_size, that of the run, got {listed}")
    return next(iter(sizes), None)


def read_batches(data: Source, order: Tensor, size: int, seed: int) -> Iterator[Any]:
    """Batches of a data set in an order; random transforms draw from streams with a seed of their own.

    Args:
        data: the data set.
        order: the indices.
        size: examples in a batch; the last may be short.
        seed: of the random streams, for transforms that draw.
    """
    streams, several = Streams(seed), getattr(data.dataset, "__getitems__", None)
    for chosen in torch.split(order, size) if len(order) else ():
        with streams:
            wanted = chosen.tolist()
            examples = several(wanted) if several is not None else [data.dataset[i] for i in wanted]
            batch = data.collate(examples)
        yield batch


def collate_examples(examples: list[Any]) -> Any:
    """Torch's default collation, but lists and arrays of numbers in examples with names become tensors first.

    Args:
        examples: of a batch.

    Example:
        >>> collate_examples([{"ids": [1, 2], "label": 0}, {"ids": [3, 4], "label": 1}])
        {'ids': tensor([[1, 2],
                [3, 4]]), 'label': tensor([0, 1])}
    """
    if not isinstance(examples[0], Mapping):
        return default_collate(examples)
    return {key: _column(str(key), [example[key] for example in examples]) for key in examples[0]}


def _column(key: str, values: list[Any]) -> Any:
    """The values of one name, stacked."""
    if not isinstance(values[0], list):
        return default_collate(values)
    try:
        return torch.tensor(values)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{key}: the examples of a batch cannot be stacked ({error}); make them equally long, or give collate_fn"
        ) from None
