"""The examples of each class at each client, for reports and for `undrift partition`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undrift.data.partitions.draw import Partition
from undrift.report.draw.description import Axis, Figure, Grid, grid_panel
from undrift.report.draw.print_figures import write_print

Indices = np.ndarray[Any, np.dtype[np.int64]]

ORDERED, SHOWN = 200, 400  # more clients are ordered by their largest class; at most this many are drawn
NUMBERED = 24, 40  # clients and classes whose counts can be written into the cells


def partition_figure(
    counts: Indices,
    name: str,
    title: str,
    seed: int | None,
    names: Sequence[str] = (),
    *,
    numbers: bool = False,
    sizes: bool = False,
) -> Figure:
    """Classes (rows) by clients (columns). Colours follow the square root, so that small shares can still be seen.

    Args:
        counts: examples by client and class, as in `Partition.histogram`.
        name: the name of its files.
        title: the title.
        seed: the seed of the partition; None if it was drawn elsewhere.
        names: the names of the classes; default their numbers.
        numbers: whether counts are written into the cells, if there are few.
        sizes: whether bars above the columns show the clients' sizes, in print.
    """
    if names and len(names) != counts.shape[1]:
        raise ValueError(f"names must be those of the {counts.shape[1]} classes, got {len(names)}")
    order = _order(counts)
    clients = tuple(str(client) for client in order)
    classes = tuple(names) or tuple(str(number) for number in range(counts.shape[1]))
    cells = [[int(count) or None for count in row] for row in counts[order].T]
    few = numbers and len(clients) <= NUMBERED[0] and len(classes) <= NUMBERED[1]
    heights = counts[order].sum(axis=1).tolist() if sizes else ()
    grid = Grid(clients, classes, cells, "examples", 0, int(counts.max()), root=True, numbers=few, heights=heights)
    x = Axis("client" if len(counts) <= ORDERED else "clients, by their largest class", clients)
    facts = [] if seed is None else [f"seed {seed}"]
    facts += [f"{len(clients)} of {len(counts)} clients are drawn"] if len(clients) < len(counts) else []
    reading = "Brighter is more, empty is none: the emptier a column, the more its client's labels are skewed"
    reading += f" ({'; '.join(facts)})." if facts else "."
    return Figure(name, title, reading, (("", grid_panel(x, Axis("class", classes), grid)),))


def write_partition(partition: Partition, path: str | Path, names: Sequence[str] = (), data: str = "") -> Path:
    """Draw a partition into a PNG or PDF file, with the clients' sizes above and, for up to 24 clients, all counts.

    Args:
        partition: the partition.
        path: the file, which ends in .png or .pdf.
        names: the names of the classes; default their numbers.
        data: the name of the data, for the title.
    """
    sizes = partition.sizes
    title = f"{partition.scheme}\n{len(sizes)} clients with {sizes.min()} to {sizes.max()} examples"
    title += "" if partition.seed is None else f", seed {partition.seed}"
    title = f"{data}, {title}" if data else title
    figure = partition_figure(partition.histogram, "partition", title, partition.seed, names, numbers=True, sizes=True)
    return write_print(figure, Path(path))


def _order(counts: Indices) -> Indices:
    """Clients by number or, if there are many, by their largest class, thinned out evenly."""
    order = np.arange(len(counts))
    if len(order) > ORDERED:
        order = np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))
    return order[thin(len(order), SHOWN)]


def thin(count: int, most: int) -> Indices:
    """Indices of a list, evenly spread from the first to the last: all, or as many as are shown."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).round().astype(int)
