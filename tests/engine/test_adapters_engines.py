"""Adapters of peft on tiny Roberta, Llama and GPT-2: one hash on every engine, also of a run that was killed."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

from flwr.app import ArrayRecord

from support.adapter_runs import ROUNDS as LONGER
from support.adapter_runs import run
from support.flower import own_clock as own_clock
from support.flower import state_of
from support.flower_grid import StandInGrid
from support.hugging_face import need
from support.local_ray import MARKS, local_ray
from support.peft_models import CASES, LOCAL, ROUNDS, expected, task_of
from support.processes import environment, run_module
from undrift import Simulation, parse
from undrift.flower import Job, UndriftStrategy, client_app
from undrift.testing import fingerprint

need("transformers", "peft")
from undrift.ray import Pool, RayBackend  # noqa: E402

pytestmark = MARKS


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(("name", "method"), CASES)
def test_nodes_of_flower_give_the_bits_of_one_process(name: str, method: str, tmp_path: Path) -> None:
    found = task_of(name, method)
    grid = StandInGrid(client_app(Job(parse(method), found)), 3, tmp_path)
    settings: Any = {"population": 3, "seed": 3, "wait": 2.0, "poll": 0.01, "deadline": 20.0}
    strategy = UndriftStrategy(parse(method), found.model(), LOCAL, **settings)
    strategy.start(grid, ArrayRecord(found.model().state_dict()), ROUNDS)
    assert not any(record.rejections or record.absent for record in strategy.records)
    assert fingerprint(state_of(strategy)) == expected(name, method)


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    with local_ray(__name__, num_cpus=4), Pool(2) as pool:
        yield pool


@pytest.mark.parametrize(("name", "method"), CASES)
@pytest.mark.sweep(every=12)
def test_workers_of_ray_give_the_bits_of_one_process(name: str, method: str, pool: Any) -> None:
    with Simulation(parse(method), task_of(name, method), LOCAL, seed=3, backend=RayBackend(pool=pool)) as simulation:
        assert fingerprint(simulation.run(ROUNDS)) == expected(name, method)


KILLED = ["fedex-lora(scale=2.0)", "rolora"]
"""A base that has changed, and the turn of the other factor."""


@cache
def whole(method: str) -> str:
    """The hash of the Llama after all rounds of a run."""
    return fingerprint(Simulation(parse(method), task_of("llama", method), LOCAL, seed=3).run(LONGER))


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("method", KILLED)
def test_a_run_stopped_in_the_middle_goes_on(method: str, tmp_path: Path) -> None:
    assert run(tmp_path / "run", method, stop_after=1).sha256 != whole(method)
    assert run(tmp_path / "run", method).sha256 == whole(method)


@pytest.mark.parametrize("engine", ["local", "ray", "flower"])
@pytest.mark.parametrize("method", KILLED)
@pytest.mark.sweep(every=0)
def test_a_run_killed_in_the_middle_goes_on(method: str, engine: str, tmp_path: Path) -> None:
    """The server's process dies once round 1 is computed; Flower's engine is its own simulation."""
    command = [sys.executable, "-m", "support.adapter_runs", str(tmp_path / "run"), method, engine]
    died = subprocess.run([*command, "1"], env=environment(), capture_output=True, text=True, timeout=590)
    assert died.returncode == -9, died.stderr[-3000:]
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 1
    assert whole(method) in run_module(*command[2:], FLWR_HOME=str(tmp_path / "flwr"))
