"""A run of a tiny Llama with adapters on an engine, in a process of its own that may kill itself in a round.

    PYTHONPATH=tests python -m support.adapter_runs FOLDER rolora flower      to the end; also of a run that was killed
    PYTHONPATH=tests python -m support.adapter_runs FOLDER rolora ray 1       killed once round 1 is computed

The hash of the final state is printed.
"""

import sys
from pathlib import Path
from typing import Any

from faults.points import arm
from support.peft_models import LOCAL, task_of
from undrift.runs import Outcome, start

ROUNDS = 3


def run(folder: Path, method: str, engine: str = "local", **settings: Any) -> Outcome:
    """Begin or go on.

    Args:
        folder: of the run.
        method: as text.
        engine: "local", "ray" or "flower".
        settings: further ones of the run.
    """
    workers = {} if engine == "local" else {"workers": 2}
    given: dict[str, Any] = {
        "rounds": ROUNDS,
        "local": LOCAL,
        "seed": 3,
        "engine": {"name": engine, **workers},
    } | settings
    return start(task=task_of("llama", method), folder=folder, method=method, resume=True, **given)


def main() -> None:
    """Do as the arguments say."""
    folder, method, engine, *killed = sys.argv[1:]
    if killed:
        arm("after reduce", int(killed[0]))
    print(run(Path(folder), method, engine).sha256)


if __name__ == "__main__":
    main()
