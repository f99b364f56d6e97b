"""A method that needs a variational model is refused with another one, in one line and before the run starts."""

from pathlib import Path

import pytest
from torch import nn
from typer.testing import CliRunner

from undrift.cli import app
from undrift.models import Variational
from undrift.runs import Config, ConfigError
from undrift.runs.setup.prepare import prepare, variant


def table_net(inputs: int, classes: int, latent: int = 8) -> nn.Module:
    """A variational model for tables."""
    return Variational(nn.Sequential(nn.Linear(inputs, 8), nn.ReLU()), 8, latent, classes, samples=2)


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{n}.5,{n % 7},{'pos' if n % 2 else 'neg'}" for n in range(80)]
    Path("cls.csv").write_text("\n".join(["a,b,label", *rows]))


OWN = "for table data give your own, undrift.models.Variational(body, ...), as in --model mypackage.nets:make"
REFUSED = [
    (("--data", "cls.csv"), f"fedcr needs a variational model, and 'variational-cnn' reads no table data; {OWN}"),
    (("--data", "cls.csv", "--model", "mlp"), f"fedcr needs a variational model, and 'mlp' is none; {OWN}"),
    (
        ("--data", "digits", "--model", "mlp"),
        "fedcr needs a variational model, and 'mlp' is none; for image data use model 'variational-cnn'",
    ),
    (
        ("--data", "cls.csv", "--model", "test_variational_runs:table_net"),
        "CommonRepresentation: the model has 8 latent units, not 512; write latent=8",
    ),
    (
        ("--data", "cls.csv", "--model", "undrift.models:MLP"),
        "CommonRepresentation: MLP has no linear layer named moments",
    ),
    (
        ("--data", "cls.csv", "--model", "test_variational_runs:table_net", "--set", "latent=8"),
        "model: it has 2 classes, fedcr has 10; write classes=2",
    ),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_another_model_is_refused_before_the_run(words: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(app, ["run", "fedcr", *words, "--clients", "4", "--rounds", "1", "--out", "run"])
    last = done.stderr.splitlines()[-1]
    assert done.exit_code == 2 and message in last and last.startswith("undrift run: "), done.output
    assert not Path("run").exists()


def test_ones_own_model_of_a_table_runs() -> None:
    words = ("--data", "cls.csv", "--model", "test_variational_runs:table_net", "--set", "latent=8")
    more = ("--set", "classes=2", "--clients", "4", "--rounds", "1", "--engine", "local", "--out", "run")
    done = CliRunner().invoke(app, ["run", "fedcr", *words, *more])
    assert done.exit_code == 0, done.output


def test_a_variant_of_a_run_is_refused() -> None:
    """The methods of a comparison share data and model."""
    settings = {"data": "cls.csv", "partition": "iid", "clients": 4}
    setup = prepare(Config.build({"method": "fedavg", **settings}))
    with pytest.raises(ConfigError, match="fedcr needs a variational model, and 'mlp' is none"):
        variant(setup, Config.build({"method": "fedcr", **settings}))


def test_prepare_refuses_it_too() -> None:
    with pytest.raises(ConfigError, match="fedcr needs a variational model"):
        prepare(Config.build({"method": "fedcr", "data": "cls.csv", "partition": "iid", "clients": 4}))
