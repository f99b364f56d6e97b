"""Runs of `deploy` on the stand-in grid: whole, killed at a named place in a process of its own, and gone on with.

    PYTHONPATH=tests python -m support.deploy_runs ROOT scaffold "after send" "before the row"

For each kill one line of JSON is printed: how the process ended, and whether the run ended like a whole one.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from support.flower_grid import StandInGrid
from undrift import Local, make
from undrift.deploying.deploy import deploy
from undrift.flower import Job, client_app
from undrift.runs.reading.saved_run import Outcome
from undrift.testing import clinic

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
ROUNDS = 4


def test(module: Any) -> dict[str, float]:
    """A central test: one number of the model."""
    return {"accuracy": min(1.0, float(sum(p.detach().abs().mean() for p in module.parameters())))}


def grid(method: str, root: Path, nodes: int = 3, seed: int = 0) -> StandInGrid:
    """Nodes with states in a folder."""
    return StandInGrid(client_app(Job(make(method), clinic(make(method)), depth=2)), nodes, root / "nodes", seed)


def deployed(method: str, root: Path, on: StandInGrid | None = None, **more: Any) -> Outcome:
    """A deployment in a folder; the same call goes on with it."""
    given: dict[str, Any] = {"rounds": ROUNDS, "population": 8, "cohort": 5, "seed": 3, "test": test, "deadline": 20.0}
    given |= {"poll": 0.01, "wait": 5.0, "folder": root / "run"}
    return deploy(on or grid(method, root), method, clinic(make(method)).model(), LOCAL, **given | more)


def rounds_by(outcome: Outcome) -> list[dict[str, Any]]:
    """The rows of a run, without times."""
    lines = (outcome.folder / "metrics.jsonl").read_text().splitlines()
    return [{k: x for k, x in json.loads(line).items() if "seconds" not in k} for line in lines]


def main() -> None:
    """Kill and go on as the arguments say."""
    from faults.kills import forked, wait
    from faults.points import arm

    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    root, method, places = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    root.mkdir(exist_ok=True)
    assert wait(forked(lambda: deployed(method, root / "whole"))) == 0, "the run itself fails"
    expected = json.loads((root / "whole" / "run" / "summary.json").read_text())
    for number, text in enumerate(places):
        place, _, round = text.partition("@")
        folder = root / str(number)

        def doomed(folder: Path = folder, place: str = place, round: str = round) -> None:
            arm(place, int(round or 2))
            deployed(method, folder)

        ended = wait(forked(doomed))
        code = wait(forked(lambda folder=folder: deployed(method, folder, grid(method, folder, seed=7))))  # type: ignore[misc]
        path = folder / "run" / "summary.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        rows = len((folder / "run" / "metrics.jsonl").read_text().splitlines())
        result = {"method": method, "killed": text, "ended": ended, "code": code, "rows": rows}
        print(json.dumps({**result, "same": found.get("sha256") == expected["sha256"]}), flush=True)


if __name__ == "__main__":
    main()
