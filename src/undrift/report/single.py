"""Draw one kind of figure from runs, after measuring what it needs and is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from undrift.experiment.checkpoint import kept_rounds
from undrift.experiment.inspect import look, place
from undrift.report.collect import LoadedRun, Material, ReportError, collect
from undrift.report.prints import write_prints
from undrift.report.sections import sections
from undrift.util.names import suggest


@dataclass(frozen=True)
class Kind:
    """A kind of figure.

    Args:
        shows: what it shows.
        names: how the names of its files begin.
        part: the lens measurement it needs; empty if the run's own rows are enough.
        rounds: whether it shows every kept round and not only the last.
    """

    shows: str
    names: tuple[str, ...]
    part: str = ""
    rounds: bool = False


KINDS: Mapping[str, Kind] = {
    "bands": Kind(
        "distance of clients' gradients and perturbations by band, round by round", ("bands-",), "spectrum", True
    ),
    "consensus": Kind("what clients share of each band", ("consensus-", "distance-"), "spectrum"),
    "variance": Kind("variance of clients' perturbations by band", ("variance-",), "spectrum"),
    "layers": Kind("divergence by layer, before and after a filter", ("divergence-",), "divergence"),
    "cka": Kind("alignment of clients' representations, by pairs and by layer", ("cka",), "alignment"),
    "pca": Kind("perturbations, weights and features of clients in a plane", ("pca-",), "views"),
    "tsne": Kind("features of test examples, coloured by class", ("features",), "embedding"),
    "landscape": Kind("the loss around the final models, on one scale", ("landscape-",), "surface"),
    "drift": Kind("how far clients move and drift, over rounds", ("curve-drift", "curve-client-distance")),
    "accuracy": Kind("accuracy over rounds, traffic and time", ("curve-accuracy",)),
    "partition": Kind("who has what", ("partition",)),
    "clients": Kind("accuracy of each client", ("clients",)),
    "loss": Kind("loss on the test set over rounds", ("curve-test-loss",)),
}
"""Name -> what it is."""


def draw_kind(kind: str, runs: Sequence[Path], folder: Path, *, clients: int = 10, seed: int = 0) -> list[Path]:
    """Write the figures of one kind as PNG and PDF and return their paths.

    What has been measured is not measured again; what is missing is measured with the same settings.

    Args:
        kind: one of `KINDS`.
        runs: as `collect` takes them.
        folder: where to write.
        clients: how many clients to measure, for runs without measurements.
        seed: of the choice of clients and examples, likewise.
    """
    if kind not in KINDS:
        raise ReportError(f"no figure is named {kind!r}; {suggest(kind, KINDS)}")
    wanted = KINDS[kind]
    for run in collect(runs).runs if wanted.part else ():
        _look(run, wanted, clients, seed)
    material = collect(runs)
    drawn = [figure for part in sections(material) for figure in part.figures if figure.name.startswith(wanted.names)]
    if not drawn:
        raise ReportError(f"{', '.join(map(str, runs))}: nothing to draw for {kind}: {_why(kind, material)}")
    return write_prints(drawn, folder)


def _look(run: LoadedRun, wanted: Kind, clients: int, seed: int) -> None:
    """Measure what is missing, with the settings of earlier measurements."""
    rounds = kept_rounds(run.folder / "checkpoints")[:-1] if wanted.rounds else []
    for round in [*rounds, None]:
        before = run.read(str(place(Path(), round))) or {}
        if wanted.part not in before:
            asked = {"seed": seed, **before.get("asked", {})}
            look(
                run.folder, parts=[wanted.part], round=round, clients=len(before.get("clients", ())) or clients, **asked
            )


def _why(kind: str, material: Material) -> str:
    """The reason the lens gives, or what such a figure needs."""
    skips = [run.lens["skipped"] for run in material.runs if run.lens]
    reasons = [skipped[KINDS[kind].part] for skipped in skips if KINDS[kind].part in skipped]
    needs = {
        "bands": "keep several rounds (output.checkpoint_every, output.keep)",
        "variance": "a method that perturbs",
    }
    return reasons[0] if reasons else needs.get(kind, "the runs have no rows for it")
