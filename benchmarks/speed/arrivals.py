"""What an arrival costs under a schedule without a barrier, beside a client of a synchronous round.

A million clients are registered, 1,000 are in flight, and 10,000 uploads of a model of 1,000 parameters arrive, in this
process. The task is empty: one batch, whose gradient is zero, so that all time is the engine's. Milliseconds are
processor time of one thread, the median of ten parts of the run; memory is the growth of the resident set over the run.
A step of the server costs the same with one upload as with many, so each schedule stands beside synchronous rounds of
1,000 clients, and beside rounds with as many uploads per step. Every run has its own process.

`plan` is what the scheduler alone takes of an arrival, by the number of clients in flight.

    python benchmarks/speed/arrivals.py --json > benchmarks/speed/results/arrivals.json
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from processes import run_part
from step import environment
from undrift import Local, Simulation
from undrift.core.server import step as server
from undrift.planning.calibrate import EmptyTask

REGISTERED, FLYING, ARRIVALS, SIZE = 1_000_000, 1_000, 10_000, 1_000
METHODS = ("fedavg + uniform", "scaffold + uniform")
STEPS = (1, 10, 100)
"""Uploads per step of the server."""
DURATIONS = "exponential(1)"


def resident() -> float:
    """The resident set of this process in megabytes."""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def schedule(size: int) -> str:
    """The schedule that steps after so many arrivals."""
    return "asynchronous" if size == 1 else f"buffered({size})"


def run(method: str, size: int, overlapping: bool) -> dict[str, float]:
    """Milliseconds and kilobytes of an arrival, after steps in which the clients in flight have begun."""
    torch.set_num_threads(1)
    text, cohort = (f"{method} + {schedule(size)}", FLYING) if overlapping else (method, size)
    simulation = Simulation(
        text, EmptyTask(SIZE, REGISTERED), Local(), cohort=cohort, durations=DURATIONS if overlapping else None
    )
    state = simulation.run(max(1, FLYING // size) if overlapping else 1)
    seconds, before, steps = list[float](), resident(), ARRIVALS // size
    for part in range(10):
        count, begun = steps * (part + 1) // 10 - steps * part // 10, time.process_time()
        state = simulation.run(count, state)
        seconds.append((time.process_time() - begun) / (count * size))
    return {"milliseconds": 1000 * median(seconds), "kilobytes": 1024 * (resident() - before) / ARRIVALS}


def plan(flying: int) -> float:
    """Milliseconds of an arrival in the scheduler, which steps after each."""
    text = f"fedavg + {schedule(1)}"
    simulation = Simulation(text, EmptyTask(SIZE, REGISTERED), Local(), cohort=flying, durations=DURATIONS)
    state, flight, at, seconds = simulation.start(), None, 0, list[float]()
    broadcast = server.send(simulation.job.algorithm, state, simulation.setting)
    for _ in range(11):
        begun = time.process_time()
        for round in range(at, at + ARRIVALS // 10):
            step = simulation.scheduler.plan(round, flight)
            flight = step.flight({**({} if flight is None else flight.sent), round: broadcast})
        at += ARRIVALS // 10
        seconds.append((time.process_time() - begun) / (ARRIVALS // 10))
    return 1000 * median(seconds[1:])


def part(name: str) -> dict[str, float]:
    """One part, in this process."""
    kind, *others = name.split(":")
    if kind == "plan":
        return {"milliseconds": plan(int(others[0]))}
    return run(others[0], int(others[1]), kind == "overlapping")


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--part", help='measure one part in this process: plan:1000, "overlapping:fedavg:10"')
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(part(arguments.part)))
        return

    def measured(name: str) -> dict[str, float]:
        """One part, in its own process."""
        found: dict[str, float] = run_part(__file__, ["--part", name])
        return found

    rows: list[dict[str, Any]] = []
    for method in METHODS:
        rounds = measured(f"synchronous:{method}:{FLYING}")
        for size in reversed(STEPS):
            ours, same = measured(f"overlapping:{method}:{size}"), measured(f"synchronous:{method}:{size}")
            rows.append(
                {
                    "method": method,
                    "uploads_per_step": size,
                    "ms_per_client_of_a_large_round": round(rounds["milliseconds"], 3),
                    "ms_per_client_of_an_equal_round": round(same["milliseconds"], 3),
                    "ms_per_arrival": round(ours["milliseconds"], 3),
                    "over_large": round(ours["milliseconds"] / rounds["milliseconds"], 2),
                    "over_equal": round(ours["milliseconds"] / same["milliseconds"], 2),
                    "kb_per_client_of_a_large_round": round(rounds["kilobytes"], 2),
                    "kb_per_client_of_an_equal_round": round(same["kilobytes"], 2),
                    "kb_per_arrival": round(ours["kilobytes"], 2),
                }
            )
            if not arguments.json:
                print(rows[-1])
    plans = [
        {"in_flight": x, "ms_per_arrival": round(measured(f"plan:{x}")["milliseconds"], 3)}
        for x in (10, 100, 1000, 10_000)
    ]
    sizes = {"registered": REGISTERED, "in_flight": FLYING, "arrivals": ARRIVALS, "parameters": SIZE}
    result = {**sizes, "rows": rows, "plan": plans, "environment": environment("keeps memory")}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
