"""`undrift plan` and `undrift doctor --measure`."""

import json
from math import ceil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from undrift.cli import app
from undrift.cli.training import print_plan as planning
from undrift.planning import calibrate
from undrift.planning.calibrate import LARGE, SMALL, Spent, flower_constants, ray_constants
from undrift.planning.machine import DEFAULTS
from undrift.privacy import gaussian_epsilon, plan_noise, sampled_epsilon

BIG = ["plan", "--clients", "1e6", "--cohort", "1e4", "--parameters", "1e7", "--workers", "1000"]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


def call(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_plan_says_what_breaks_first() -> None:
    words = [*BIG, "--method", "scaffold", "--network", "1e9", "--disk", "1e12", "--memory", "64e9"]
    shown = call(*words)
    assert "scaffold: 10,000 of 1,000,000 clients, 10,000,000 parameters, ray with 1000 workers" in shown
    assert "breaks first: disk: 80 TB" in shown and "undrift doctor --measure" in shown
    found = json.loads(call(*words, "--json"))
    assert found["disk"]["states"] == 2 * 10**6 * 4e7 and not found["measured"]
    assert found["pressures"][0]["what"] == "disk" and found["verdict"].startswith("breaks first: disk")
    assert found["seconds"] > found["parts"]["network"] > 0 and found["method"]["sums"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cohort", "200"], "cohort: 200 clients per round, but there are only 100 clients"),
        (["--clients", "0.5"], "clients must be 1 or more, got 0.5"),
        (["--engine", "spark"], "engine must be local, ray or flower, got 'spark'"),
        (["--engine", "local", "--workers", "2"], "workers: the local engine has one, got 2; set engine to ray"),
        (["--method", "fedavgg"], "no algorithm is named 'fedavgg'; did you mean 'fedavg'?"),
        (["--memory", "0"], "memory must be a number of bytes, more than 0"),
    ],
)
def test_bad_values_are_answered_in_a_line(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["plan", *words])
    assert done.exit_code == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_run_is_planned_with_a_measured_visit(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'method = "scaffold"\ndata = "digits"\npartition = "iid"\nclients = 20\ncohort = 4\nmodel = "mlp"\n'
    )
    found = json.loads(call("plan", "--config", str(file), "--cohort", "5", "--json"))
    size = found["size"]
    assert (size["clients"], size["cohort"], size["engine"]) == (20, 5, "local")
    assert size["example"] > 0 and size["step"] > 0 and size["parameters"] > 1000 and size["examples"] > 10
    assert found["method"]["name"] == "scaffold" and found["seconds"] > 0
    done = CliRunner().invoke(app, ["plan", "--config", str(file), "--parameters", "1e6"])
    assert done.exit_code == 2 and "parameters: with --config they are those of the run's model" in done.stderr


def test_a_plan_with_a_privacy_budget() -> None:
    words = ["plan", "--clients", "1000", "--cohort", "100", "--parameters", "1e4", "--epsilon", "8", "--rounds", "50"]
    plan = json.loads(call(*words, "--json"))["privacy"]
    assert plan["delta"] == pytest.approx(1000**-1.1) and plan["probability"] == 0.1 and plan["rounds"] == 50
    assert (
        sampled_epsilon(plan["noise"], 0.1, plan["delta"], 50)
        <= 8
        < sampled_epsilon(0.999 * plan["noise"], 0.1, plan["delta"], 50)
    )
    assert gaussian_epsilon(plan["noise_fixed"], plan["delta"], 50) == pytest.approx(8, rel=1e-2)
    assert plan["signal"] == pytest.approx(1 / plan["noise"]) and plan["cohort"] == ceil(100 * plan["noise"])
    shown = call(*words)
    assert f"private-sum(c, {plan['noise']:.3g}) with probability = 0.1" in shown and "signal to noise" in shown
    everyone = plan_noise(8.0, 50, 100, 100, 10_000)
    assert everyone.noise == everyone.noise_fixed
    done = CliRunner().invoke(app, [*words, "--delta", "2"])
    assert done.exit_code == 2 and "delta above 0 and below 1" in done.stderr


@pytest.mark.quick
def test_the_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fast() -> object:
        return calibrate.measure(repeats=1, width=64)

    monkeypatch.setattr(planning, "measure", fast)
    monkeypatch.setattr(planning, "measure_engines", lambda constants: constants)
    shown = call("doctor", "--measure")
    assert "visit_parameter" in shown and "ray: latency" in shown and "machine.json" in shown
    plan = json.loads(call("plan", "--json"))
    assert plan["measured"] and plan["constants"].startswith("measured on")
    assert json.loads(call("doctor", "--measure", "--json"))["file"].endswith("machine.json")


def test_engines_from_rounds_by_hand() -> None:
    c, visit, length = DEFAULTS, 0.001, LARGE - SMALL
    small, many = Spent(1.0, 0.1, 0.2), Spent(0, 0.1 + 16 * 0.01, 0.2 + 16 * 0.02)
    large = Spent(0, 0.1 + length * (2 * (c.merge + 1e-8) + c.touch + c.close), 0)
    more = Spent(0, large.server + 16 * (0.01 + length * (c.merge + 1e-8)), 0)
    ray = ray_constants(c, visit, small, many, large, more)
    assert ray.latency == pytest.approx(1.0 - 0.1 - 0.1)
    assert ray.server == pytest.approx(0.01 - c.client) and ray.worker == pytest.approx(0.019)
    assert ray.taken == pytest.approx(1e-8)
    served = length * (c.touch + c.close + 2 * (c.merge + 4e-8))
    flower = flower_constants(c, visit, small, Spent(0, 0.1 + served, 0.2))
    assert flower.taken == pytest.approx(4e-8)
    assert flower.server == pytest.approx(0.05 - c.client) and flower.worker == pytest.approx(0.099)


@pytest.mark.quick
def test_rounds_are_timed() -> None:
    from undrift.engine.round.simulation import Simulation

    with Simulation("fedavg", calibrate.EmptyTask(10, 2)) as simulation:
        found = calibrate.time_rounds(simulation, 1)
    assert found.clock > 0 and found.server > 0 and found.workers >= 0
