"""The tables of the peers benchmark, in Markdown.

python benchmarks/peers/table.py benchmarks/peers/results/peers.json
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from process import SPECS
from work import CLIENTS, SETTINGS

MODELS = {"cnn": "small CNN", "mlp": "60k perceptron", "logistic": "logistic regression"}


def markdown(results: dict[str, Any]) -> str:
    """All tables.

    Args:
        results: as peers.py writes them.
    """
    keys = list(dict.fromkeys((row["setting"], row["method"]) for row in results["rows"]))
    parts = [timings(results, setting, method) for setting, method in keys]
    return "\n\n".join([*parts, *([agreement(results)] if results["checks"] else [])])


def timings(results: dict[str, Any], setting: str, method: str) -> str:
    """The table of one setting and method.

    Args:
        results: as peers.py writes them.
        setting: the name of the setting.
        method: the name of the method.
    """
    work = SETTINGS[setting]
    rows = [row for row in results["rows"] if (row["setting"], row["method"]) == (setting, method)]
    title = (
        f"{'SCAFFOLD' if method == 'scaffold' else 'FedAvg'}, {MODELS[setting]}: {work.cohort} of {CLIENTS} clients a "
        f"round, {work.examples} examples each, {work.steps} steps of {work.batch}"
    )
    lines = [
        f"{title}:",
        "",
        "| | workers | s per round | / bare | / fastest peer | first round, s | start-up, s | MB | accuracy |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: row["seconds"]):
        cells = [SPECS[row["contender"]].title, row["workers"], f"{row['seconds']:.3f}"]
        cells += [f"{row[key]:.2f}" if key in row else "" for key in ("over_bare", "over_fastest_peer")]
        cells += [f"{row['first_round']:.1f}", f"{row['start_up']:.1f}", row["megabytes"], f"{row['accuracy']:.3f}"]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    used = {row["contender"] for row in results["rows"]}
    without = [SPECS[name].title for name in SPECS if name in used and method not in SPECS[name].methods]
    if without:
        lines += ["", f"No SCAFFOLD: {'; '.join(without)}."]
    return "\n".join(lines)


def agreement(results: dict[str, Any]) -> str:
    """The table of the comparisons of models.

    Args:
        results: as peers.py writes them.
    """
    lines = [
        "| | method | two runs give one model | one and two workers give one model | distance from bare PyTorch |",
        "|---|---|---|---|---:|",
    ]
    words = {True: "yes", False: "no", None: "one worker only"}
    for row in results["checks"]:
        spec = SPECS[row["contender"]]
        title = f"{spec.title}, {spec.workers} workers" if spec.workers > 1 else spec.title
        cells = [title, row["method"], words[row["two_runs_agree"]], words[row["workers_agree"]]]
        lines.append("| " + " | ".join([*cells, f"{row['distance_from_bare']:.0e}"]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text())))
