"""The protocol between the benchmark and a contender: one JSON line each way, over the contender's stdin and stdout.

    {"do": "round"}           -> {"seconds": 0.12}
    {"do": "model"}           -> {"accuracy": 0.61, "hash": "...", "file": "..."}
    {"do": "stop"}            -> the contender ends

The first line of a contender, {"ready": true}, ends its start-up. A contender of any shape fits: it calls `pause` once
it is set up and after every round, and continues when `pause` returns.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from work import Data, accuracy


class Turns:
    """A contender's end of the protocol.

    Everything that a library prints goes to stderr; only this object writes to the real stdout.

    Args:
        data: to test the model.
    """

    def __init__(self, data: Data) -> None:
        self.data, self.begun = data, 0.0
        self.source = os.fdopen(os.dup(0), "r")
        self.sink = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        sys.stdin = open(os.devnull)  # noqa: SIM115

    def pause(self, model: Callable[[], nn.Module]) -> bool:
        """End the round that is running, if any, and wait; False means to stop.

        Args:
            model: returns the global model; called only outside the timed rounds.
        """
        seconds = time.perf_counter() - self.begun
        self.send({"seconds": seconds} if self.begun else {"ready": True})
        for line in self.source:
            wish = json.loads(line)
            if wish["do"] == "round":
                self.begun = time.perf_counter()
                return True
            if wish["do"] == "stop":
                return False
            self.send(self.describe(model(), wish.get("file")))
        return False

    def send(self, reply: dict[str, Any]) -> None:
        """Send one line.

        Args:
            reply: what to send.
        """
        print(json.dumps(reply), file=self.sink, flush=True)

    def describe(self, model: nn.Module, file: str | None) -> dict[str, Any]:
        """Accuracy and hash of a model.

        Args:
            model: the model.
            file: where to save the weights as one vector; None does not.
        """
        weights = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
        if file:
            np.save(file, weights)
        digest = hashlib.sha256(weights.astype("<f4").tobytes()).hexdigest()[:16]
        return {"accuracy": accuracy(model, self.data), "hash": digest, "parameters": len(weights)}
