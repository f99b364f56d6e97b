"""What a new user may get wrong is answered in one line that says what works, with exit code 2."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from undrift.cli import app
from undrift.cli.app import stop_cleanly
from undrift.runs import Config
from undrift.runs.settings.schema import read_toml

RUN = ("run", "fedavg")
BAD = [
    # names
    (("runn",), "undrift: no command is named 'runn'; did you mean 'run'? (see undrift --help)"),
    (("run", "fedavgg"), "undrift run: no algorithm is named 'fedavgg'; did you mean 'fedavg'?"),
    (("run", "my.toml"), "undrift run: my.toml is a file, not a method; write --config my.toml"),
    (
        ("run", "scaffold + sm(0.1)"),
        "undrift run: method: no algorithm, block or filter is named 'sm'; did you mean 'sam'?",
    ),
    ((*RUN, "--data", "mnist"), "undrift run: data: no data set is named 'mnist'; did you mean 'femnist'?"),
    ((*RUN, "--model", "cn"), "undrift run: model: no model is named 'cn'; did you mean 'cnn'?"),
    (
        (*RUN, "--partition", "dirichlt:1"),
        "undrift run: partition: no scheme is named 'dirichlt'; did you mean 'dirichlet'?",
    ),
    ((*RUN, "--engine", "spark"), "undrift run: engine.name: input should be 'local', 'ray' or 'flower', got 'spark'"),
    ((*RUN, "--preset", "fedft"), "undrift run: preset: no preset is named 'fedft'; did you mean 'fedfft'?"),
    (("show", "fedsamm"), "undrift show: no algorithm is named 'fedsamm'; did you mean 'fedsam'?"),
    (("list", "--family", "sharp"), "undrift list: no family is named 'sharp'; did you mean 'sharpness'?"),
    (("paper", "fedffx"), "undrift paper: no paper is named 'fedffx'; did you mean 'fedfft'?"),
    (
        ("partition", "--data", "mnist"),
        "undrift partition: data: no data set is named 'mnist'; did you mean 'femnist'?",
    ),
    # references
    (
        (*RUN, "--model", "nosuch.nets:Net"),
        "undrift run: model: nosuch.nets:Net: no module is named 'nosuch'; install it, or start in the folder that "
        "contains it",
    ),
    (
        (*RUN, "--model", "undrift.models:SmalCNN"),
        "undrift run: model: undrift.models:SmalCNN: module 'undrift.models' has no 'SmalCNN'; "
        "did you mean 'SmallCNN'?",
    ),
    (
        (*RUN, "--model", "undrift.models:SmallCNN(widht=3)"),
        "undrift run: model: 'undrift.models:SmallCNN' has no argument 'widht'; it takes classes, channels, image",
    ),
    (
        ("run", "fedavg + nosuch.blocks:Drift(0.1)"),
        "undrift run: method: nosuch.blocks:Drift: no module is named 'nosuch'; install it, or start in the folder "
        "that contains it",
    ),
    (
        ("run", "fedavg + undrift.blocks:SAM(rh=0.1)"),
        "undrift run: method: 'undrift.blocks:SAM(rh=0.1)': got an unexpected keyword argument 'rh'; it takes "
        "rho: float = 0.1, blend: float = 1.0",
    ),
    (
        ("show", "nosuch:method"),
        "undrift show: nosuch:method: no module is named 'nosuch'; install it, or start in the folder that contains it",
    ),
    # numbers
    ((*RUN, "--clients", "-5"), "undrift run: clients: input should be greater than or equal to 1, got '-5'"),
    (
        (*RUN, "--clients", "5", "--cohort", "10"),
        "undrift run: cohort: 10 clients per round, but there are only 5 clients",
    ),
    (
        (*RUN, "--cohort", "1.5"),
        "undrift run: cohort: write a number of clients, 1 or more (cohort = 10), or a ratio of them in (0, 1] "
        "(cohort = 0.1), got '1.5'",
    ),
    ((*RUN, "--probability", "2"), "undrift run: probability: input should be less than or equal to 1, got '2.0'"),
    ((*RUN, "--rounds", "0"), "undrift run: rounds: input should be greater than or equal to 1, got '0'"),
    ((*RUN, "--lr", "abc"), "undrift run: --lr: 'abc' is not a valid float (see undrift run --help)"),
    ((*RUN, "--lr", "-1"), "undrift run: local.lr: input should be greater than 0, got '-1.0'"),
    (
        (*RUN, "--partition", "dirichlet:-1"),
        "undrift run: partition: dirichlet: alpha must be between 1e-06 and 1000000000, got -1",
    ),
    (
        (*RUN, "--target", "70"),
        "undrift run: target: must be a number in (0, 1], such as 0.7, or, in a comparison, "
        '"baseline" or "0.95 * baseline", got \'70.0\'',
    ),
    (
        (*RUN, "--workers", "-2"),
        "undrift run: engine.workers must be a whole number from 1 to 4096, or \"auto\", got '-2'",
    ),
    (
        (*RUN, "--workers", "many"),
        "undrift run: engine.workers must be a whole number from 1 to 4096, or \"auto\", got 'many'",
    ),
    # options without an effect
    (
        (*RUN, "--workers", "4"),
        "undrift run: --workers 4: the local engine has one; add --engine ray, or leave it out",
    ),
    (
        ("tune", "fedprox", "--workers", "4", "--grid", "lr=0.05,0.1"),
        "undrift tune: --workers 4: the local engine has one; add --engine ray, or leave it out",
    ),
    (
        ("tune", "fedprox", "--set", "method=scaffold"),
        "undrift tune: --set method=scaffold: it comes from fedprox, the first argument; leave it out",
    ),
    (
        ("doctor", "--method", "fedavg", "--out", "report"),
        "undrift doctor: --method, --out: only with --device and without --config; leave it out",
    ),
    (
        ("figure", "drift", "run", "--by", "best"),
        "undrift figure: --by best: only for undrift figure sweep; leave it out or draw a sweep",
    ),
    (
        ("figure", "drift", "run", "--minus", "fedavg"),
        "undrift figure: --minus fedavg: only for undrift figure sweep; leave it out or draw a sweep",
    ),
    (
        ("paper", "fedfft", "--dry-run"),
        "undrift paper: --dry-run: name a table or figure, for example undrift paper fedfft table1 --dry-run",
    ),
    (
        ("paper", "fedfft", "table1", "--dry-run", "--engine", "ray", "--json"),
        "undrift paper: --engine, --json: a dry run trains in this process and keeps nothing; leave it out",
    ),
    (
        ("report", "run", "--out", "."),
        "undrift report: --out .: a folder; name the HTML file to write, such as report.html",
    ),
    # keys and arguments
    (
        (*RUN, "--roundz", "5"),
        "undrift run: no option is named --roundz; did you mean '--rounds'? (see undrift run --help)",
    ),
    (
        (*RUN, "--target", "price"),
        "undrift run: --target: 'price' is not a number to reach; the column to predict is an argument of data: "
        "--data \"FILE(target='price')\" (see undrift run --help)",
    ),
    (
        ("run", "fedprox", "--set", "mux=1"),
        "undrift run: arguments of fedprox: fedprox got an unexpected keyword argument 'mux'; "
        "it takes mu: float = 0.01",
    ),
    (
        ("run", "fedprox", "--set", "mu=abc"),
        "undrift run: arguments of fedprox: fedprox: mu must be a number, got 'abc'",
    ),
    (
        (*RUN, "--set", "lr=0.1"),
        "undrift run: lr: unknown setting; did you mean 'local.lr'?",
    ),
    ((*RUN, "--set", "stop_aftr=5"), "undrift run: stop_aftr: unknown setting; did you mean 'stop_after'?"),
    (
        (*RUN, "--set", "evaluate_every=2"),
        "undrift run: evaluate_every: unknown setting; did you mean 'output.evaluate_every'?",
    ),
    (
        ("run", "fedavg + sam", "--set", "max_idle=2"),
        "undrift run: max_idle: unknown setting; did you mean 'output.max_idle'?",
    ),
    (
        (*RUN, "--set", "foo=2"),
        "undrift run: foo: unknown setting, and fedavg takes no arguments; see undrift show fedavg",
    ),
    ((*RUN, "--set", "local.lrr=0.1"), "undrift run: local.lrr: unknown key; did you mean 'lr'?"),
    (
        (*RUN, "--set", "rho"),
        "undrift run: --set rho: write KEY=VALUE, for example --set rho=0.05 or --set local.decay=1",
    ),
    (
        ("tune", "fedavg", "--grid", "lr:0.1"),
        "undrift tune: --grid lr:0.1: write NAME=V1,V2,..., for example --grid lr=0.05,0.1",
    ),
    (
        ("tune", "fedprox", "--grid", "lr=a,b"),
        "undrift tune: fedprox: grid.lr: values must be a list of numbers, as in lr = [0.05, 0.1], got '[a,b]'",
    ),
    # files and folders
    (
        ("run", "--config", "typ.toml"),
        "undrift run: typ.toml: cannot be read: No such file or directory; did you mean 'typo.toml'?",
    ),
    (("run", "--config", "typo.toml"), "undrift run: typo.toml: round: unknown key; did you mean 'rounds'?"),
    (("run", "--config", "half.toml"), "undrift run: half.toml: not TOML: Invalid value (at line 1, column 10)"),
    ((*RUN, "--out", "notes"), "undrift run: notes exists and is not a run: name another folder with --out"),
    (
        (*RUN, "--out", "run"),
        "undrift run: run exists: name another folder with --out, or resume it with: undrift resume run",
    ),
    (
        ("resume", "notes"),
        "undrift resume: notes is not a run: it has no config.toml; give a folder that undrift run has written",
    ),
    (("resume", "rnu"), "undrift resume: rnu does not exist; did you mean 'run'?"),
    (("resume", "new/run"), "undrift resume: new/run does not exist; give a folder that undrift run has written"),
    (("status", "other"), "undrift status: other does not exist; known are run"),
    (("resume",), "undrift resume: Missing argument 'FOLDER' (see undrift resume --help)"),
    (
        ("compare", "rows.toml"),
        "undrift compare: rows.toml: fedavgg: method: no algorithm is named 'fedavgg'; did you mean 'fedavg'?",
    ),
    (
        ("compare", "sets.toml"),
        "undrift compare: sets.toml: fedavg: data: no data set is named 'mnist'; did you mean 'femnist'?",
    ),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a few files that are wrong."""
    (tmp_path / "half.toml").write_text("rounds = \n")
    (tmp_path / "typo.toml").write_text("round = 5\n")
    (tmp_path / "rows.toml").write_text('[[methods]]\nmethod = "fedavgg"\n')
    (tmp_path / "sets.toml").write_text('[base]\ndata = "mnist"\n[[methods]]\nmethod = "fedavg"\n')
    for name, file in (("notes", "notes.txt"), ("run", "config.toml")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.quick
@pytest.mark.parametrize(("arguments", "line"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_a_bad_value_is_answered_in_one_line(arguments: tuple[str, ...], line: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = CliRunner().invoke(app, arguments)
    assert (done.stderr, done.exit_code) == (f"{line}\n", 2)
    assert not done.stdout and isinstance(done.exception, SystemExit)
    assert sorted(folder.rglob("*")) == before  # nothing is left behind


@pytest.mark.parametrize(("stored", "line"), [(True, "resume with: undrift resume run"), (False, "nothing was stored")])
def test_an_interrupted_command_names_what_can_be_resumed(
    stored: bool, line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, stop_cleanly("undrift resume run", folder / ("run" if stored else "new")):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130 and capsys.readouterr().err == f"stopped; {line}\n"


def test_files_of_windows_with_a_mark_at_their_beginning_are_read(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xef\xbb\xbfrounds = 7\r\n")
    assert read_toml(tmp_path / "run.toml") == {"rounds": 7}


def test_an_argument_of_data_as_an_option_is_answered_with_how_to_write_it() -> None:
    refused = CliRunner().invoke(app, [*RUN, "--missing", "mean"])
    assert '--data "FILE(missing=...)"' in refused.stderr and "--set missing=" in refused.stderr


def test_a_setting_as_an_option_is_answered_with_how_to_write_it() -> None:
    refused = CliRunner().invoke(app, ["run", "fedavg", "--metric", "f1"])
    assert refused.stderr.endswith("; metrics is a setting: --set metrics=... (see undrift run --help)\n")


def test_the_metrics_that_were_asked_for_are_printed(tmp_path: Path) -> None:
    wanted = ["--set", "metrics=['f1', 'balanced-accuracy']", "--set", "output.lens_every=0"]
    done = CliRunner().invoke(app, [*RUN, "--data", "digits", "--rounds", "1", "--out", str(tmp_path / "run"), *wanted])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("f1 ")]
    assert re.fullmatch(r"f1 0\.\d+, balanced accuracy \d+\.\d\d%", line)


def test_several_names_in_one_text_are_a_list() -> None:
    given = {"data": "digits", "metrics": "balanced-accuracy, f1(label=1),auroc", "output": {"track": "mlflow,wandb"}}
    config = Config.build(given)
    assert config.metrics == ("balanced-accuracy", "f1(label=1)", "auroc") and config.output.track == (
        "mlflow",
        "wandb",
    )


def test_a_column_of_owners_is_drawn_as_it_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("x,site,y\n" + "".join(f"{n % 7}.5,s{n % 3},{n % 2}\n" for n in range(90)))
    done = CliRunner().invoke(app, ["partition", "--data", "rows.csv(owner='site')", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["clients"] == 3


def test_a_name_longer_than_a_files_may_be_is_refused_in_one_line() -> None:
    done = CliRunner().invoke(app, ["run", "fedavg", "--data", "cifar" * 60])
    assert done.exit_code == 2 and "no data set is named" in done.output and "Traceback" not in done.output
