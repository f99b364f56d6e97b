"""Draw the learning curves: `python docs/figures/make_curves.py` writes curves-light.svg and curves-dark.svg.

The numbers are in curves.json. To measure them again, offline and in a few minutes on one core:

    undrift compare examples/compare-digits.toml --out runs/compare-digits
    python docs/figures/make_curves.py runs/compare-digits
"""

import json
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from canvas import DARK, HERE, LIGHT, Canvas, Theme

from undrift import load_run

NAMES = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedfft-d": "FedFFT-D"}
LEFT, RIGHT, TOP, BOTTOM = 64.0, 690.0, 64.0, 318.0


def read(folder: Path) -> dict[str, Any]:
    """The accuracies of a comparison: a list of rounds for each seed of each method."""
    methods = {
        name: [[row["accuracy"] for row in load_run(path).history] for path in sorted(folder.glob(f"{name}/seed-*"))]
        for name in NAMES
    }
    rounds = len(next(iter(methods.values()))[0])
    return {"rounds": list(range(1, rounds + 1)), "accuracy": methods}


def draw(theme: Theme, curves: dict[str, Any]) -> str:
    """The figure in the colours of a theme."""
    rounds, accuracy = curves["rounds"], curves["accuracy"]
    seeds = len(accuracy["fedavg"])
    title = "Test accuracy over rounds of FedAvg, SCAFFOLD, FedDyn and FedFFT-D on the digits data"
    canvas = Canvas(860, 384, theme, title)

    def place(done: float, value: float) -> str:
        x = LEFT + (RIGHT - LEFT) * (done - rounds[0]) / (rounds[-1] - rounds[0])
        return f"{x:.1f} {BOTTOM - (BOTTOM - TOP) * value:.1f}"

    canvas.text(20, 34, "Test accuracy when clients' data differ", bold=True, size=17)
    for percent in range(0, 101, 20):
        y = BOTTOM - (BOTTOM - TOP) * percent / 100
        canvas.path(f"M{LEFT} {y:.1f}H{RIGHT}", theme.line, wide=1)
        canvas.text(LEFT - 8, y + 4.5, f"{percent} %", size=13, fill=theme.soft, anchor="end")
    for done in (1, *range(5, rounds[-1] + 1, 5)):
        x = float(place(done, 0).split()[0])
        canvas.text(x, BOTTOM + 20, str(done), size=13, fill=theme.soft, anchor="middle")
    canvas.text((LEFT + RIGHT) / 2, BOTTOM + 40, "round", size=13, fill=theme.soft, anchor="middle")
    ends = []
    for name, colour in zip(NAMES, theme.marks, strict=False):
        columns = list(zip(*accuracy[name], strict=True))
        means, spread = [mean(values) for values in columns], [stdev(values) for values in columns]
        upper = [place(done, min(m + s, 1)) for done, m, s in zip(rounds, means, spread, strict=True)]
        lower = [place(done, max(m - s, 0)) for done, m, s in zip(rounds, means, spread, strict=True)]
        canvas.area("M" + "L".join(upper + lower[::-1]) + "Z", colour)
        canvas.path("M" + "L".join(map(place, rounds, means)), colour, wide=2.5)
        ends.append((float(place(rounds[-1], means[-1]).split()[1]), name, colour, means[-1]))
    below = 0.0
    for y, name, colour, last in sorted(ends):
        below = max(y + 4.5, below + 19)
        words = f"{NAMES[name]}  {last:.1%}".replace("%", " %")
        canvas.text(RIGHT + 10, below, words, size=14, bold=True, fill=colour)
    canvas.text(
        20,
        374,
        f"digits, Dirichlet 0.1, 5 of 14 clients in a round; mean and standard deviation over {seeds} seeds",
        size=12.5,
        fill=theme.soft,
    )
    return canvas.svg()


def main() -> None:
    """Read new runs if a folder is given, then draw."""
    if len(sys.argv) > 1:
        (HERE / "curves.json").write_text(json.dumps(read(Path(sys.argv[1]))) + "\n")
    curves = json.loads((HERE / "curves.json").read_text())
    for theme in (LIGHT, DARK):
        (HERE / f"curves-{theme.name}.svg").write_text(draw(theme, curves))


if __name__ == "__main__":
    main()
