"""Undrift and its peers on the same work: seconds per round, start-up, memory, accuracy, reproducibility.

All contenders of a setting are alive at once and take turns round by round, so that a ratio compares rounds that lie
seconds apart; a figure is the median over the rounds after the first. `install.py` creates the environments.

    python benchmarks/peers/install.py ~/peers
    python benchmarks/peers/peers.py ~/peers --json benchmarks/peers/results/peers.json
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch

from process import SPECS, Contender
from table import markdown
from work import METHODS, SETTINGS, folder

PACKAGES = {"pfl": "pfl", "flower": "flwr", "blazefl": "blazefl", "fedlab": "fedlab", "fluke": "fluke-fl"}
CHECKED = "mlp"


def print_now(text: str) -> None:
    """Show progress.

    Args:
        text: a line.
    """
    print(text, file=sys.stderr, flush=True)


def timed(
    names: list[str], place: Path, setting: str, method: str, rounds: int, in_order: bool = False
) -> list[dict[str, Any]]:
    """One row for each contender: all of them take turns. One that fails is left out, with what it printed.

    Args:
        names: the contenders.
        place: the folder of the peers' environments.
        setting: the name of the setting.
        method: the name of the method.
        rounds: timed rounds of each, after one that is not.
        in_order: whether clients read their data in one order.
    """
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        alive: dict[str, Contender] = {}
        for name in names:
            if method in SPECS[name].methods:
                new = Contender(SPECS[name], place, setting, method, scratch / name, in_order=in_order)
                alive[name] = stack.enter_context(new)
        seconds: dict[str, list[float]] = {name: [] for name in alive}
        for number in range(rounds + 1):
            turn = number % len(alive)
            for name in [*list(alive)[turn:], *list(alive)[:turn]]:
                try:
                    seconds[name].append(alive[name].ask("round")["seconds"])
                except RuntimeError as error:
                    print_now(f"{name} is left out of {setting}, {method}: {error}")
                    del alive[name], seconds[name]
        first = {name: known.pop(0) for name, known in seconds.items()}
        for name, contender in alive.items():
            memory, processes = contender.memory()
            row = {
                "contender": name,
                "workers": contender.spec.workers,
                "seconds": statistics.median(seconds[name]),
                "quartiles": statistics.quantiles(seconds[name], n=4)[::2],
                "start_up": round(contender.start_up, 2),
                "first_round": round(first[name], 3),
                "megabytes": memory,
                "processes": processes,
                **contender.ask("model"),
            }
            rows.append({"setting": setting, "method": method, **row})
            print_now(json.dumps(rows[-1]))
    against(rows, seconds)
    return rows


def against(rows: list[dict[str, Any]], seconds: dict[str, list[float]]) -> None:
    """Add the ratios to the bare loop and to the fastest peer: medians of the ratios of neighbouring rounds.

    Args:
        rows: the rows of one setting and method.
        seconds: of each contender's rounds.
    """
    others = [row for row in rows if not row["contender"].startswith(("bare", "undrift"))]
    fastest = min(others, key=lambda row: row["seconds"])["contender"] if others else None
    for row in rows:
        for key, base in (("over_bare", "bare"), ("over_fastest_peer", fastest)):
            if base in seconds:
                pairs = zip(seconds[row["contender"]], seconds[base], strict=True)
                row[key] = round(statistics.median(a / b for a, b in pairs), 3)
        row["fastest_peer"] = fastest
        row["seconds"] = round(row["seconds"], 4)
        row["quartiles"] = [round(value, 4) for value in row["quartiles"]]


def once(name: str, place: Path, method: str, workers: int, in_order: bool, rounds: int) -> dict[str, Any]:
    """The model after some rounds of one contender alone, with its weights.

    Args:
        name: the contender.
        place: the folder of the peers' environments.
        method: the name of the method.
        workers: how many.
        in_order: whether clients read their data in one order.
        rounds: how many.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "weights.npy"
        with Contender(SPECS[name], place, CHECKED, method, Path(scratch), workers, in_order) as contender:
            before = Path(scratch) / "before.npy"
            contender.ask("model", file=str(before))
            for _ in range(rounds):
                contender.ask("round")
            found = contender.ask("model", file=str(file))
        return {**found, "weights": np.load(file), "before": np.load(before)}


def checked(names: list[str], place: Path, method: str, rounds: int) -> list[dict[str, Any]]:
    """Whether two runs, and one and two workers, give one model, and how far it is from the bare loop's.

    Args:
        names: the contenders.
        place: the folder of the peers' environments.
        method: the name of the method.
        rounds: of each run.
    """
    rows, bare = [], once("bare", place, method, 1, True, rounds)
    moved = float(np.linalg.norm(bare["weights"] - bare["before"]))
    for name in names:
        spec = SPECS[name]
        if name == "bare" or spec.variables or method not in spec.methods:
            continue
        one, two = (once(name, place, method, spec.workers, False, rounds)["hash"] for _ in range(2))
        other = once(name, place, method, 1, False, rounds)["hash"] if spec.most > 1 else None
        ordered = once(name, place, method, spec.workers, True, rounds)
        row = {
            "contender": name,
            "method": method,
            "two_runs_agree": one == two,
            "workers_agree": None if other is None else one == other,
            "distance_from_bare": float(f"{np.linalg.norm(ordered['weights'] - bare['weights']) / moved:.2e}"),
            "hash": one,
        }
        rows.append(row)
        print_now(json.dumps(row))
    return rows


def versions(place: Path) -> dict[str, str]:
    """The peers' versions.

    Args:
        place: the folder of the peers' environments.
    """
    found = {}
    for peer, package in PACKAGES.items():
        python = place / peer / "bin" / "python"
        code = f"from importlib.metadata import version as v; print(v('{package}'), 'torch', v('torch'))"
        if python.exists():
            found[peer] = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    return found


def environment(place: Path, rounds: int) -> dict[str, Any]:
    """The machine and the versions.

    Args:
        place: the folder of the peers' environments.
        rounds: timed rounds.
    """
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return {
        "cpu": models[0].split(":")[1].strip() if models else platform.processor(),
        "processors": len(models),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "peers": versions(place),
        "rounds": rounds,
    }


def main() -> None:
    """Measure, print the tables, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the peers' environments, made by install.py")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument(
        "--rounds", type=int, default=7, help="timed rounds of each contender, 2 at least; 0 leaves them out"
    )
    parser.add_argument(
        "--check-rounds", type=int, default=2, help="rounds of the comparison of models; 0 leaves it out"
    )
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--contenders", nargs="+", choices=SPECS, default=list(SPECS))
    options = parser.parse_args()
    if folder() is None:
        parser.error("Fashion-MNIST was not found: install dataset-fashion-mnist, or set UNDRIFT_DATA")
    place = options.folder.expanduser().absolute()
    names = [name for name in options.contenders if SPECS[name].python(place).exists()]
    for name in set(options.contenders) - set(names):
        print_now(f"{name} is left out: create its environment with benchmarks/peers/install.py {options.folder}")
    results: dict[str, Any] = {"rows": [], "checks": [], "environment": environment(place, options.rounds)}

    def keep(part: str, new: list[dict[str, Any]]) -> None:
        """Add rows to the results and write the file: what ends early has lost nothing."""
        results[part] += new
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")

    for setting in options.settings if options.rounds else []:
        for method in options.methods:
            keep("rows", timed(names, place, setting, method, options.rounds))
    for method in options.methods if options.check_rounds else []:
        keep("checks", checked(names, place, method, options.check_rounds))
    print(markdown(results))


if __name__ == "__main__":
    main()
