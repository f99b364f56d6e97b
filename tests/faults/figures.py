"""What the long tests measured, in one JSON file: `make faults` and `make hostile` name it in UNDRIFT_FIGURES."""

import json
import os
import time
from pathlib import Path
from typing import Any


def record(row: str, case: str, **figures: Any) -> None:
    """Keep what a test measured; without the variable nothing is written.

    Args:
        row: the row of docs/evidence/reliability.md, such as R5; or the name of a run.
        case: which case of it.
        figures: what was measured.
    """
    if not (where := os.environ.get("UNDRIFT_FIGURES")):
        return
    path = Path(where)
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(row, {})[case] = {"date": time.strftime("%Y-%m-%d", time.gmtime()), **figures}
    path.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")


def hostile_table(results: dict[str, dict[str, Any]]) -> str:
    """The table of docs/evidence/reliability.md about a hostile node, in Markdown.

    Args:
        results: what `make hostile` measured: of each run, every round.
    """
    names = ("outcome", "seconds", "norm", "moved")
    lines = ["| round | the hostile node sends |" + "".join(f" {name} |" for name in 2 * names)]
    lines.append(len(lines[0].split("|")[1:-1]) * "|---" + "|")
    for number, one in results["uploads"].items():
        cells = [number, one["behaviour"]]
        for it in (one, results["sums"][number]):
            cells += [it["outcome"], f"{it['seconds']:.0f}", f"{it['norm']:.2f}", f"{it['distance']:.2f}"]
        lines.append("".join(f"| {cell} " for cell in cells) + "|")
    return "\n".join(lines)
