"""Runs: `undrift run` and `undrift resume`."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from undrift.cli import names
from undrift.cli.app import app, print_warnings, report_errors, stop_cleanly
from undrift.cli.names import PARTITIONS, completion, methods, models
from undrift.cli.options import TrainingOptions
from undrift.util.shell import as_argument
from undrift.util.storage.jsonable import to_json

if TYPE_CHECKING:
    from undrift.runs import Outcome
    from undrift.runs.settings.goals import Column

Data = Annotated[
    str | None,
    typer.Option(
        help="digits, cifar10, ... (see undrift doctor), a path such as \"patients.csv(target='outcome')\", or "
        "package.module:function.",
        autocompletion=completion(names.data_sets),
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="iid, dirichlet:0.1, column:NAME, file:clients.json, package.module:function, ...",
        autocompletion=completion(PARTITIONS),
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help="cnn, resnet20, lstm, ..., or your own: mypackage.nets:Net.", autocompletion=completion(models)),
]
Preset = Annotated[
    str | None,
    typer.Option(help="Use a paper's values: papers, fedfft, fedfsa, ...; other settings override them."),
]
PrecisionName = Annotated[
    str | None, typer.Option(help="Precision of the clients' forward and backward passes.", metavar="[fp32|bf16|fp16]")
]
StopAfter = Annotated[
    int | None, typer.Option(help="End after so many rounds without a better accuracy (or metric); 0: never.")
]


class Level(click.ParamType):
    """A number to reach; a text is taken for the column to predict, which is an argument of data."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or the refusal of a text."""
        try:
            return float(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a number to reach; the column to predict is an argument of data: "
                f'--data "FILE(target={value!r})"',
                param,
            )


AsJson = Annotated[bool, typer.Option("--json", help="Print the summary and the folder as JSON.")]


@app.command()
def run(
    method: Annotated[
        str | None,
        typer.Argument(
            help="A name from undrift list, a composition of blocks, or your own.", autocompletion=completion(methods)
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A TOML file with settings; options override it.")
    ] = None,
    data: Data = None,
    partition: Partition = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Your own task instead of data: package.module:function; set its arguments with --set task.NAME=."
        ),
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    cohort: Annotated[
        str | None, typer.Option(help="Clients per round: a number (10) or a share of all clients (0.1).")
    ] = None,
    probability: Annotated[
        float | None, typer.Option(help="Instead of a cohort: each client takes part with this probability.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="When the server steps: buffered(10), asynchronous, over-selected(1.3).")
    ] = None,
    durations: Annotated[
        str | None,
        typer.Option(
            help="Virtual seconds of a client's task: 2, exponential(2), mypackage.speeds:f, devices('phones.csv')."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    stop_after: StopAfter = None,
    model: Model = None,
    init: Annotated[
        str | None, typer.Option(help="Initial weights: a .safetensors or .pt file, a run, or package.module:object.")
    ] = None,
    frozen: Annotated[
        list[str] | None,
        typer.Option(help="Parameters that are not trained: a pattern such as 'features.*'. Repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.")] = None,
    preset: Preset = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the clients.")] = None,
    epochs: Annotated[
        str | None,
        typer.Option(help="Passes over a client's data in a round: 5, 0.5, uniform(1, 5), mypackage.work:f."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per local step.")] = None,
    precision: PrecisionName = None,
    target: Annotated[
        list[float] | None,
        typer.Option(
            click_type=Level(),
            help="Accuracy (or metric) to reach; the summary reports the first round that does. Repeatable.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting (proxy=200, local.decay=1) or an argument of the method (rho=0.05). Repeatable."
        ),
    ] = None,
    *,
    place: TrainingOptions,
    out: Annotated[Path | None, typer.Option(help="Folder of the run, new or empty; default runs/...")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a method and store everything about the run in a folder.

    The folder contains the settings, one row of numbers per round, checkpoints
    and the final model; undrift resume continues the run after a crash.

    Example: undrift run fedavg --data fashion-mnist --partition dirichlet:0.1
    """
    with report_errors("run"):
        names.check_spelling(method, data, model)
    given = {
        "method": method,
        "data": data,
        "partition": partition,
        "task": task,
        "clients": clients,
        "cohort": None if cohort is None else _parse_value(cohort),
        "probability": probability,
        "schedule": schedule,
        "durations": None if durations is None else _parse_value(durations),
        "rounds": rounds,
        "stop_after": stop_after,
        "model": model,
        "init": init,
        "frozen": frozen or None,
        "seed": seed,
        "target": target[0] if target and len(target) == 1 else target or None,
        "local": {
            "lr": lr,
            "epochs": None if epochs is None else _parse_value(epochs),
            "batch_size": batch_size,
            "precision": precision,
        },
        "engine": place.settings(),
    }
    from undrift.cli.progress import RunProgress
    from undrift.runs import Config, start
    from undrift.runs.settings.schema import merge_settings, read_toml

    with report_errors("run"):
        values = with_preset(read_toml(config) if config else {}, preset)
        built = Config.build(merge_settings(merge_settings(values, given), settings(setting or [])), str(config or ""))
        folder = out or _free_folder(Path("runs"), f"{slug(built.method)}-{slug(built.subject)}-seed{built.seed}")
        place.check_workers(built.engine.name)
        with stop_cleanly(f"undrift resume {as_argument(folder)}", folder), RunProgress(built.rounds) as progress:
            outcome = start(built, folder, progress.of_run(built, folder))
    _print_outcome(outcome, as_json)


@app.command("resume")
def resume_run(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    rounds: Annotated[int | None, typer.Option(help="Total number of rounds; default that of the run.")] = None,
    stop_after: StopAfter = None,
    *,
    place: TrainingOptions,
    as_json: AsJson = False,
) -> None:
    """Resume a run from its last intact checkpoint, bit for bit.

    Example: undrift resume runs/fedavg-fashion-mnist-seed0 --rounds 50
    """
    from undrift.cli.progress import RunProgress
    from undrift.runs import Config, resume
    from undrift.runs.folder.files import check_run
    from undrift.runs.folder.provenance import check_references

    given = {
        "rounds": rounds,
        "stop_after": stop_after,
        **place.settings(),
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    again = f"undrift resume {as_argument(folder)}"
    with report_errors("resume"), print_warnings("resume"), stop_cleanly(again):
        check_run(folder)
        check_references(folder)
        config = Config.read(folder)
        place.check_workers(place.engine or config.engine.name)
        with RunProgress(None) as progress:
            outcome = resume(folder, progress.of_run(config, folder), **changes)
    if not outcome.trained:
        done, early = outcome.summary["rounds"], outcome.summary.get("stop_after")
        why = f"all {done} rounds are done" if early is None else f"it did not improve for {early} rounds"
        more = f"--rounds {2 * done}" if early is None else f"--stop-after {2 * early}"
        typer.echo(f"{folder} is finished: {why}; for more: {again} {more}", err=True)
    _print_outcome(outcome, as_json)


def with_preset(values: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    """Settings of a run with the preset of a flag, which replaces a preset of the file."""
    if preset is None:
        return dict(values)
    local = values.get("local")
    kept = {"local": {key: x for key, x in local.items() if key != "preset"}} if isinstance(local, Mapping) else {}
    return {**values, **kept, "preset": preset}


def settings(texts: list[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as settings.

    `table.key` sets a key of a table. `key` sets a key without a table, such as `clients`, or else an argument of the
    method; an argument with the name of such a key is written `arguments.key`.
    """
    from undrift.runs.settings.config import Config
    from undrift.runs.settings.schema import merge_settings

    out: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"--set {text}: write KEY=VALUE, for example --set rho=0.05 or --set local.decay=1")
        table, _, name = key.rpartition(".")
        own = not table and name in (*Config.model_fields, *Config.shorthands)
        out = merge_settings(
            out, {name: _parse_value(value)} if own else {table or "arguments": {name: _parse_value(value)}}
        )
    return out


def _parse_value(text: str) -> Any:
    """A value parsed as TOML, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def slug(text: str) -> str:
    """A text as part of a folder's name: "scaffold + sam(rho=0.05)" becomes scaffold-sam-rho-0.05."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text)[:80].strip("-.") or "run"


def _free_folder(root: Path, name: str) -> Path:
    """A folder that does not exist yet."""
    path, count = root / name, 1
    while path.exists():
        count += 1
        path = root / f"{name}-{count}"
    return path


def _compare_with_constant(constant: Mapping[str, Any], metric: "Column", reached: float | None) -> str:
    """What a constant answer reaches, and whether the global model is better."""
    from undrift.studies.statistics import constant_text

    worse = reached is not None and not metric.better(reached, constant[metric])
    return constant_text(constant, metric) + (": the global model is not better" if worse else "")


def _other_metrics(outcome: "Outcome", judged: str) -> str:
    """The metrics that the settings name besides the one by which the run is judged, in a line."""
    from undrift.core.tasks.evaluation import named_metrics
    from undrift.runs.settings.config import Config
    from undrift.runs.settings.goals import Column

    named = named_metrics(Config.read(outcome.folder).metrics)
    columns = [Column(name) for name in named if name != judged and name in outcome.summary]
    return ", ".join(f"{one.words} {one.text(outcome.summary[one])}" for one in columns)


def _under_corruption(summary: Mapping[str, Any]) -> str:
    """What an accuracy on corrupted tests is a mean of; empty of another."""
    if "clean_accuracy" not in summary:
        return ""
    types = {name: x for name, x in summary.items() if name.startswith("accuracy/")}
    worst = min(types, key=lambda name: types[name])
    return (
        f"this is the mean over {len(types)} types of corruption, worst {worst.removeprefix('accuracy/')} "
        f"{types[worst]:.2%}; without corruption {summary['clean_accuracy']:.2%}"
    )


def _print_outcome(outcome: "Outcome", as_json: bool) -> None:
    """Print the result in a few lines, first the metric by which the run is judged; or as JSON."""
    from undrift.runs.folder.files import read_init
    from undrift.runs.folder.judge import GLOBAL, result_column
    from undrift.runs.folder.verify import head_of
    from undrift.studies.cost_to_target import best_of

    summary, head = outcome.summary, head_of(outcome.folder)
    if as_json:
        typer.echo(to_json({"folder": str(outcome.folder), "audit": head, **summary}))
        return
    if (begun := read_init(outcome.folder)) is not None:
        left = f"; from the seed: {', '.join(begun['left'])}" if begun["left"] else ""
        typer.echo(f"started from {begun['init']}: {begun['taken']} of {begun['tensors']} tensors{left}")
    judge, top = result_column(summary), best_of(summary)
    best = "" if top is None else f" (best {judge.text(top)} in round {summary['best_round']})"
    metric, personal = judge.metric, f"personal_{judge.metric}"
    if personal in summary:
        typer.echo(
            f"personal {metric.words} {metric.text(summary[personal])}{best if judge.personal else ''}, "
            f"worst tenth of clients {metric.text(summary['personal_worst_tenth'])}"
        )
    if metric in summary:
        own = f"client_{metric}" in summary
        typer.echo(
            f"{'global model: ' if judge.personal else ''}{metric.words} {metric.text(summary[metric])}"
            f"{'' if judge.personal else best}"
            + (f", clients {metric.text(summary[f'client_{metric}'])}" if own else "")
            + (f", worst tenth of clients {metric.text(summary['client_worst_tenth'])}" if own else "")
        )
    if metric != GLOBAL and not judge.personal and metric not in summary and top is not None:
        typer.echo(f"{metric.words}: best {judge.text(top)} in round {summary['best_round']}")
    if metric in summary.get("constant", {}):
        typer.echo(_compare_with_constant(summary["constant"], metric, summary.get(metric)))
    for line in filter(None, (_other_metrics(outcome, metric), _under_corruption(summary))):
        typer.echo(line)
    several = isinstance(summary["target"], list)
    targets, reached = ([x] if not several else x for x in (summary["target"], summary["rounds_to_target"]))
    for target, round in zip(targets, reached, strict=True):
        if target is not None:
            typer.echo(f"target {judge.text(target)}: " + (f"in round {round}" if round else "not reached"))
    if "stop_after" in summary:
        typer.echo(
            f"stopped after round {summary['rounds']}: no better {judge.words} for {summary['stop_after']} rounds"
        )
    if summary.get("privacy", "none") != "none":
        from undrift.privacy.statement import in_words

        typer.echo(f"privacy: {in_words(summary['privacy'])}")
    spent = summary["seconds"] + summary["evaluate_seconds"]
    tests = f" ({summary['personal_seconds']:.0f} s for personal models)" if "personal_seconds" in summary else ""
    typer.echo(
        f"{summary['rounds']} rounds in {spent:.0f} s{tests}, {summary['bytes_up'] / 1e6:.0f} MB up, "
        f"{summary['bytes_down'] / 1e6:.0f} MB down, {summary['gradients']} gradients"
    )
    typer.echo(f"{outcome.folder}  sha256 {outcome.sha256[:16]}" + (f"  audit {head[:16]}" if head else ""))
