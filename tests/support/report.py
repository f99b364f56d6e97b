"""Folders as runs and the lens leave them, with numbers that are easy to check."""

import json
from pathlib import Path
from typing import Any

import pytest

from undrift.report import Material, collect
from undrift.runs.settings.config import Config
from undrift.studies.compare import Comparison

ROUNDS = 4
LAYERS = ["conv.weight", "fc.weight", "<script>alert('layer')</script>"]
COMPARISON: dict[str, Any] = {
    "name": "toys <script>alert('name')</script>",
    "seeds": [0, 1],
    "base": {"rounds": ROUNDS, "clients": 4, "cohort": 2, "target": 0.5},
    "methods": [{"method": "fedavg"}, {"method": "fedsam", "label": "sam-0.1", "arguments": {"rho": 0.1}}],
    "settings": {"even": {"partition": "iid"}, "skewed": {"partition": "dirichlet:0.1"}},
}


def write_run(folder: Path, config: Config, gain: float, lens: bool = False) -> None:
    """A folder as a run leaves it, with numbers that are easy to check: accuracy grows by `gain` in every round."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config.toml())
    for round in range(config.rounds):
        accuracy = gain * (round + 1)
        row = {
            "round": round,
            "accuracy": accuracy,
            "test_loss": 1 - accuracy,
            "drift": 0.1,
            "client_accuracy": accuracy,
        }
        row |= {"client_worst_tenth": 0.1, "seconds": 2.0, "evaluate_seconds": 1.0, "gradients": 10}
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row | {"bytes_up": 1_000_000, "bytes_down": 3_000_000}) + "\n")
    notes: dict[str, Any] = {
        "summary.json": {"sha256": "ab" * 32, "traffic": 1.0, "rounds": config.rounds},
        "partition.json": {"sha256": "cd" * 32, "scheme": "iid", "histogram": [[3, 0], [0, 12], [1, 1], [2, 2]]},
        "clients.json": {"accuracy": [0.2, None, 0.8, gain]},
        "environment.json": {"torch": "2.13.0", "data": "<b>Fashion</b>"},
    }
    if lens:
        notes["lens.json"] = seen(gain)
        rows = [
            {"round": r, "consensus": [0.9, 0.5], "divergence": {"layers": LAYERS, "relative": [r, 1, None]}}
            for r in (0, 1)
        ]
        rows[1] |= {"heterogeneity": theory(gain)}
        (folder / "lens.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in [*rows, {"round": 2, "skipped": "x"}])
        )
    for name, content in notes.items():
        (folder / name).write_text(json.dumps(content))


def theory(scale: float) -> dict[str, Any]:
    """Length and variance of gradients, before and after a filter."""
    whole = {"gradient": scale, "between": 4 * scale, "within": 2.0, "dissimilarity": 5.0}
    return {"filter": "high_pass(r=0.1)", "whole": whole, "kept": {**whole, "within": 1.5, "dissimilarity": None}}


def seen(scale: float) -> dict[str, Any]:
    """What the lens writes, small."""
    part = {"layers": LAYERS[:2], "normalised": [[0.6, 0.8], [1.0, 0.0]], "overall": {"distance": [3.0, 4.0]}}
    pairs = [[1.0, 0.25], [0.25, 1.0]]
    grid = [-1.0, 0.0, 1.0]
    return {
        "round": ROUNDS,
        "clients": [3, 17],
        "spectrum": {"bands": 2, "update": {**part, "consensus": [0.9, 0.5]}},
        "divergence": {"layers": LAYERS, "relative": [0.1, 0.2, None], "cosine": {"matrix": pairs}},
        "alignment": {"clients": [3, 17], "matrix": pairs, "layers": {"conv": 0.9, "fc": pairs}},
        "embedding": {
            "pca_update": {"points": [[0, 1], [1, 0]], "clients": [3, 17], "explained": [0.6, 0.3]},
            "tsne_features": {"points": [[0, 1], [1, 0], [2, 2]], "labels": [0, 1, 9]},
        },
        "curvature": {"top": [7.5, 4.25], "trace": 52.0, "trace_error": 3.0, "sharpness": 0.5},
        "surface": {"a": grid, "b": grid, "loss": [[1 + scale * (x + 2 * y + 3) for y in grid] for x in grid]},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two methods, two settings and two seeds."""
    out = tmp_path_factory.mktemp("report") / "toys"
    comparison = Comparison.build(COMPARISON)
    for trial in comparison.trials():
        gain = 0.2 + 0.02 * trial.config.seed - 0.1 * (trial.label == "sam-0.1")
        write_run(out / trial.name, trial.config, gain, lens=trial.config.seed == 0 and trial.setting == "even")
    (out / "compare.toml").write_text(comparison.toml())
    failure = {"run": "even/krum/seed-0", "error": "ValueError: <i>too few</i>", "trace": ""}
    (out / "table.json").write_text(json.dumps({"failures": [failure]}))
    return out


@pytest.fixture(scope="module")
def material(folder: Path) -> Material:
    return collect([folder])
