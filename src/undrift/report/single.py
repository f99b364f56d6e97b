"""Draw one kind of figure from runs, after measuring what it needs and is missing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from undrift.observe.look import skipped_of
from undrift.report.collect import collect
from undrift.report.draw.print_figures import write_prints
from undrift.report.kinds import KINDS, Kind
from undrift.report.loaded import LoadedRun, Material, ReportError
from undrift.report.sections import sections
from undrift.runs.folder.checkpoint import kept_rounds
from undrift.runs.reading.best_round import BEST, Round, resolve_round
from undrift.runs.reading.open_checkpoint import lens_file, look
from undrift.util.naming.names import suggest


def draw_kind(
    kind: str,
    runs: Sequence[Path],
    folder: Path,
    *,
    clients: int = 10,
    seed: int = 0,
    round: Round | None = None,
    together: bool = False,
) -> list[Path]:
    """Write the figures of one kind as PNG and PDF and return their paths.

    What has been measured is not measured again; what is missing is measured with the same settings.

    Args:
        kind: one of `KINDS`; for "sweep" see `draw_sweep`.
        runs: as `collect` takes them.
        folder: where to write.
        clients: how many clients to measure, for runs without measurements.
        seed: of the choice of clients and examples, likewise.
        round: a kept round, or "best", to measure instead of the last.
        together: whether runs that differ in settings share a frame.
    """
    if kind not in KINDS:
        raise ReportError(f"no figure is named {kind!r}; {suggest(kind, KINDS)}")
    wanted = KINDS[kind]
    _check_options(kind, round, together)
    for run in _at_round(collect(runs), round).runs if wanted.part else ():
        _measure_missing(run, wanted, clients, seed)
    material = _at_round(collect(runs), round)
    material = _join_settings(material) if together else material
    drawn = [figure for part in sections(material) for figure in part.figures if figure.name.startswith(wanted.names)]
    if not drawn:
        raise ReportError(f"{', '.join(map(str, runs))}: nothing to draw for {kind}: {_reason(kind, material)}")
    if round is not None:
        when = "after the best round" if round == BEST else f"after round {round}"
        drawn = [replace(x, name=f"{x.name}-round-{round}", title=f"{x.title}, {when}") for x in drawn]
    return write_prints(drawn, folder)


def _check_options(kind: str, round: Round | None, together: bool) -> None:
    """Reject options that mean nothing for a kind."""
    if round is not None and (not KINDS[kind].part or KINDS[kind].rounds):
        measured = ", ".join(name for name, other in KINDS.items() if other.part and not other.rounds)
        raise ReportError(f"--round: {kind} does not show one measured round; those that do are {measured}")
    if kind == "sweep":
        raise ReportError("a sweep needs the name of a value: undrift figure sweep RUN... --over rho")
    if together and kind == "partition":
        raise ReportError("--together: partitions of different settings are different pictures; leave it out")


def _at_round(material: Material, round: Round | None) -> Material:
    """The runs with their measurements after a round."""
    if round is None:
        return material

    def earlier(run: LoadedRun) -> LoadedRun:
        return replace(run, round=resolve_round(run.folder, round))

    groups = [replace(group, runs=tuple(map(earlier, group.runs))) for group in material.groups]
    return replace(material, groups=tuple(groups))


def _join_settings(material: Material) -> Material:
    """All groups in one setting; the label of each names its setting, alone if there is one method only."""
    one = len(material.labels) == 1
    groups = []
    for n, group in enumerate(material.groups):
        label = group.setting if one else f"{group.label}, {group.setting}"
        groups.append(replace(group, setting="", label=label if group.setting else group.label, style=n))
    return replace(material, groups=tuple(groups), baseline=groups[0].label)


def _measure_missing(run: LoadedRun, wanted: Kind, clients: int, seed: int) -> None:
    """Measure what is missing, with the settings of earlier measurements."""
    if wanted.live and any(wanted.part in row for row in run.stream):
        return
    rounds = kept_rounds(run.folder / "checkpoints")[:-1] if wanted.rounds else []
    for round in [*rounds, run.round]:
        before = run.read(str(lens_file(Path(), round))) or {}
        if wanted.part not in before:
            asked = {"seed": seed, **before.get("asked", {})}
            look(
                run.folder, parts=[wanted.part], round=round, clients=len(before.get("clients", ())) or clients, **asked
            )


def _reason(kind: str, material: Material) -> str:
    """The reason the lens gives, or what such a figure needs."""
    skips = [run.lens["skipped"] for run in material.runs if run.lens]
    part = KINDS[kind].part
    reasons = [why for skipped in skips for name, why in skipped.items() if part and skipped_of(part, name)]
    needs = {
        "bands": "keep several rounds (output.checkpoint_every, output.keep)",
        "variance": "a method that perturbs",
        "blocks": "a method whose blocks report scalars, such as fedscam, scaffold or fedawa; see docs/guide/runs.md",
    }
    return "; ".join(dict.fromkeys(reasons)) or needs.get(kind, "the runs have no rows for it")
