"""Twelve machines with a sensor each: windows of a time series and hours left; from files to predictions."""

import csv
import sys
from pathlib import Path

import numpy as np

import undrift
from undrift.report import collect, write_page
from undrift.runs import export, start

WINDOW = 24


def record(hours: int, draw: np.random.Generator) -> np.ndarray:
    """The vibration of a machine, hour by hour until it fails: a daily cycle, noise, and growth with wear."""
    time = np.arange(hours)
    wear = (time / hours) ** 3
    return 1 + 0.2 * np.sin(2 * np.pi * time / 24) + 2 * wear + draw.normal(0, 0.05, hours)


def write_windows(path: Path, machines: int, seed: int) -> Path:
    """A table with a row for each window: the machine, its readings, and the hours that were left after it."""
    draw = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["machine", *(f"t{hour:02d}" for hour in range(WINDOW)), "hours_left"])
        for machine in range(machines):
            series = record(int(draw.integers(300, 500)), draw)
            for start_at in range(0, len(series) - WINDOW, 6):
                readings, left = series[start_at : start_at + WINDOW], len(series) - WINDOW - start_at
                table.writerow([f"m{machine}", *(f"{x:.4f}" for x in readings), left])
    return path


def main(folder: Path, rounds: int = 30) -> dict[str, float]:
    """Train, and leave the report, the model and predictions in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run = start(
        folder=folder / "run",
        resume=True,
        data={"name": str(write_windows(folder / "windows.csv", 12, seed=0)), "target": "hours_left", "classes": 0},
        partition="column:machine",
        goal="mae",
        rounds=rounds,
        local={"lr": 0.05, "epochs": 2, "batch_size": 20},
    )
    write_page(collect([folder / "run"]), folder / "report.html")
    export(folder / "run", folder / "model")
    hours = undrift.load_model(folder / "model").predict(write_windows(folder / "new.csv", 1, seed=1))["hours_left"]
    print([round(hour) for hour in hours[::10]])
    return run.summary


if __name__ == "__main__":
    summary = main(Path(sys.argv[1] if len(sys.argv) > 1 else "fleet"))
    print("mae", round(summary["mae"], 2))
    print("a constant answer:", summary["constant"])
