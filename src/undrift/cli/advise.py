"""What to use for one's data: `undrift advise`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from undrift.cli.app import app, reported
from undrift.cli.names import check_spelling
from undrift.cli.runs import Data, Partition

if TYPE_CHECKING:
    from undrift.data.skew import DataSkew
    from undrift.experiment.advise import Choice

SHOWN = 5
"""How many compositions are listed."""


@app.command("advise")
def advise_on_data(
    data: Data = None,
    partition: Partition = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients; default as for undrift run.")] = None,
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
    recommendation comes from the studies of docs/results whose clients
    differed in nearly the same way. They are listed, and the strength of the
    evidence is given.

    Example: undrift advise --data fashion-mnist --partition dirichlet:0.1
    """
    with reported("advise"):
        check_spelling(data=data)
    from undrift.data.skew import measure_skew
    from undrift.experiment import Config
    from undrift.experiment.advise import advise, as_record
    from undrift.experiment.setup import prepare

    with reported("advise"):
        given = {"data": data, "partition": partition, "clients": clients, "seed": seed}
        ready = prepare(Config.build({key: value for key, value in given.items() if value is not None}, "advise"))
        assert ready.partition is not None  # there is no task of its own
        skew = measure_skew(ready.data_task.dataset, ready.partition.clients, seed)
        choices = advise(skew, stateless=stateless, gradients=gradients, traffic=traffic)
    if as_json:
        typer.echo(json.dumps(as_record(skew, choices), indent=2))
    else:
        _show(skew, choices, data or ready.config.subject)


def _show(skew: "DataSkew", choices: "list[Choice]", data: str) -> None:
    """Print the skew, the recommendation and the evidence."""
    from undrift.cli.tables import show_rows

    typer.echo(f"{data}: {skew.clients} clients")
    for kind, value in (("label", skew.label), ("quantity", skew.quantity), ("feature", skew.feature)):
        typer.echo(f"  {kind} skew {'not measured' if value is None else f'{value:.2f}  {_words(kind, value)}'}")
    best = choices[0]
    if best.confidence == "none":
        typer.echo("Recommended: fedavg. No study has clients like these: compare a few methods with undrift compare.")
        return
    if best.difference is None:
        typer.echo("Recommended: fedavg. In the studies with clients like these nothing was better with certainty.")
    else:
        over = " or ".join(dict.fromkeys(case.baseline for case in best.cases))
        typer.echo(
            f"Recommended: {best.method}  {best.difference:+.1f} points over {over}, {best.confidence} evidence: "
            f"better in {best.wins} of {len(best.cases)} cases, worse in {best.losses}"
        )
    rows = [
        [
            case.data,
            case.model,
            case.partition,
            choice.method,
            f"{case.difference:+.1f}",
            case.baseline,
            f"{case.low:+.1f} to {case.high:+.1f}",
            str(case.seeds),
        ]
        for choice in choices[:SHOWN]
        for case in choice.cases
    ]
    if rows:
        headings = ["data", "model", "partition", "method", "points", "over", "95 % interval", "seeds"]
        show_rows("Evidence (docs/results):", headings, rows)


def _words(kind: str, value: float) -> str:
    """A skew in one word."""
    none, strong = {"label": (0.1, 0.5), "quantity": (0.2, 0.5), "feature": (0.05, 0.15)}[kind]
    return "none" if value < none else "strong" if value >= strong else "moderate"
