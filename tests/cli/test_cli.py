"""The command line and the table of costs."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from undrift import Algorithm, cost
from undrift.algorithms import ALGORITHMS
from undrift.blocks import CoordinateMedian
from undrift.cli import app

# down, up, client state, server state, gradients per step: the tables of the reference sheets
COSTS = {
    "fedavg": (1, 1, 0, 1, 1),
    "uniform": (1, 1, 0, 1, 1),
    "fedprox": (1, 1, 0, 1, 1),
    "scaffold": (2, 1, 1, 2, 1),
    "feddyn": (1, 1, 1, 2, 1),
    "fedcm": (2, 1, 0, 2, 1),
    "fedavgm": (1, 1, 0, 2, 1),
    "fedsam": (1, 1, 0, 1, 2),
    "fedasam": (1, 1, 0, 1, 2),
    "mofedsam": (2, 1, 0, 2, 2),
    "fedgamma": (2, 1, 1, 2, 2),
    "fedspeed": (1, 1, 1, 2, 2),
    "fedlesam": (1, 1, 1, 1, 1),
    "fedlesam-s": (2, 1, 2, 2, 1),
    "fedlesam-d": (1, 1, 2, 2, 1),
    "fedfft": (1, 1, 0, 1, 2),
    "fedfft-s": (2, 1, 1, 2, 2),
    "fedfft-d": (1, 1, 1, 2, 2),
    "specgrad": (1, 1, 0, 1, 1),
}
KEYS = ("down", "up", "client_state", "server_state", "gradients_per_step")


def test_costs_follow_from_the_declarations() -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [row["name"] for row in rows] == list(ALGORITHMS)
    for row in rows:
        assert set(row) == {"name", "slots", *KEYS, "stateless", "plain_sum", "gathers", "candidates"}
        if row["name"] in COSTS:
            assert tuple(row[key] for key in KEYS) == COSTS[row["name"]], row["name"]
        assert row["plain_sum"] != row["gathers"]
        assert not (row["stateless"] and row["client_state"])
    found = {row["name"]: row for row in rows}
    assert found["fedfft-d"]["slots"]["drift"] == "FedDyn(mu=0.1)"
    assert {name for name, row in found.items() if row["gathers"]} >= {"median", "krum", "fedawa", "feddisco"}
    assert not any(found[name]["gathers"] for name in ("fednova", "fednolowe", "q-fedavg", "fedlw"))


def test_a_gathering_rule_says_so() -> None:
    row = cost(Algorithm(aggregation=CoordinateMedian())).row("median")
    assert row["gathers"] and not row["plain_sum"]


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["list", "--help"]])
def test_output_fits_a_terminal(arguments: list[str]) -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert "…" not in result.stdout


def test_the_table_names_every_algorithm() -> None:
    stdout = CliRunner().invoke(app, ["list"]).stdout
    assert all(name in stdout for name in ALGORITHMS)


def test_installed_command() -> None:
    done = subprocess.run([sys.executable, "-m", "undrift", "list", "--json"], capture_output=True, check=True)
    assert len(json.loads(done.stdout)) == len(ALGORITHMS)


def test_help_is_plain() -> None:
    shown = CliRunner().invoke(app, ["lens", "--help"]).stdout
    assert "[default: 10]" in shown and "[required]" in shown and "\\" not in shown
