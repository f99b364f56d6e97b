"""What became of a hostile node's replies, round by round."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from support import hostile_party
from support.deployment import load
from support.hostile_node import BAD, BEHAVIOURS, CLIENTS
from support.new_app import NEW_APP
from undrift import Local, Simulation, make
from undrift.core.records.types import ServerState
from undrift.core.server.wire import from_bytes, to_bytes
from undrift.testing import fingerprint

METHOD, DEADLINE, LOCAL = "fedavg", 40.0, Local(lr=0.1, batch_size=10, epochs=1)
ROUNDS = len(BEHAVIOURS) + 2  # the first and the last are honest

ACCEPTED = [
    "loss -1e9",
    "another run's upload",
    "replay, a bit changed",
    "reversed, at the bound",
    "10,000 examples",
    "10,000 examples, reversed, at the bound",
]
"""What the server cannot tell from honest training: its size is limited."""

ABSENT = ["exception", "after the deadline"]
"""What gives no reply in time."""


def keep(folder: Path, state: ServerState) -> None:
    """Keep the server's state after a round."""
    folder.mkdir(exist_ok=True)
    (folder / str(state.round)).write_bytes(to_bytes(state))


def distance(x: torch.Tensor, y: torch.Tensor | float = 0.0) -> float:
    """The norm of a difference."""
    return float(torch.linalg.vector_norm(x.double() - y))


def what_happened(run: Path, states: Path) -> dict[int, dict[str, Any]]:
    """Of every round: what became of the hostile node's clients, how long it took, and how far the model was moved.

    The distance is that between the model after the round and the one that the accepted clients of the honest nodes
    alone would have made of the model before it.
    """
    simulation = Simulation(make(METHOD), load(NEW_APP / "app" / "task.py").task(), LOCAL, seed=0)
    state, found = simulation.start(), {}
    events = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
    honest = [client for client in range(CLIENTS) if client % 3 != BAD]
    for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        number = row["round"]
        lost = {
            event["client"]: (event.get("reason", event["event"]), event.get("detail", ""))
            for event in events
            if event.get("round") == number and event["event"] in ("reject", "absent")
        }
        expected, _ = simulation.round(state, [client for client in honest if client not in lost])
        state = from_bytes(ServerState, make(METHOD), (states / str(number)).read_bytes(), len(state.params))
        outcome, detail = lost.get(BAD, ("accepted", ""))
        found[number] = {
            "behaviour": ("honest", *BEHAVIOURS, "honest")[min(number - 1, len(BEHAVIOURS) + 1)],
            "outcome": outcome,
            "detail": detail,
            "seconds": round(row["seconds"], 1),
            "clients": row["clients"],
            "honest_rejected": len(set(honest) & set(lost)),
            "accuracy": row.get("accuracy"),
            "loss": row["train_loss"],
            "bound": row["bound"],
            "norm": distance(state.params),
            "distance": distance(state.params, expected.params),
            "quarantined": "quarantined" in detail,
        }
    return found


def check(found: dict[int, dict[str, Any]], accepted: Sequence[str] = (), absent: Sequence[str] = ()) -> None:
    """Every round was reached, nothing rejected left a trace, and what was accepted moved the model within the bound.

    Args:
        found: what happened in every round.
        accepted: behaviours that are accepted here besides.
        absent: behaviours that give no reply in time here besides.
    """
    assert list(found) == list(range(1, ROUNDS + 1))
    known = dict.fromkeys(["honest", *ACCEPTED, *accepted], "accepted") | dict.fromkeys([*ABSENT, *absent], "absent")
    for it in list(found.values())[:-1]:  # the last is honest, and longer than the bound if the model was moved before
        kind = it["outcome"] if it["outcome"] in ("accepted", "absent") else "rejected"
        assert kind == known.get(it["behaviour"], "rejected"), it
        assert kind == "accepted" or it["distance"] == 0.0, it
        assert it["distance"] <= 2 * it["bound"] and -10 < it["loss"] < 100, it


def became_of_sums(run: Path, states: Path, accepted: Sequence[Sequence[int]]) -> dict[int, dict[str, Any]]:
    """Of every round with a hostile party of secure sums: what became of its upload, and whether the sum is exact.

    The state after each round is compared with that of a plain round over the accepted clients from the state before.

    Args:
        run: the folder of the run.
        states: has the state after every round.
        accepted: the clients accepted in each round.
    """
    simulation = Simulation(make(METHOD), load(NEW_APP / "app" / "task.py").task(), LOCAL, seed=0)
    before, found = simulation.start(), {}
    others = [client for client in range(CLIENTS) if client % hostile_party.NODES != hostile_party.BAD]
    kinds = {(): "abandoned", (*others,): "left out", (*range(CLIENTS),): "accepted"}
    names = ["honest", *hostile_party.BEHAVIOURS, "honest"]
    steps = ["", *(step for step, _, _ in hostile_party.BEHAVIOURS.values()), ""]
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    for row, given, name, step in zip(rows, accepted, names, steps, strict=True):
        clients, number = sorted(given), row["round"]
        expected = simulation.round(before, clients)[0] if clients else replace(before, round=number)
        state = from_bytes(ServerState, make(METHOD), (states / str(number)).read_bytes(), len(before.params))
        found[number] = {
            "behaviour": name,
            "step": step,
            "outcome": kinds.get((*clients,), f"clients {clients}"),
            "clients": len(clients),
            "exact": fingerprint(state) == fingerprint(expected),
            "seconds": round(row["seconds"], 1),
            "accuracy": row.get("accuracy"),
            "norm": distance(state.params),
        }
        before = state
    return found
