"""A bank with eight branches: a table with texts, gaps and a rare class; from the file to predictions for new rows."""

import csv
import sys
from pathlib import Path

import numpy as np

import undrift
from undrift.report import collect, write_page
from undrift.runs import export, start

JOBS = ("clerk", "engineer", "farmer", "nurse", "teacher")


def write_customers(path: Path, rows: int, seed: int) -> Path:
    """Made-up customers: one in twelve defaults; incomes have gaps, and branches differ."""
    draw = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["customer", "branch", "age", "income", "job", "late_payments", "default"])
        for number in range(rows):
            branch, job = int(draw.integers(8)), JOBS[draw.integers(len(JOBS))]
            age, late = int(draw.integers(20, 70)), int(draw.poisson(1 + 0.2 * branch))
            income = draw.lognormal(10 + 0.05 * branch, 0.4)
            risk = late + (job == "farmer") - income / 15_000 + draw.normal(0, 0.5)
            gap = draw.random() < 0.05
            name, kind = f"c{number}", "yes" if risk > 2.4 else "no"
            table.writerow([name, f"branch {branch}", age, "" if gap else f"{income:.0f}", job, late, kind])
    return path


def main(folder: Path, rounds: int = 20) -> dict[str, float]:
    """Train, and leave the report, the model and predictions in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    table = write_customers(folder / "customers.csv", 4000, seed=0)
    run = start(
        folder=folder / "run",
        resume=True,
        data={"name": str(table), "target": "default", "missing": "median"},
        partition="column:branch",
        loss="cross-entropy(weights='balanced')",  # without weights, "no" for everybody is hard to beat
        metrics=["balanced-accuracy", "f1(label=1)", "auroc"],
        goal="balanced_accuracy",
        rounds=rounds,
    )
    write_page(collect([folder / "run"]), folder / "report.html")
    export(folder / "run", folder / "model")
    new = write_customers(folder / "new.csv", 5, seed=1)
    print(undrift.load_model(folder / "model").predict(new))
    return run.summary


if __name__ == "__main__":
    summary = main(Path(sys.argv[1] if len(sys.argv) > 1 else "bank"))
    print({name: round(summary[name], 3) for name in ("accuracy", "balanced_accuracy", "f1", "auroc")})
    print("a constant answer:", summary["constant"])
