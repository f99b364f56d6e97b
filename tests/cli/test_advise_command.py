"""`undrift advise`: skew in words, a recommendation with its evidence, or an honest "no study"."""

import json
import re

import pytest
from typer.testing import CliRunner

from undrift.cli import app
from undrift.studies.advise import evidence

DATA = ["advise", "--data", "digits", "--clients", "20"]
JSON = ["--model", "resnet8", "--json"]


def test_skewed_labels() -> None:
    done = CliRunner().invoke(app, [*DATA, "--partition", "dirichlet:0.1"])
    assert done.exit_code == 0, done.output
    assert "digits: 20 clients, mlp, a dense model" in done.output
    assert "label skew 0." in done.output and "strong" in done.output
    best = re.search(r"^Recommended: (.*)  .* points over uniform, ", done.output, re.M)
    assert best is not None
    level = re.search(r"^No interval separates it from: (.*)\\. Choose among them", done.output, re.M)
    assert level is None or best[1] not in level[1].split(", ")
    assert f'undrift tune "{best[1]}" --data digits --partition dirichlet:0.1 --set clients=20\n' in done.output


def test_the_family_of_the_model_decides() -> None:
    """Removing means helps CNNs; nothing of it was as good in an MLP."""
    lines = {}
    for model in ("resnet8", "mlp"):
        done = CliRunner().invoke(app, [*DATA, "--partition", "dirichlet:0.1", "--model", model, "--json"])
        cases = [case for choice in json.loads(done.output)["choices"] for case in choice["cases"]]
        lines[model] = {case["model"] for case in cases}
    assert lines["mlp"] == {"mlp"} and "mlp" not in lines["resnet8"]


@pytest.mark.quick
def test_json_and_limits() -> None:
    done = CliRunner().invoke(app, [*DATA, "--partition", "dirichlet:0.1", "--stateless", "--gradients", "1", *JSON])
    found = json.loads(done.output)
    methods = [choice["method"] for choice in found["choices"]]
    assert found["skew"]["clients"] == 20 and "uniform" in methods and "feddyn" not in methods


def test_what_is_level_with_the_recommendation() -> None:
    """The small CNN under the strict protocol: SpecGradFilter is not separated from what is recommended."""
    data = ["--partition", "dirichlet:0.1", "--model", "small-cnn"]
    text = CliRunner().invoke(app, [*DATA, *data]).output
    found = json.loads(CliRunner().invoke(app, [*DATA, *data, "--json"]).output)
    first, level = found["choices"][0]["method"], found["level_with_first"]
    assert "specgrad" in [first, *level] and f"No interval separates it from: {', '.join(level)}." in text
    assert {
        case["protocol"] for choice in found["choices"] if choice["method"] in level for case in choice["cases"]
    } == {"strict"}
    assert "step: the seconds of a local step over those of uniform" in text


def test_clients_unlike_all_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = tuple(problem for problem in evidence() if problem.skew["label"] > 0.3)
    monkeypatch.setattr("undrift.studies.advise.evidence", lambda: labels)
    done = CliRunner().invoke(app, ["advise", "--data", "digits", "--partition", "quantity:0.02", "--clients", "40"])
    assert "No recommendation: no study has clients and a model like these" in done.output


def test_errors_say_what_to_do() -> None:
    done = CliRunner().invoke(app, ["advise", "--data", "digit"])
    assert done.exit_code != 0 and "digits" in done.output
