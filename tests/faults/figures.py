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
    runs = [results[name] for name in ("uploads", "sums") if name in results]
    names = [name for _ in runs for name in ("outcome", "seconds", "norm", "moved")]
    lines = [f"| round | the hostile node sends | {' | '.join(names)} |", "|---|---|" + len(names) * "---|"]
    for number in runs[0]:
        cells = [number, runs[0][number]["behaviour"]]
        for it in (run[number] for run in runs):
            cells += [it["outcome"], f"{it['seconds']:.0f}", f"{it['norm']:.2f}", f"{it['distance']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def party_table(results: dict[str, dict[str, Any]]) -> str:
    """The table of docs/evidence/reliability.md about a hostile party of secure sums, in Markdown.

    Args:
        results: what `make hostile` measured: of each run, every round.
    """
    lines = [
        "| round | the hostile party sends | its upload | clients in the sum | seconds | norm |",
        "|---|---|---|---|---|---|",
    ]
    for number, it in sorted(results["secure"].items(), key=lambda pair: int(pair[0])):
        upload = "round abandoned" if it["outcome"] == "abandoned" else it["outcome"]
        cells = [number, it["behaviour"], upload, str(it["clients"]), f"{it['seconds']:.0f}", f"{it['norm']:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
