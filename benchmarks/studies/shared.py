"""What several studies share: small data sets, a row for every method, figures without dates."""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from undrift import Simulation
from undrift.algorithms import ALGORITHMS
from undrift.core.records.types import ServerState
from undrift.data import Dataset, DataTask
from undrift.data.arrays.dataset import Split
from undrift.util.display.tables import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def first_examples(dataset: Dataset, train: int, test: int) -> Dataset:
    """The first examples of a data set.

    Args:
        dataset: the data.
        train: how many training examples.
        test: how many test examples.
    """
    kept = [Split(x.inputs[:n], x.targets[:n]) for x, n in ((dataset.train, train), (dataset.test, test))]
    return replace(dataset, train=kept[0], test=kept[1])


def personal_accuracy(task: DataTask, simulation: Simulation, state: ServerState) -> float:
    """The mean accuracy of the clients' personal models, each on its own test.

    Args:
        task: the task.
        simulation: the task's.
        state: after a round of it.
    """
    clients = range(task.population)
    own = [task.own_score(simulation.personal(state, client), client).accuracy for client in clients]
    return sum(own) / len(own)


def each_method(
    about: str | None, data: Callable[[], Dataset], measure: Callable[[str, Dataset], dict[str, Any]]
) -> tuple[list[dict[str, Any]], bool]:
    """Measure all methods, or those named on the command line; the rows, and whether only JSON shall be printed.

    Args:
        about: the text of the help.
        data: loads the data.
        measure: gives the row of a method, which is printed at once.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("names", nargs="*", help="methods; default all of undrift list")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset, rows = data(), []
    for name in arguments.names or ALGORITHMS:
        rows.append(measure(name, dataset))
        print(json.dumps(rows[-1]), file=sys.stderr if arguments.json else sys.stdout, flush=True)
    return rows, arguments.json


def measure_or_draw(about: str | None, rows: Iterable[dict[str, Any]], draw: Callable[[list[Any], Path], None]) -> None:
    """Measure every row and print it at once, or draw the rows of an earlier measurement that standard input has.

    Args:
        about: the text of the help.
        rows: measured one after the other.
        draw: draws the rows into the path given on the command line.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--draw", type=Path, help="read JSON instead and draw its figure here")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(json.load(sys.stdin)["rows"], arguments.draw)
        return
    torch.set_num_threads(1)
    found = []
    for row in rows:
        found.append(row)
        print(json.dumps(row), file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json:
        print(json.dumps({"rows": found, "environment": versions()}))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; none without the file.

    Args:
        path: the file.
    """
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def add_line(path: Path, line: dict[str, Any]) -> dict[str, Any]:
    """Append an object to a file of JSON lines; the object.

    Args:
        path: the file.
        line: the object.
    """
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def read_arguments(
    about: str | None, tables: Callable[[], str], options: Mapping[str, Mapping[str, Any]]
) -> argparse.Namespace:
    """The arguments of a study that resumes, which trains on one thread; with --tables it prints them and ends.

    Args:
        about: the text of the help.
        tables: those of what is there.
        options: name -> what `add_argument` takes.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="print the tables of what is there")
    for name, option in options.items():
        parser.add_argument(name, **option)
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables())
        raise SystemExit
    torch.set_num_threads(1)
    return arguments


def round_off(value: float, digits: int = 4) -> float:
    """A number as the lines have it."""
    return round(value, digits)


def progress(lines: Sequence[Mapping[str, Any]], planned: int) -> str:
    """How many runs are there, in a sentence.

    Args:
        lines: of the runs.
        planned: how many there will be.
    """
    seeds = ", ".join(map(str, sorted({line["seed"] for line in lines})))
    return f"{len(lines)} of {planned} runs are there" + (f", seed {seeds}." if seeds else ".")


def measured(title: str, heads: Sequence[str], rows: Iterable[list[str]]) -> str:
    """A table of the rows that have a value, below its title; without such rows nothing.

    Args:
        title: what stands above it.
        heads: of the columns.
        rows: the name of each, then its values.
    """
    known = [row for row in rows if any(row[1:])]
    return f"{title}\n\n" + markdown(heads, known, left=1) if known else ""


def svg(figure: "Figure") -> str:
    """A figure as the text of an SVG file, without a date and without blanks at the ends of lines.

    Args:
        figure: drawn under a fixed `svg.hashsalt`, so that the text is the same every time.
    """
    out = StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def versions() -> dict[str, str]:
    """Those of Python and torch."""
    return {"python": platform.python_version(), "torch": torch.__version__}
