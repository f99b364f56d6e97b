"""One library in its own environment: the models of every method as JSON; conformance.py starts it.

python benchmarks/conformance/one.py pfl_simulated
"""

import importlib
import importlib.metadata
import json
import os
import sys

from task import HYPER, AbsentError


def outcome(library: str, method: str) -> dict[str, object]:
    """The models of a method, that it is absent, or the error with which it ended.

    Args:
        library: a module of the folder libraries.
        method: one of the task's.
    """
    try:
        return {"models": importlib.import_module(f"libraries.{library}").run(method)}
    except AbsentError:
        return {"absent": True}
    except Exception as error:  # what another library raises is its outcome
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints goes to stderr
    name = sys.argv[1]
    found = {method: outcome(name, method) for method in HYPER}
    version = importlib.metadata.version(importlib.import_module(f"libraries.{name}").PACKAGE)
    json.dump({"version": version, "methods": found}, out)
