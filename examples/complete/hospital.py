"""Four hospitals with scanners of their own: images in folders, a model for each site; from files to predictions."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import undrift
from undrift.report import collect, write_page
from undrift.runs import export, start

SIDE, SITES = 16, 4


def write_scan(path: Path, site: int, ill: bool, draw: np.random.Generator) -> None:
    """A made-up scan: noise of the site's scanner, and a bright spot if the patient is ill."""
    pixels = draw.normal(60 + 30 * site, 12, (SIDE, SIDE))
    if ill:
        row, column = draw.integers(3, SIDE - 3, 2)
        pixels[row - 2 : row + 2, column - 2 : column + 2] += 45 if site % 2 else -45  # some scanners show it dark
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def write_scans(folder: Path, each: int, seed: int) -> Path:
    """Scans in folder/SITE/CLASS, as many of each."""
    draw = np.random.default_rng(seed)
    for number in range(SITES * 2 * each):
        site, ill = number % SITES, number // SITES % 2 == 1
        write_scan(folder / f"site-{site}" / ("ill" if ill else "well") / f"{number}.png", site, ill, draw)
    return folder


def main(folder: Path, rounds: int = 15) -> dict[str, float]:
    """Train a shared body with a head for each site, and leave report, models and predictions in a folder."""
    scans = write_scans(folder / "scans", 100, seed=0)
    run = start(
        folder=folder / "run",
        resume=True,
        method="fedper",
        data=str(scans),
        partition="column:folder",  # the folder above the classes
        model="small-cnn",
        rounds=rounds,
        local={"lr": 0.05, "epochs": 2, "batch_size": 20},
    )
    write_page(collect([folder / "run"]), folder / "report.html")
    export(folder / "run", folder / "model-of-site-2", client=2)
    new = write_scans(folder / "new", 1, seed=1) / "site-2"
    print(undrift.load_model(folder / "model-of-site-2").predict(new))
    return run.summary


if __name__ == "__main__":
    summary = main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospital"))
    print({name: round(summary[name], 3) for name in ("accuracy", "personal_accuracy")})
    print("a constant answer:", summary["constant"])
