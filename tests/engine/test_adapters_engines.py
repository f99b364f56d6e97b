"""Adapters of peft on tiny Roberta, Llama and GPT-2: one hash on every engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

from flwr.app import ArrayRecord

from support.flower import own_clock as own_clock
from support.flower import state_of
from support.flower_grid import StandInGrid
from support.hugging_face import need
from support.local_ray import MARKS, local_ray
from support.peft_models import CASES, LOCAL, ROUNDS, expected, task_of
from undrift import Simulation, parse
from undrift.flower import Job, UndriftStrategy, client_app
from undrift.testing import fingerprint

need("transformers", "peft")
from undrift.ray import Pool, RayBackend  # noqa: E402

pytestmark = MARKS


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
