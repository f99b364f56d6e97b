"""Draw what nodes cost the server: `python docs/figures/make_nodes.py` writes nodes-light.svg and nodes-dark.svg.

The numbers are those of benchmarks/speed/light_nodes.py, in benchmarks/speed/results/light_nodes.json.
"""

import json
from math import ceil, floor, log10
from typing import Any

from canvas import DARK, HERE, LIGHT, Canvas, Theme

NUMBERS = HERE.parents[1] / "benchmarks" / "speed" / "results" / "light_nodes.json"
TOP, BOTTOM, WIDE = 92.0, 300.0, 270.0
PANELS = {
    "server seconds in a round": lambda row: row["seconds"]["server"],
    "megabytes added": lambda row: row["megabytes"],
}


def draw(theme: Theme, rows: list[dict[str, Any]]) -> str:
    """The figure in the colours of a theme: one panel for time, one for memory, both axes logarithmic."""
    canvas = Canvas(860, 384, theme, "Server seconds and memory of a round by the number of nodes, flat and as a tree")
    canvas.text(20, 34, "What nodes cost the server", bold=True, size=17)
    nodes = sorted({row["nodes"] for row in rows})
    series = {"flat": [row for row in rows if not row["edges"]], "tree": [row for row in rows if row["edges"]]}
    for number, (title, value) in enumerate(PANELS.items()):
        left = 70 + number * 420
        low, high = floor(log10(min(map(value, rows)))), ceil(log10(max(map(value, rows))))

        def place(row: dict[str, Any], left: int = left, low: int = low, high: int = high, of: Any = value) -> str:
            x = left + WIDE * (log10(row["nodes"]) - log10(nodes[0])) / (log10(nodes[-1]) - log10(nodes[0]))
            return f"{x:.1f} {BOTTOM - (BOTTOM - TOP) * (log10(of(row)) - low) / (high - low):.1f}"

        canvas.text(left, TOP - 18, title, size=14, fill=theme.soft)
        for power in range(low, high + 1):
            y = BOTTOM - (BOTTOM - TOP) * (power - low) / (high - low)
            canvas.path(f"M{left} {y:.1f}H{left + WIDE}", theme.line, wide=1)
            canvas.text(left - 8, y + 4.5, f"{10.0**power:g}", size=13, fill=theme.soft, anchor="end")
        for row in series["flat"]:
            x = float(place(row).split()[0])
            canvas.text(x, BOTTOM + 20, f"{row['nodes']:,}", size=13, fill=theme.soft, anchor="middle")
        for (name, own), colour in zip(series.items(), theme.marks[1:], strict=False):
            canvas.path("M" + "L".join(map(place, own)), colour, wide=2.5)
            y = float(place(own[-1]).split()[1])
            canvas.text(left + WIDE + 8, y + 4.5, name, size=14, bold=True, fill=colour)
        canvas.text(left + WIDE / 2, BOTTOM + 40, "nodes", size=13, fill=theme.soft, anchor="middle")
    parameters = rows[0]["parameters"]
    words = f"FedAvg, {parameters:,} parameters, one client for each node; tree: about sqrt(n) edge servers for n nodes"
    canvas.text(20, 374, words, size=12.5, fill=theme.soft)
    return canvas.svg()


def main() -> None:
    """Draw it in both themes."""
    rows = json.loads(NUMBERS.read_text())["rows"]
    for theme in (LIGHT, DARK):
        (HERE / f"nodes-{theme.name}.svg").write_text(draw(theme, rows))


if __name__ == "__main__":
    main()
