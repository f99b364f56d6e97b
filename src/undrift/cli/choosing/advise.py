"""What to use for one's data: `undrift advise`."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from undrift.cli.app import app, report_errors
from undrift.cli.names import check_spelling
from undrift.cli.training.run import Data, Model, Partition

if TYPE_CHECKING:
    from undrift.data.partitions.skew import DataSkew
    from undrift.studies.advise import Choice, Problem

SHOWN = 5
"""How many compositions are listed."""


@app.command("advise")
def advise_on_data(
    data: Data = None,
    partition: Partition = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients; default as for undrift run.")] = None,
    model: Model = None,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    stateless: Annotated[
        bool, typer.Option("--stateless", help="Only methods whose clients keep nothing between rounds.")
    ] = False,
    gradients: Annotated[
        float | None, typer.Option(help="The most gradient evaluations per step, in units of FedAvg's.")
    ] = None,
    traffic: Annotated[float | None, typer.Option(help="The most bytes per round, in units of FedAvg's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all cases.")] = False,
) -> None:
    """Measure how clients' data differ and recommend a composition.

    Label, quantity and feature skew are measured without training. The
    recommendation comes from the studies of docs/evidence/results whose clients
    differed in nearly the same way and whose model was of the same family:
    convolutional, dense, ... They are listed, and the strength of the
    evidence is given.

    Example: undrift advise --data fashion-mnist --partition dirichlet:0.1
    """
    with report_errors("advise"):
        check_spelling(data=data, model=model)
    from undrift.data.partitions.skew import measure_skew
    from undrift.runs import Config
    from undrift.runs.setup.prepare import prepare
    from undrift.studies.advise import advise, as_record, family

    with report_errors("advise"):
        given = {"data": data, "partition": partition, "clients": clients, "model": model, "seed": seed}
        ready = prepare(Config.build({key: value for key, value in given.items() if value is not None}, "advise"))
        assert ready.partition is not None  # there is no task of its own
        task = ready.data_task
        skew, kin = measure_skew(task.dataset, ready.partition.clients, seed), family(task.make())
        choices = advise(
            skew,
            kind=task.dataset.kind,
            family=kin,
            stateless=stateless,
            gradients=gradients,
            traffic=traffic,
        )
    if as_json:
        typer.echo(json.dumps(as_record(skew, choices), indent=2))
        return
    typer.echo(f"{data or ready.config.subject}: {skew.clients} clients, {ready.config.model}, a {kin} model")
    named = {"data": data, "partition": partition}
    options = [x for key, value in named.items() if value is not None for x in (f"--{key}", value)]
    settings = {"clients": clients, "model": model}
    options += [x for key, value in settings.items() if value is not None for x in ("--set", f"{key}={value}")]
    _show(skew, choices, options)


def _show(skew: "DataSkew", choices: "list[Choice]", options: list[str]) -> None:
    """Print the skew, the recommendation with the command that tunes it, and the evidence."""
    from undrift.cli.tables import show_rows
    from undrift.studies.advise import BASELINE, level_with_first

    for kind, value in (("label", skew.label), ("quantity", skew.quantity), ("feature", skew.feature)):
        typer.echo(f"  {kind} skew {'not measured' if value is None else f'{value:.2f}  {_words(kind, value)}'}")
    best = choices[0]
    if best.confidence == "none":
        typer.echo("No recommendation: no study has clients and a model like these. Try a few with undrift compare.")
        return
    if best.difference is None:
        typer.echo(f"Recommended: {BASELINE}. In the studies with clients like these nothing was clearly better.")
    else:
        typer.echo(
            f"Recommended: {best.method}  {best.difference:+.1f} points over {BASELINE}, {best.confidence}"
            f"{' older' if best.older else ''} evidence: "
            f"better in {best.wins} of {len(best.cases)} cases, worse in {best.losses}"
        )
        if level := [choice.method for choice in level_with_first(choices)]:
            typer.echo(f"No interval separates it from: {', '.join(level)}. Choose among them by cost and state.")
    typer.echo(
        f"{BASELINE} is FedAvg with equal weights. The studies are short; every method needs its own learning rate:\n"
        f'  undrift tune "{best.method}" {shlex.join(options)}'.rstrip()
    )
    cases = [(choice.method, case) for choice in choices[:SHOWN] for case in choice.cases]
    rows = [
        [
            *(case.problem.data, case.problem.model, case.problem.partition),
            method,
            f"{case.difference:+.1f}",
            f"{case.low:+.1f} to {case.high:+.1f}",
            str(case.seeds),
            "" if case.step is None else f"{case.step:.2f}",
            "older" if case.problem.older else "strict",
        ]
        for method, case in cases
    ]
    if rows:
        headings = ["data", "model", "partition", "method", "points", "95 % interval", "seeds", "step", "protocol"]
        trained = dict.fromkeys(_conditions(case.problem) for _, case in cases)
        show_rows(f"Evidence (docs/evidence/results), {'; '.join(trained)}:", headings, rows)
        if any(case.step is not None for _, case in cases):
            typer.echo(
                f"step: the seconds of a local step over those of {BASELINE}; undrift list has traffic and state."
            )
        if any(case.problem.older for _, case in cases):
            typer.echo(
                "older: the study does not meet the strict protocol (rates at edges, tuned by another measure, "
                "intervals not corrected); test it with undrift compare --protocol strict before you rely on it."
            )


def _conditions(problem: "Problem") -> str:
    """How long a study trained, and with how many clients."""
    clients = f"{problem.cohort} of {problem.clients}" if problem.clients else f"{problem.cohort}"
    return f"{problem.rounds} rounds, {clients} clients"


def _words(kind: str, value: float) -> str:
    """A skew in one word."""
    none, strong = {"label": (0.1, 0.5), "quantity": (0.2, 0.5), "feature": (0.05, 0.15)}[kind]
    return "none" if value < none else "strong" if value >= strong else "moderate"
