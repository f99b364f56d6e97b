"""The scripts of examples/own: each as a whole, killed by SIGKILL after its second row, and run again.

    PYTHONPATH=tests python -m support.own_runs FOLDER images regression ...

Every script runs in forked processes, as the main program, in FOLDER, with run folders whole/SCRIPT and killed/SCRIPT.
The parent imports what they need, once, and never trains. For each script one line of JSON is printed.
"""

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from traceback import print_exc
from typing import Any

import torch
from safetensors.torch import load_file

from faults.kills import forked, wait
from faults.points import arm
from undrift.runs.folder.files import read_summary

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "own"


def script(name: str, folder: str) -> None:
    """Run a script as the main program; what it prints goes to a file beside its run."""
    sys.argv = [name, folder]
    with open(f"{folder}.txt", "w") as out, redirect_stdout(out):
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")


def adapter(folder: str) -> None:
    """Load the adapter that lora.py saved, on a new base: its weights are the run's."""
    from gpt import model
    from peft import PeftModel

    trained = load_file(f"{folder}/model.safetensors")
    loaded = PeftModel.from_pretrained(model(), f"{folder}/adapter").state_dict()
    adapters = [name for name in trained if "lora" in name]
    assert adapters and all(torch.equal(loaded[name], trained[name]) for name in adapters)


def code(work: Callable[[], object]) -> int:
    """How a process ended that did something; its error is printed."""

    def result() -> None:
        try:
            work()
        except BaseException:
            print_exc()
            sys.stderr.flush()
            raise

    return wait(forked(result))


def main() -> None:
    """Run, kill and run again."""
    root, *names = sys.argv[1:]
    os.chdir(root)
    sys.path.insert(0, str(SCRIPTS))
    for folder in ("whole", "killed"):
        Path(folder).mkdir()
    for name in names:
        import_module(name)
    for name in names:
        whole, killed = f"whole/{name}", f"killed/{name}"

        def doomed(name: str = name, killed: str = killed) -> None:
            arm("after the row", 1)
            script(name, killed)

        began = time.perf_counter()
        result: dict[str, Any] = {"script": name, "code": code(partial(script, name, whole))}
        result["seconds"] = round(time.perf_counter() - began, 2)
        result["killed"] = code(doomed)
        result["rows"] = len(Path(killed, "metrics.jsonl").read_text().splitlines())
        result["again"] = code(partial(script, name, killed))
        result["sha256"] = [(read_summary(Path(folder)) or {}).get("sha256") for folder in (whole, killed)]
        if name == "lora":
            result["adapter"] = code(partial(adapter, whole))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
