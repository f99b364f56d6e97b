"""A partition as a picture: who has how many samples of which class."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from undrift.data.partition import Partition
from undrift.data.schemes import Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS = 200  # per inch
NUMBERED, LABELLED = 24, 40  # above so many clients no numbers in the cells, above so many classes not every name
ORDERED = 200  # above so many clients their order says more than their number


def heatmap(
    partition: Partition, path: str | Path, names: Sequence[str] | None = None, title: str | None = None
) -> Path:
    """Draw clients (columns) against classes (rows) as a PNG, with the clients' sizes above.

    The darker a cell, the more samples; white is none. Colours follow the square root, so that small shares can still
    be seen. More than 200 clients are put in the order of their largest class, so that blocks show what they share.

    Args:
        partition: what to draw.
        path: where to write it.
        names: of the classes; without them their numbers.
        title: without it the scheme, the number of clients and the seed.
    """
    from matplotlib.figure import Figure

    clients, classes = partition.histogram.shape
    if names is not None and len(names) != classes:
        raise ValueError(f"heatmap: names must be those of the {classes} classes, got {len(names)}")
    wide = float(np.clip(4 + clients * 0.08, 7, 14))
    high = float(np.clip(2.2 + classes * 0.22, 3.2, 9))
    figure = Figure(figsize=(wide, high), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1, high - 1.6), width_ratios=(1, 0.16 / wide))
    cells = figure.add_subplot(grid[1, 0])
    order = _order(partition.histogram)
    _cells(cells, figure.add_subplot(grid[1, 1]), partition.histogram[order].T, names or list(map(str, range(classes))))
    _sizes(figure.add_subplot(grid[0, 0], sharex=cells), partition.sizes[order])
    figure.suptitle(title or f"{partition.scheme}, {clients} clients" + _seed(partition), fontsize=11)
    figure.savefig(path, dpi=DOTS, format="png")
    return Path(path)


def _order(histogram: Indices) -> Indices:
    """Clients by number or, if there are many, by their largest class and then by its share."""
    clients = np.arange(len(histogram))
    if len(clients) <= ORDERED:
        return clients
    main = histogram.argmax(axis=1)
    return np.lexsort((-histogram[clients, main] / np.maximum(1, histogram.sum(axis=1)), main))


def _cells(axes: "Axes", bar: "Axes", counts: Indices, names: Sequence[str]) -> None:
    """The table of counts, white where there is none, and its scale."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    scale = PowerNorm(0.5, vmin=0, vmax=max(1, int(counts.max())))
    image = axes.imshow(np.ma.masked_equal(counts, 0), aspect="auto", cmap="GnBu", norm=scale, interpolation="nearest")
    shown = range(0, len(names), -(-len(names) // LABELLED))
    axes.set_yticks(shown, [names[c] for c in shown], fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(ylabel="class", xlabel="client" if counts.shape[1] <= ORDERED else "clients, by their largest class")
    if counts.shape[1] <= NUMBERED and len(names) <= LABELLED:
        for c, i in np.argwhere(counts):
            shade = "white" if counts[c, i] > 0.5 * counts.max() else "black"
            axes.text(i, c, str(counts[c, i]), ha="center", va="center", fontsize=6, color=shade)
    axes.figure.colorbar(image, cax=bar, label="samples")


def _sizes(axes: "Axes", sizes: Indices) -> None:
    """How many samples each client has, all classes together."""
    axes.stairs(sizes, np.arange(len(sizes) + 1) - 0.5, fill=True, color="0.6")
    axes.tick_params(labelbottom=False, labelsize=8)
    axes.set(ylabel="samples", ylim=(0, 1.05 * max(1, int(sizes.max()))))
    axes.spines[["top", "right"]].set_visible(False)


def _seed(partition: Partition) -> str:
    """The seed for a title, where there is one."""
    return "" if partition.seed is None else f", seed {partition.seed}"
