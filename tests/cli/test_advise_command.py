"""`undrift advise`: skew in words, a recommendation with its evidence, or an honest "no study"."""

import json
import re

import pytest
from typer.testing import CliRunner

from undrift.cli import app
from undrift.experiment.advise import evidence

DATA = ["advise", "--data", "digits", "--clients", "20"]


def test_skewed_labels() -> None:
    done = CliRunner().invoke(app, [*DATA, "--partition", "dirichlet:0.1"])
    assert done.exit_code == 0, done.output
    assert "digits: 20 clients" in done.output and "label skew 0." in done.output and "strong" in done.output
    assert re.search(r"^Recommended: .* points over (uniform|fedavg)( or (uniform|fedavg))?, ", done.output, re.M)


def test_json_and_limits() -> None:
    done = CliRunner().invoke(app, [*DATA, "--partition", "dirichlet:0.1", "--stateless", "--gradients", "1", "--json"])
    found = json.loads(done.output)
    assert found["skew"]["clients"] == 20 and "fedavg" in [choice["method"] for choice in found["choices"]]


def test_clients_unlike_all_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = tuple(case for case in evidence() if case.skew["label"] > 0.3)
    monkeypatch.setattr("undrift.experiment.advise.evidence", lambda: labels)
    done = CliRunner().invoke(app, ["advise", "--data", "digits", "--partition", "quantity:0.02", "--clients", "40"])
    assert "No study has clients like these" in done.output


def test_errors_say_what_to_do() -> None:
    done = CliRunner().invoke(app, ["advise", "--data", "digit"])
    assert done.exit_code != 0 and "digits" in done.output
