"""Which libraries compute what the papers state, to 1e-5: runs what is installed, writes JSON and the page.

Every library runs in its own environment, as benchmarks/peers/install.py makes them. One that is not installed keeps
its last result.

    python benchmarks/conformance/conformance.py ~/peers    # measure, then write results and page
    python benchmarks/conformance/conformance.py            # the page alone
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

import numpy as np  # noqa: E402

from differences import DIFFERENCES  # noqa: E402
from task import HYPER, expected  # noqa: E402

RESULTS, PAGE = HERE / "results" / "conformance.json", ROOT / "docs" / "evidence" / "conformance.md"
LIBRARIES = {
    "Undrift": ("undrift_local", ""),
    "pfl-research": ("pfl_simulated", "pfl"),
    "fluke": ("fluke_serial", "fluke"),
    "FedLab": ("fedlab_serial", "fedlab"),
    "Flower": ("flower_strategies", "flower"),
}
"""Each with its module in the folder libraries and its environment."""

TOLERANCE = 1e-5
NOTES = {
    ("Flower", "FedProx"): "the strategy sends mu; the term is the client's part, as its documentation describes",
    ("pfl-research", "FedAvg"): "with `WeightByDatapoints`; without it clients count alike",
    ("pfl-research", "FedAvgM"): "FedAvg with torch's SGD with momentum as the server's optimizer",
    ("fluke", "FedAvg"): "with `weighted=True`",
    ("FedLab", "FedProx"): "plain mean, as in the paper's algorithm 2",
}
"""How a method that agrees was set up."""


def judged(library: str, method: str, outcome: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one method of one library.

    Args:
        library: its title.
        method: the method.
        outcome: as one.py prints it.
    """
    if "models" not in outcome:
        return outcome
    found = np.array(outcome["models"])
    distances = [float(np.abs(found - paper).max()) for paper in expected(method)]
    verdict: dict[str, Any] = {"distance": min(distances)}
    if min(distances) > TOLERANCE and (library, method) in DIFFERENCES:
        verdict["explained"] = float(np.abs(found - DIFFERENCES[library, method][1]()).max())
    return verdict


def measured(library: str, environments: Path) -> dict[str, Any] | None:
    """The verdicts on a library; None if it is not installed.

    Args:
        library: its title.
        environments: the folder of the environments.
    """
    module, environment = LIBRARIES[library]
    python = environments / environment / "bin" / "python" if environment else Path(sys.executable)
    if not python.exists():
        return None
    path = os.pathsep.join(map(str, (HERE, HERE.parent / "peers", ROOT / "src")))
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [str(python), str(HERE / "one.py"), module],
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{library}: one.py ended with code {done.returncode}:\n{done.stderr[-1500:]}")
    reply = json.loads(done.stdout)
    methods = {method: judged(library, method, outcome) for method, outcome in reply["methods"].items()}
    return {"version": reply["version"], "methods": methods}


def word(verdict: dict[str, Any]) -> str:
    """A cell of the table.

    Args:
        verdict: as `judged` gives it.
    """
    if "absent" in verdict:
        return "not there"
    if "error" in verdict:
        return "does not run"
    if verdict["distance"] <= TOLERANCE:
        return "yes"
    return "differs" if verdict.get("explained", 1.0) <= TOLERANCE else "differs, how is not known"


def page(results: dict[str, Any]) -> str:
    """The page.

    Args:
        results: as they are stored.
    """
    lines = [
        "# Conformance",
        "",
        "Does a library compute what the papers state? Each library trains the same small task through its own",
        "classes: softmax regression, five clients with 3 to 12 examples, three of them in each of four rounds, three",
        "local steps on whole batches. The models are compared with the float64 oracles of",
        "[undrift.testing.oracles](../guide/oracles.md). *Yes* means that all models of all rounds agree to 1e-5; of",
        "Ditto also the personal models. Where a paper or its experiments have both the plain mean and the mean by",
        "examples, either is accepted. Every difference below is stated as a formula whose own models agree with the",
        "library's to 1e-5.",
        "",
        f"| | {' | '.join(HYPER)} |",
        "|---" * (len(HYPER) + 1) + "|",
    ]
    for library, result in results.items():
        cells = [word(result["methods"][method]) for method in HYPER]
        lines.append(f"| {library} {result['version']} | {' | '.join(cells)} |")
    lines += ["", "## Differences", ""]
    for library, result in results.items():
        for method, verdict in result["methods"].items():
            if "error" in verdict:
                lines.append(f"- **{library}, {method}** does not run: `{verdict['error']}`.")
            elif word(verdict) == "differs":
                size = f"Models differ by up to {verdict['distance']:.2g}."
                lines.append(f"- **{library}, {method}**: {DIFFERENCES[library, method][0]}. {size}")
    lines += ["", "## How agreeing methods were set up", ""]
    lines += [f"- **{library}, {method}**: {note}." for (library, method), note in NOTES.items()]
    lines += [
        "",
        "## Not compared",
        "",
        "PFLlib and FL-bench are not on PyPI and were not run: this page states nothing about them. A difference is no",
        "judgement of a library: several of these choices are common in released code, and a result obtained with one",
        "of them is a result of that formula. Versions are those installed when the table was made; corrections are",
        "welcome. [Coverage](coverage.md) has which of our methods each library has.",
        "",
        "Made by `make conformance`, from `benchmarks/conformance/results/conformance.json`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure if there are environments, and write the page."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if len(sys.argv) > 1:
        for library in LIBRARIES:
            found = measured(library, Path(sys.argv[1]))
            if found is None:
                print(f"{library}: not installed; its last result stays", file=sys.stderr)
            else:
                results[library] = found
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
