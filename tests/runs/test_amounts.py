"""Run files with unequal work, availability, weights and a selection: identity, runs, resume and refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.blocks.local_optimizer.soap import factors_length
from undrift.cli import app
from undrift.core.model.flat_model import Layout, bind
from undrift.runs import Config, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.prepare import prepare

UNEQUAL = {"local": {**RUN["local"], "epochs": "uniform:1-3"}}


def test_keys_that_are_not_used_leave_the_identity_alone() -> None:
    empty = Config().identity()
    for same in (
        {"local": {"drop_last": False}},
        {"local": {"precision": "fp32"}},
        {"local": {"epochs": 1.0}},
        {"sampling": "uniform"},
    ):
        assert Config.build(same).identity() == empty
    used: list[dict[str, Any]] = [
        {"local": {"epochs": 0.5}},
        {"local": {"epochs": "uniform:1-5"}},
        {"local": {"epochs": "math:gcd"}},
        {"local": {"steps": 20}},
        {"local": {"drop_last": True}},
        {"local": {"precision": "bf16"}},
        {"local": {"precision": "fp16"}},
        {"local": {"deadline": 5.0, "speed": 2}},
        {"sampling": "examples"},
        {"availability": "operator:lt"},
    ]
    assert len({Config.build(values).identity() for values in used} | {empty}) == 1 + len(used)


def test_the_short_form_of_earlier_versions_keeps_its_identity() -> None:
    """Both hashes are those of the version that wrote texts in the short form."""
    old = Config.build({"local": {"epochs": "uniform:1-5"}})
    assert old == Config.build({"local": {"epochs": "uniform(1, 5)"}}) and old.local.epochs == "uniform(1, 5)"
    assert old.identity() == "677986c83fa1e83374f6b57bec9871e92820338897808ab4a8e5a1a00b03177f"
    speeds = {"deadline": 6.0, "speed": "uniform:0.5-4.0,once"}
    new = Config.build(
        {"partition": "natural(users=0.2)", "local": {**speeds, "speed": "uniform(0.5, 4.0, once=True)"}}
    )
    assert Config.build({"partition": "natural,users=0.2", "local": speeds}) == new
    assert new.identity() == "b1d8e69194306a779aa6454c44a5eb6b637f8dc87914706975e98392c164f9af"


@pytest.mark.quick
def test_every_form_survives_its_file(tmp_path: Path) -> None:
    values = {
        "clients": 3,
        "cohort": 2,
        "sampling": [1, 2, 3],
        "local": {"epochs": [1, 0.5, 2], "steps": "uniform:1-5", "deadline": 3.0, "speed": [1, 2, 0.5]},
    }
    config = Config.build(values)
    (tmp_path / "run.toml").write_text(config.toml())
    again = Config.read(tmp_path / "run.toml")
    assert again == config and again.identity() == config.identity()
    assert again.local.speed == (1, 2, 0.5) and again.sampling == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"local": {"epochs": 0}}, "local.epochs must be positive and finite, got 0"),
        ({"local": {"epochs": 20_000}}, "local.epochs must be at most 10000, got 20000"),
        (
            {"local": {"epochs": "often"}},
            "local.epochs: 'often' is neither a distribution nor a reference; write a number",
        ),
        ({"local": {"epochs": lambda client, t: 1}}, "local.epochs: a function is stored and sent by its name"),
        ({"local": {"steps": 2.5}}, "local.steps must be a whole number, got 2.5"),
        ({"local": {"deadline": 2.0}}, "a deadline in simulated seconds needs every client's speed"),
        ({"clients": 3, "cohort": 2, "local": {"epochs": [1, 2]}}, "epochs has 2 numbers, but there are 3 clients"),
        ({"clients": 3, "cohort": 2, "sampling": [1, 2]}, "sampling has 2 numbers, but there are 3 clients"),
        ({"probability": 0.5, "sampling": "examples"}, "sampling: weights need a cohort of fixed size"),
        ({"availability": "file:none.json"}, "availability: file:none.json cannot be read"),
        ({"cohort": 9, "method": "fedavg + power-of-choice(8)"}, "candidates must be at least the cohort of 9 clients"),
        ({"probability": 0.5, "method": "fedavg + power-of-choice(8)"}, "needs a cohort of fixed size"),
    ],
)
def test_what_cannot_work_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.build(values)


@pytest.mark.sweep(every=2)
def test_a_run_resumes_to_the_bit(tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"0": [], "1": {"period": 2, "rounds": [1]}}))
    values = {**RUN, **UNEQUAL, "method": "scaffold + power-of-choice(6)", "availability": f"file:{trace}", "rounds": 4}
    values["local"] |= {"deadline": 6.0, "speed": "uniform:0.1-3.0,once", "drop_last": True}
    whole = start(Config.build(values), tmp_path / "whole")
    first = start(Config.build({**values, "rounds": 2}), tmp_path / "halves")
    second = resume(tmp_path / "halves", rounds=4)
    assert first.sha256 != whole.sha256 == second.sha256
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    model = rows[0]["bytes_up"] / rows[0]["clients"]
    down = [row["bytes_down"] / model - 2 * (row["clients"] + row["rejected"]) for row in rows]
    assert down == pytest.approx([2] * 4)  # two models each for four clients, one for the two other candidates
    trace.write_text("{}")
    with pytest.raises(RunError, match=r"availability: .*trace.json: the file has changed or is missing"):
        resume(tmp_path / "halves", rounds=5)


@pytest.mark.parametrize(
    ("method", "vectors", "arrays"),
    [
        ("fedpac-soap", (2, 1), lambda layout: factors_length(layout, 10_000)),
        ("pfedfda", (1, 1), lambda _: 10 * 32 + 32**2),
    ],
)
def test_arrays_count_in_the_bytes(
    tiny: Path,  # noqa: F811
    tmp_path: Path,
    method: str,
    vectors: tuple[int, int],
    arrays: Callable[[Layout], int],
) -> None:
    """SOAP's factors, and the means and the covariance of features, beside the vectors as long as the model."""
    config = Config.build({**RUN, "method": method, "rounds": 1, "model": "mlp(width=32)"})
    start(config, tmp_path / method)
    (row,) = [json.loads(line) for line in (tmp_path / method / "metrics.jsonl").read_text().splitlines()]
    setup = prepare(config)
    layout = bind(setup.task.model()).layout
    head = layout.layers[-1]
    body = layout.size - (head.stop - head.start if method == "pfedfda" else 0)
    for way, count in zip(("down", "up"), vectors, strict=True):
        assert row[f"bytes_{way}"] == 4 * (count * body + arrays(layout)) * row["clients"], way


def test_a_trace_is_read_before_the_data(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("[3]")
    with pytest.raises(ConfigError, match="availability of client 0: write for every client"):
        prepare(Config.build({"availability": f"file:{tmp_path / 'trace.json'}"}))


def test_the_command_line_takes_every_form(tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    command = ["run", "fednova", "--partition", "iid", "--clients", "8", "--cohort", "3", "--rounds", "1"]
    for epochs, extra in (
        ("uniform:1-5", []),
        ("0.5", ["--set", "local.steps=[1,2,3,4,5,6,7,8]", "--set", "sampling=examples"]),
    ):
        out = tmp_path / epochs.replace(":", "-")
        result = CliRunner().invoke(app, [*command, "--epochs", epochs, *extra, "--out", str(out)])
        assert result.exit_code == 0, result.output
    config = Config.read(tmp_path / "0.5" / "config.toml")
    assert config.local.epochs == 0.5 and config.local.steps == (1, 2, 3, 4, 5, 6, 7, 8)
    assert Config.read(tmp_path / "uniform-1-5" / "config.toml").local.epochs == "uniform(1, 5)"
    bad = CliRunner().invoke(app, [*command, "--epochs", "uniform:5-1"])
    assert bad.exit_code == 2 and "must go from a smaller to a larger number" in bad.output
