"""The command line and the table of costs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest
from typer.core import TyperGroup
from typer.testing import CliRunner

from undrift import Algorithm, cost, make
from undrift.algorithms import ALGORITHMS
from undrift.blocks import CoordinateMedian
from undrift.cli import app
from undrift.cli.app import GROUPS
from undrift.compose.stored import stored_methods
from undrift.papers import paper, papers

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


def test_typer_is_one_that_uses_click() -> None:
    assert issubclass(TyperGroup, click.Group), "this Typer has a click of its own: see its bound in pyproject.toml"


def test_costs_follow_from_the_declarations() -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [row["name"] for row in rows] == list(ALGORITHMS)
    for row in rows:
        assert set(row) == {
            "name",
            "slots",
            *KEYS,
            "stateless",
            "plain_sum",
            "gathers",
            "candidates",
            "title",
            "family",
            "personal",
            "private",
            "overlapping",
        }
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


def test_fedavg_is_first_and_every_method_has_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = CliRunner().invoke(app, ["list"]).stdout.splitlines()
    assert lines[1].startswith("fedavg ") and "Local SGD from the received model" in lines[1]
    rows = {line.split()[0]: line for line in lines}
    assert all(rows[name].rstrip().endswith(".") for name in ALGORITHMS)


@pytest.mark.parametrize(
    ("flag", "keeps"),
    [
        ("--stateless", lambda row: row["stateless"]),
        ("--one-gradient", lambda row: row["gradients_per_step"] == 1),
        ("--private", lambda row: row["private"]),
        ("--personal", lambda row: make(row["name"]).personalized),
    ],
)
def test_filters(flag: str, keeps: Callable[[dict[str, Any]], bool]) -> None:
    everything, some = (json.loads(CliRunner().invoke(app, ["list", *f, "--json"]).stdout) for f in ([], [flag]))
    assert some == [row for row in everything if keeps(row)] and 0 < len(some) < len(everything)


def test_a_method_that_is_not_stored_yet_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contributor's new file, before `make cards`."""
    stored = {name: own for name, own in stored_methods().items() if name != "scaffold"}
    monkeypatch.setattr("undrift.compose.stored.stored_methods", lambda: stored)
    assert " scaffold " in CliRunner().invoke(app, ["list"]).stdout


def test_every_command_has_its_group_and_no_sentence_is_cut() -> None:
    shown = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["--help"]).stdout
    assert "More:" not in shown and "..." not in shown.partition("Start:")[2]
    assert [line for line in shown.splitlines() if line.rstrip(":") in GROUPS] == [f"{group}:" for group in GROUPS]
    words = [sys.executable, "-m", "undrift", "run", "--help"]  # a test's runner has a width of its own
    wide = subprocess.run(words, env={**os.environ, "COLUMNS": "110"}, capture_output=True, text=True, check=True)
    assert 80 < max(map(len, wide.stdout.splitlines())) <= 110


def test_the_papers_are_listed_by_the_arguments_of_their_commands() -> None:
    lines = CliRunner().invoke(app, ["paper", "list"]).stdout.splitlines()
    assert any(line.startswith("fedfft table1 ") and "accuracy of 16 methods" in line for line in lines)
    expected = [[name, key] for name in papers() for key in paper(name).items]
    assert [words for line in lines if (words := line.split()[:2]) in expected] == expected
    assert max(map(len, lines)) < 200 and "─" not in "".join(lines)


def test_installed_command() -> None:
    done = subprocess.run([sys.executable, "-m", "undrift", "list", "--json"], capture_output=True, check=True)
    assert len(json.loads(done.stdout)) == len(ALGORITHMS)


def test_help_is_plain() -> None:
    shown = CliRunner().invoke(app, ["lens", "--help"]).stdout
    assert "[default: 10]" in shown and "[required]" in shown and "\\" not in shown
