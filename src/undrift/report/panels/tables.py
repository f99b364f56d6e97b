"""Tables: the summary of `undrift compare`, what it takes to reach a target, and how sharp the minima are."""

from collections.abc import Sequence
from math import floor
from statistics import fmean

from undrift.report.draw.description import Table, number_text
from undrift.report.loaded import Group, Material
from undrift.runs.folder.judge import result_column
from undrift.runs.settings.targets import Target
from undrift.studies.cost_to_target import amount_text, best_of, cost_cells, cost_note, costs
from undrift.studies.statistics import LEVEL, Row, cells, summarise, table_note


def summary(material: Material) -> Table:
    """The table of a comparison, over all settings."""
    rows = []
    for setting in material.settings:
        runs = {group.label: group.results for group in material.within(setting)}
        rows += [{"setting": setting, **row} for row in summarise(runs, material.baseline, material.claims)]
    headings, texts = cells(rows)
    points = " in points" if any(heading.endswith(" %") for heading in headings) else ""
    reading = (
        f"± is the standard deviation over seeds; vs {material.baseline} is the mean difference{points} within a "
        f"seed and its {'' if material.claims else f'{LEVEL:.0%} '}interval, and one that contains 0 does not separate "
        "the two."
    )
    bold = _best_cells(rows, headings)
    reading += " Bold is the best mean of a setting." if bold else ""
    return Table(headings, texts, table_note(rows, reading), headings.index("seeds"), bold)


def _best_cells(rows: Sequence[Row], headings: Sequence[str]) -> frozenset[tuple[int, int]]:
    """Row and column of the best means, of the methods of a setting that are judged alike, if there are several."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for n, row in enumerate(rows):
        kinds.setdefault((row["setting"], row["judged_by"]), []).append(n)
    found = set()
    for column, name in enumerate(heading.removesuffix(" %") for heading in headings):
        for places in kinds.values() if name in ("best", "last") else ():
            known = [n for n in places if name in rows[n]]
            if len(known) > 1:
                judge = result_column(rows[known[0]])
                values = [rows[n][name] for n in known]
                top = min(values) if judge.minimised else max(values)
                found |= {(n, column) for n in known if rows[n][name] == top}
    return frozenset(found)


def reach(material: Material) -> Table:
    """Rounds, gradients, traffic and time until each target and in the whole run, against the baseline."""
    rows, rates = [], {}
    for setting in material.settings:
        groups = material.within(setting)
        runs = {group.label: group.results for group in groups}
        for group in groups:
            found = costs(group.results, runs.get(material.baseline, {}), targets(groups))
            rows.append({"setting": setting, "label": group.label, "costs": found})
            rates[setting, group.label] = [_rate(group, key) for key in ("bytes_up", "bytes_down")]
    headings, texts = cost_cells(rows)
    method = headings.index("method")
    lines = [line + rates[line[0] if "setting" in headings else "", line[method]] for line in texts]
    reading = (
        f"{cost_note(material.baseline)} Targets are the runs' own or, if they have none, the highest whole percent "
        "that every run reaches."
    )
    if not all(group.judged_by.percent for group in material.groups):
        reading = reading.replace("the highest whole percent that", "of accuracies the highest whole percent that")
    if any(group.judged_by.personal for group in material.groups):
        reading += " Personal methods reach it by their personal accuracy, and only in rounds in which it was measured."
    return Table([*headings, "MB up a round", "MB down a round"], lines, reading, keys=method + 1)


def targets(groups: Sequence[Group]) -> tuple[Target, ...]:
    """What to reach: the runs' own targets or, without any, the highest whole percent that all of them reach."""
    results = [run.result for group in groups for run in group.runs]
    own = dict.fromkeys(target for result in results for target in result["targets"])
    if own or not all(result_column(result).percent for result in results):
        return tuple(own)
    common = floor(100 * min(best_of(result) or 0.0 for result in results) + 1e-9) / 100  # 100 * 0.58 is below 58
    return (Target(common),) if common else ()


def _rate(group: Group, key: str) -> str:
    """The mean megabytes of a round."""
    rounds = [row for run in group.runs for row in run.rows]
    return amount_text(fmean(row[key] for row in rounds) / 1e6)


def curvature(material: Material) -> Table | None:
    """How sharp the final models are; None if curvature was not measured."""
    several, rows = len(material.settings) > 1, []
    for group in material.groups:
        for measurement in group.lens("curvature")[:1]:
            error = measurement.get("trace_error")
            trace = number_text(measurement.get("trace"), ".4g") + (
                f" ± {error:.2g}" if isinstance(error, float | int) else ""
            )
            top = ", ".join(map(number_text, measurement.get("top") or [])) or "-"
            numbers = [
                top,
                trace,
                *(number_text(measurement.get(key), ".4g") for key in ("sharpness", "gradient_norm", "examples")),
            ]
            rows.append([*[group.setting] * several, group.label, *numbers])
    headings = ["method", "largest eigenvalues", "trace", "sharpness", "gradient norm", "examples"]
    reading = "Lower is flatter: eigenvalues and trace of the Hessian, and how much one step uphill raises the loss."
    return Table([*["setting"] * several, *headings], rows, reading, keys=1 + several) if rows else None
