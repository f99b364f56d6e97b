"""The cost of a round by hand: seconds, memory, traffic, disk, and what breaks first."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from undrift.algorithms import make
from undrift.blocks import Scaffold
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.exact_sum import LONG
from undrift.core.records.types import Local
from undrift.engine.worker.measure import Probe
from undrift.planning.bottlenecks import Limits, plan_rows, pressures, this_machine, verdict
from undrift.planning.from_run import with_probe
from undrift.planning.machine import DEFAULTS, Constants, EngineConstants, load_constants, save_constants
from undrift.planning.round_cost import CostModel, MethodSize, RoundSize, method_size

ONE = EngineConstants(latency=1, server=3, worker=4, taken=8)
UNIT = Constants(
    visit=1,
    visit_parameter=2,
    open=3,
    step=5,
    step_parameter=6,
    gradient=7,
    touch=8,
    sum=9,
    pack=10,
    merge=11,
    close=12,
    gather=13,
    client=14,
    file=15,
    byte=16,
    disk=1e12,
    process=100,
    ray=ONE,
    flower=ONE,
)
SCAFFOLD = MethodSize("scaffold", down=2, client_state=1, server_state=2, sums=2, remembers=True)
SMALL = RoundSize(4, 2, 10, examples=3, epochs=1, batch=2, checkpoint_every=0)


def test_declarations_become_sizes() -> None:
    assert method_size(make("fedavg"), name="fedavg") == MethodSize()
    assert method_size(make("scaffold"), name="scaffold") == SCAFFOLD
    assert method_size(Algorithm(drift=Scaffold()), Local(weight_decay=0.1)).sums == 3  # an unweighted sum, too
    assert method_size(make("fedsam")).gradients == 2
    median = method_size(make("median"))
    assert median.gathers and (median.sums, median.packed) == (0, 0)
    assert (MethodSize().packed, SCAFFOLD.packed) == (5, 12)


def test_a_visit_by_hand() -> None:
    # two steps of three examples; 10 parameters
    fedavg = 1 + 10 * (2 + 9) + 2 * (5 + 10 * 6) + 3 * 10 * 7
    assert CostModel(SMALL, MethodSize(), UNIT).visit_seconds() == fedavg
    # a sum more; two vectors are read in a step; the state of 40 bytes
    scaffold = fedavg + 10 * 9 + 2 * 10 * 2 * 8 + 15 + 40 * 16
    assert CostModel(SMALL, SCAFFOLD, UNIT).visit_seconds() == scaffold
    measured = replace(SMALL, step=0.5, example=0.25, local_steps=4)
    twice = CostModel(measured, MethodSize(gradients=2), UNIT)
    assert twice.visit_seconds() == 1 + 10 * 11 + 4 * 2 * 0.5 + 3 * 2 * 0.25


def test_a_round_in_one_process_by_hand() -> None:
    found = CostModel(SMALL, MethodSize(), UNIT).predict()
    visits = 2 * CostModel(SMALL, MethodSize(), UNIT).visit_seconds() + 3
    closing = 10 * (8 + 12) + 2 * 14
    assert found.processor == {"workers": visits, "server": closing}
    assert found.seconds == visits + closing
    gathered = CostModel(SMALL, MethodSize(sums=0, gathers=True), UNIT).predict()
    assert gathered.parts["server"] == 10 * 8 + 2 * 14 + 10 * 2 * 13


@pytest.mark.parametrize("engine", ["ray", "flower"])
def test_a_round_on_two_workers_by_hand(engine: str) -> None:
    size = replace(SMALL, engine=engine, workers=2, network=8.0)  # type: ignore[arg-type]
    found = CostModel(size, MethodSize(), UNIT).predict()
    workers = 2 * CostModel(size, MethodSize(), UNIT).visit_seconds() + 2 * 3 + 2 * (4 + 10 * 10)
    merging, closing = 2 * (3 + 10 * (11 + 8)), 10 * (8 + 12) + 3
    assert found.processor["workers"] == workers
    assert found.processor["server"] == merging + closing + 2 * 14
    traffic = 2 * 40 + 2 * 50  # two broadcasts out, two packed sums in
    assert found.parts["network"] == traffic
    assert found.seconds == pytest.approx(1 + workers / 2 + merging / 2 + closing + 2 * 14 + traffic)


def test_a_tree_on_ray_by_hand() -> None:
    """Eight workers and eight replies, merged three at a time: 8 replies, 3, which the server merges."""
    size = replace(SMALL, clients=8, cohort=8, engine="ray", workers=8, network=8.0, fan_in=3)
    assert size.levels == [8, 3]
    flat, found = (CostModel(x, MethodSize(), UNIT).predict() for x in (replace(size, fan_in=None), size))
    each, pack = 10 * (11 + 8), 10 * 10
    group = 3 * each + 4 + pack
    assert found.parts["tree"] == group and flat.parts["tree"] == 0
    assert found.processor["workers"] == flat.processor["workers"] + 3 * group
    assert found.processor["server"] == flat.processor["server"] - 5 * each + 3 * 3  # three requests more
    assert found.traffic["between"] == 8 * 50 and found.traffic["in"] == 3 * 50
    assert found.parts["network"] == 8 * 40 + 3 * 50 + 3 * 50
    closing = 10 * (8 + 12) + 3 + 8 * 14
    merging = (8 + 3) * 3 + 3 * each
    trained = flat.processor["workers"] / 8
    assert found.seconds == pytest.approx(1 + trained + group + merging + closing + found.parts["network"])


def test_a_tree_on_flower_by_hand() -> None:
    """Edge servers pass on the broadcast, and take the replies of their nodes."""
    size = replace(SMALL, clients=8, cohort=8, engine="flower", workers=8, network=8.0, fan_in=3)
    found = CostModel(size, MethodSize(), UNIT).predict()
    assert found.parts["tree"] == 3 * (3 + 10 * (11 + 8)) + 4 + 10 * 10
    assert (found.traffic["out"], found.traffic["in"]) == (3 * 40, 3 * 50)
    assert found.traffic["between"] == 8 * 40 + 8 * 50
    assert found.parts["network"] == 3 * (40 + 50) + 3 * (40 + 50)


def test_what_a_tree_leaves_alone() -> None:
    """Methods that gather, and rounds with no more replies than the fan-in."""
    size = replace(SMALL, clients=8, cohort=8, engine="ray", workers=8)
    gathers = MethodSize(sums=0, gathers=True)
    for method, fan_in in ((gathers, 2), (MethodSize(), 8)):
        tree = CostModel(replace(size, fan_in=fan_in), method, UNIT).predict()
        assert tree == CostModel(size, method, UNIT).predict()
    assert replace(size, clients=1000, cohort=1000, workers=1000, fan_in=10).levels == [1000, 100, 10]


def test_chunks_are_those_of_the_backends() -> None:
    def chunks(engine: str, cohort: int, workers: int) -> int:
        return RoundSize(10_000, cohort, engine=engine, workers=workers).chunks  # type: ignore[arg-type]

    assert [chunks("ray", 100, 2), chunks("ray", 1000, 2), chunks("ray", 3, 8)] == [2, 8, 3]
    assert [chunks("flower", 100, 2), chunks("flower", 1, 2), chunks("local", 9, 1)] == [2, 1, 0]


def test_memory_is_that_of_the_scale_page() -> None:
    """Bytes per parameter as measured with a hundred million parameters: docs/guide/scale.md."""
    size, millions = RoundSize(parameters=10**8, cohort=3), 4e8
    there = replace(size, engine="ray")
    here = (CostModel(size, MethodSize()).memory()["server"] - DEFAULTS.process) / millions
    assert here == pytest.approx(6.02, abs=0.3)
    found = CostModel(there, MethodSize()).memory()
    assert (found["server"] - DEFAULTS.process) / millions == pytest.approx(4.96, abs=0.4)
    assert (found["worker"] - DEFAULTS.process) / millions == pytest.approx(5.87, abs=0.4)
    short = CostModel(replace(there, parameters=LONG - 1), MethodSize()).memory()  # sums are not packed
    assert short["worker"] - DEFAULTS.process == pytest.approx((LONG - 1) * 33)
    gathered = CostModel(replace(size, cohort=10), MethodSize(sums=0, gathers=True)).memory()["server"]
    assert gathered == DEFAULTS.process + 10 * 1000 + 1e8 * (4 + 8 + 40 + 12)


def test_traffic_and_disk_by_hand() -> None:
    size = RoundSize(1000, 100, 10, 4, engine="ray", checkpoint_every=2, keep=3)
    assert CostModel(size, SCAFFOLD).traffic() == {
        "out": 4 * 80,
        "in": 4 * 120,
        "between": 0,
        "clients": 100 * (80 + 40),
    }
    assert CostModel(replace(size, engine="local"), SCAFFOLD).traffic()["in"] == 0
    assert CostModel(size, MethodSize(sums=0, gathers=True)).traffic()["in"] == 100 * 40
    disk = CostModel(size, SCAFFOLD).disk()
    checkpoint = 80 + 16 * 1000
    assert (disk["round"], disk["states"]) == (100 * 40 + checkpoint / 2, 2 * 1000 * 40)
    assert disk["checkpoints"] == 3 * checkpoint


PLENTY = Limits(1e15, 1e18, 8)


@pytest.mark.parametrize(
    ("size", "method", "limits", "first", "change"),
    [
        (RoundSize(10**6, 10**4, 10**7, 1000, engine="ray"), SCAFFOLD, Limits(1e12, 1e12, 8), "disk", "no state"),
        (RoundSize(parameters=10**9), MethodSize(), Limits(16e9, 1e12), "memory of the server", "more memory"),
        (
            RoundSize(1000, 1000, 10**6),
            MethodSize(sums=0, gathers=True),
            Limits(3e9, 1e12),
            "memory of the server",
            "smaller cohort",
        ),
        (
            RoundSize(parameters=10**8, workers=8, engine="ray"),
            MethodSize(),
            Limits(15e9, 1e12, 8),
            "memory of the w",
            "5 w",
        ),
        (RoundSize(10**4, 10**4, 10**6, 1000, engine="ray"), MethodSize(), PLENTY, "driver", "fewer workers"),
        (RoundSize(parameters=10**6, workers=4, engine="ray", network=1e6), MethodSize(), PLENTY, "network", "faster"),
    ],
)
def test_what_breaks_first(size: RoundSize, method: MethodSize, limits: Limits, first: str, change: str) -> None:
    found = pressures(size, method, CostModel(size, method).predict(), limits)
    assert found[0].what.startswith(first) and found[0].share > 1 and change in found[0].change
    assert found[0].what in verdict(found) and verdict(found).startswith(("breaks first", "takes the most time"))


@pytest.mark.quick
def test_nothing_breaks() -> None:
    size = RoundSize(examples=10_000)
    cost = CostModel(size, MethodSize()).predict()
    assert verdict(pressures(size, MethodSize(), cost, PLENTY)).startswith("nothing breaks")
    assert [row[0] for row in plan_rows(size, MethodSize(), cost)][:2] == ["a round", "processor time"]
    here = this_machine()
    assert here.memory > 1e8 and here.disk > 0 and here.processors >= 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cohort": 200}, "cohort: 200 clients per round, but there are only 100 clients"),
        ({"parameters": 0}, "parameters must be more than 0"),
        ({"network": -1.0}, "network must be a number of bits per second"),
        ({"fan_in": 1}, "fan_in must be 2 or more, got 1"),
        ({"engine": "spark"}, "engine must be local, ray or flower"),
    ],
)
def test_sizes_are_checked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RoundSize(**values)


@pytest.mark.quick
def test_a_measured_visit_gives_the_step() -> None:
    """The rest of the visit is taken off; what remains is divided into an empty step and examples."""
    fixed = 1 + 10 * 11 + 3
    probe = Probe("cpu", 0, 2, 0.0, 777, fixed + 2 * 165.0)
    found = with_probe(SMALL, MethodSize(), probe, 3, UNIT)
    assert (found.step, found.example, found.activations) == (65, 50, 777)
    again = replace(found, examples=4, local_steps=2)
    assert CostModel(again, MethodSize(), UNIT).visit_seconds() == 1 + 10 * 11 + 2 * 65 + 4 * 50


def test_constants_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path))
    assert load_constants() is None
    file = save_constants(UNIT)
    assert file.parent == tmp_path and load_constants() == UNIT
    file.write_text(file.read_text().replace('"taken"', '"sent": 5.0, "taken"'))
    assert load_constants() == UNIT  # a file of an earlier version
    for text in ("{}", "nonsense", file.read_text().replace('"visit": 1', '"visit": -1')):
        file.write_text(text)
        with pytest.raises(ValueError, match="write it again with undrift doctor --measure, or delete it"):
            load_constants()
