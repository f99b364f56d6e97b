"""The pages of docs/evidence/results and the evidence of `undrift advise`, from the committed raw results.

python benchmarks/studies/pages.py            # make results
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

import fine_tuning
import poisoning
import private_accuracy
import schedules
from beside import beside, gap_text, sources, study_file
from gaps import Lines, all_gaps, gap, values
from parts import part_gaps, parts_figure, parts_table, with_table
from protocol_state import against, claims, claims_table, level_of, older_note, rows_left, strict
from rates import rates_figure, rates_table, read_rates
from row_texts import judged_text, overrides, row_text, row_within, setting_texts, stated_table, weights_text
from shared import svg
from study import RESULTS, committed, read
from study_curves import curves
from undrift import Algorithm, make
from undrift.algorithms import ALGORITHMS
from undrift.data import load
from undrift.models import INPUTS, ROWS, build
from undrift.studies.advise import BASELINE, family
from undrift.studies.statistics import LATE, LEVEL, paired_difference
from undrift.util.display.tables import markdown
from undrift.util.naming.references import Reference
from undrift.util.storage.files import write

ROOT = Path(__file__).parents[2]
PAGES, EVIDENCE = ROOT / "docs/evidence/results", ROOT / "src/undrift/studies/evidence.json"
FINDINGS = ROOT / "docs/evidence/findings"
READING = (
    f"Late accuracy is the mean of a run's last {LATE} evaluations, ± the standard deviation over seeds; differences "
    "are paired by seed, "
)
OLDER = "with 95 % intervals, each by itself."
PROTOCOL = (
    "Under the strict protocol of `undrift compare`: every row starts with the same number of points over its learning "
    "rate and at most one argument, its grid was widened until the best rate was inside, points are scored by late "
    "accuracy on held-out examples, the mean of two seeds, and the seeds that judge were named before."
)
STEP = (
    "Gradients are all that a run evaluates; ms/gradient is that of the quickest round of all seeds, so that other "
    "work on the machine counts little."
)
COPIES = {
    "cifar10": "The images are a JPEG copy of CIFAR-10; with the original ones, accuracies and hashes differ a little.",
    "shakespeare": "The text is one file of Shakespeare's plays with 198 roles, not the data set of LEAF.",
}
"""Data -> what readers must know about the copy that the studies use."""


def table(study: Mapping[str, Any], lines: Lines, others: list[str], level: float = LEVEL) -> str:
    """A study as a Markdown table.

    Args:
        study: the tuned comparison.
        lines: the raw results.
        others: the rows that differences are taken from.
        level: of the intervals.
    """
    texts = []
    for setting in study["settings"]:
        for row in study["methods"]:
            own = [x for x in lines if (x["setting"], x["label"]) == (setting, row["label"])]
            found = list(values(own, setting, row["label"]).values())
            if not found:
                continue
            spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
            gaps = [
                gap_text(gap(lines, setting, row["label"], x, level)) if row["label"] not in others[: n + 1] else ""
                for n, x in enumerate(others)
            ]
            cells = [f"{own[0]['lr']:g}", f"{fmean(found):.1f}{spread}", str(len(found)), *gaps]
            if strict(study):
                arguments = own[0]["config"].get("arguments", {})
                chosen = ", ".join(f"{name} {value:g}" for name, value in arguments.items())
                cells[1:1] = [chosen]
                cells += [f"{own[0]['gradients']}", f"{min(x['gradient_ms'] for x in own):.2f}"]
            texts.append([setting, row["label"], *cells])
    headings = ["setting", "row", "lr", "late accuracy %", "seeds", *(f"minus {x}" for x in others)]
    if strict(study):
        headings[3:3] = ["argument"]
        headings += ["gradients", "ms/gradient"]
    return markdown(headings, texts, left=2)


def measured(study: Mapping[str, Any], lines: Lines) -> dict[str, Any]:
    """A study with those of its rows that have results: it may still be running.

    Args:
        study: the tuned comparison.
        lines: the raw results.
    """
    labels = {line["label"] for line in lines}
    return {**study, "methods": [row for row in study["methods"] if row["label"] in labels]}


def trend(study: Mapping[str, Any], lines: Lines, baseline: str) -> str:
    """The differences from the baseline at every evaluation, as a Markdown table.

    Args:
        study: the tuned comparison.
        lines: the raw results.
        baseline: the row that differences are taken from.
    """
    texts: list[list[str]] = []
    rounds = sorted({at for line in lines for at, _ in line["curve"]})
    for setting in study["settings"]:
        curves: dict[str, dict[int, dict[int, float]]] = {}
        for line in lines:
            if line["setting"] == setting:
                curves.setdefault(line["label"], {})[line["seed"]] = {at: 100 * x for at, x in line["curve"]}
        for label in (row["label"] for row in study["methods"] if row["label"] != baseline):
            found = [
                paired_difference(
                    {seed: x[at] for seed, x in curves.get(label, {}).items() if at in x},
                    {seed: x[at] for seed, x in curves.get(baseline, {}).items() if at in x},
                )
                for at in rounds
            ]
            if any(found):
                texts.append([setting, label, *map(gap_text, found)])
    return markdown(["setting", "row", *(f"round {at}" for at in rounds)], texts, left=2)


def figure(study: Mapping[str, Any], lines: Lines, baseline: str, level: float = LEVEL) -> str:
    """Differences from the baseline with their intervals, setting by setting, as SVG.

    Args:
        study: the tuned comparison.
        lines: the raw results.
        baseline: the row that differences are taken from.
        level: of the intervals.
    """
    gaps = {
        setting: {row: x for row, x in reversed(rows.items()) if x.pairs > 2}
        for setting, rows in all_gaps(study, lines, baseline, level).items()
    }
    gaps = {setting: rows for setting, rows in gaps.items() if rows}
    heights = [len(rows) + 1.5 for rows in gaps.values()]
    with rc_context({"svg.hashsalt": "undrift", "font.size": 9}):
        if not gaps:
            drawn = Figure(figsize=(7, 0.6))
            drawn.text(0.5, 0.5, f"no row has three seeds in common with {baseline} yet", ha="center", va="center")
            return svg(drawn)
        drawn = Figure(figsize=(7, 0.6 + 0.2 * sum(heights)), layout="constrained")
        parts = drawn.subplots(len(gaps), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (setting, rows) in zip(parts, gaps.items(), strict=True):
            ends = [[x.mean - x.low, x.high - x.mean] for x in rows.values()]  # type: ignore[operator]
            axes.axvline(0, color="#777777", linewidth=0.8)
            axes.errorbar(
                [x.mean for x in rows.values()],
                range(len(rows)),
                xerr=[*zip(*ends, strict=True)],
                fmt="o",
                markersize=4,
                capsize=2,
                color="#1f77b4",
            )
            axes.set_yticks(range(len(rows)), rows)
            axes.set_ylim(-0.7, len(rows) - 0.3)
            axes.set_title(setting, fontsize=9, loc="left")
        kind = "paired 95 % intervals" if level == LEVEL else "paired intervals, all together 95 %"
        parts[-1].set_xlabel(f"late accuracy minus {baseline}, points, {kind}")
        return svg(drawn)


def page(name: str, study: Mapping[str, Any], lines: Lines) -> str:
    """The page of a study.

    Args:
        name: the study.
        study: the tuned comparison.
        lines: the raw results.
    """
    base, local = study["base"], study["base"]["local"]
    file = study_file(name)
    level = level_of(file)
    rows = "\n".join(
        f"- `{row['label']}`: `{row_text(row)}`" + (f", {own}" if (own := overrides(row)) else "")
        for row in study["methods"]
    )
    changed = setting_texts(study)
    settings = f"What the settings change:\n\n{changed}\n\n" if changed else ""
    work = (
        f"{local['steps']} steps of {local['batch_size']} examples"
        if "steps" in local
        else f"{local.get('epochs', 1)} epochs"
    )
    data = base["data"] if isinstance(base["data"], str) else base["data"]["name"]
    clients = f"{base['clients']} clients" if "clients" in base else "Clients as the data have them"
    papers = beside(sources(name), all_gaps(study, lines, study["baseline"]), study["baseline"])
    papers += stated_table(file, all_gaps(study, lines, study["baseline"], level))
    more = rates_table(study, read_rates(RESULTS, name)) + papers
    if strict(study):
        state, intervals = (
            rows_left(file, lines),
            f"and all {claims(file)} intervals of the page hold together with 95 %",
        )
        about = [PROTOCOL, READING + intervals + f" (Bonferroni: each has {level:.2%}).", STEP]
    else:
        state, about = older_note(lines, read_rates(RESULTS, name)), [file.get("about", ""), READING + OLDER]
    about += [judged_text(lines), COPIES.get(data, "")]
    evolution = (
        ""
        if strict(study)
        else f"Accuracy minus {study['baseline']} at every evaluation:\n\n{trend(study, lines, study['baseline'])}\n\n"
    )
    trials = (
        f", [trials](../../../benchmarks/studies/results/here/rates/{name}.jsonl)" if read_rates(RESULTS, name) else ""
    )
    example = f"{lines[0]['setting']}/{lines[0]['label']}/{lines[0]['seed']}"
    return f"""# {study["name"]}

{clients}, {base["cohort"]} in a round, {base["rounds"]} rounds of {work}, {weights_text(study)}.
{fill(" ".join(filter(None, about)), 120)}

{fill(state, 120, break_on_hyphens=False)}

![Differences from {study["baseline"]}]({name}.svg)

{table(study, lines, against(file), level)}

{rows}

{settings}![Accuracy over rounds]({name}-curves.svg)

{evolution}{more}Raw results, with the settings and the hash of every run:
[lines](../../../benchmarks/studies/results/here/{name}.jsonl){trials},
[the whole comparison](../../../benchmarks/studies/results/here/{name}.toml). One run again, to the same hash:

```text
python benchmarks/studies/study.py --config {name} {example} > run.toml
undrift run --config run.toml
```
"""


def problems(name: str, study: Mapping[str, Any], lines: Lines) -> list[dict[str, Any]]:
    """The settings of a study with what was measured in them, for `undrift advise`; none without committed trials.

    Args:
        name: the study.
        study: the tuned comparison.
        lines: the raw results.
    """
    found = []
    for setting, part in study["settings"].items() if read_rates(RESULTS, name) else ():
        whole = {**study["base"], **part}
        rows = {}
        for row in study["methods"]:
            own = next((x for x in lines if (x["setting"], x["label"]) == (setting, row["label"])), None)
            if own is not None:
                method = composition(row_text(row_within(row, part)), whole)
                rows[method] = (own, values(lines, setting, row["label"]))
        if BASELINE not in rows:
            continue
        base, _ = rows[BASELINE]
        model, data = (x if isinstance(x, str) else x["name"] for x in (whole["model"], whole["data"]))
        known = INPUTS[model] if model not in ROWS else "image"
        kind = load(data).kind if Reference.parse(data) else known
        sizes = {"symbols": 80} if kind == "text" else {}
        found.append(
            {
                "study": name,
                "claims": claims(study_file(name)) if strict(study) else 0,
                "data": data,
                "kind": kind,
                "model": model_text(whole["model"]),
            }
            | {"family": family(build(model, classes=10, **sizes)), "partition": whole["partition"]}
            | {"skew": base["skew"], "clients": whole.get("clients")}
            | {"cohort": whole["cohort"], "rounds": whole["rounds"]}
            | {
                "rows": [
                    {"method": method, "stateless": own["stateless"], "traffic": own["traffic"]}
                    | {"gradients": own["gradients"] / base["gradients"], "step": step_ratio(lines, own, base)}
                    | {"accuracy": {seed: round(value, 4) for seed, value in accuracy.items()}}
                    for method, (own, accuracy) in rows.items()
                ]
            }
        )
    return found


def step_ratio(lines: Lines, own: Mapping[str, Any], base: Mapping[str, Any]) -> float | None:
    """The seconds of a row's local step over the baseline's, each of its quickest round; None where none are known.

    Args:
        lines: the raw results.
        own: a line of the row.
        base: a line of the baseline, in the same setting.
    """
    if "gradient_ms" not in own or "gradient_ms" not in base:
        return None
    seconds = [
        min(x["gradient_ms"] for x in lines if (x["setting"], x["label"]) == (row["setting"], row["label"]))
        * row["gradients"]
        for row in (own, base)
    ]
    return float(round(seconds[0] / seconds[1], 2))


def model_text(model: str | Mapping[str, Any]) -> str:
    """A model with its arguments: the same model with another norm is another case.

    Args:
        model: as a study has it.

    Example:
        >>> model_text({"name": "resnet8", "norm": "batch"})
        'resnet8 (norm batch)'
    """
    if isinstance(model, str):
        return model
    return f"{model['name']} ({', '.join(f'{key} {value}' for key, value in model.items() if key != 'name')})"


def composition(method: str, settings: Mapping[str, Any]) -> str:
    """The composition that a row amounts to, by its name if it has one; FedAvg with equal weights is `uniform`.

    Args:
        method: the row's.
        settings: of the study.

    Example:
        >>> composition("fedavg + gradient:high-pass(0.05)", {"weights": "uniform"})
        'specgrad'
    """
    if settings.get("weights") == "uniform" and (method == "fedavg" or method.startswith("fedavg + ")):
        method = method.replace("fedavg", "uniform", 1)
    algorithm = make(method)
    return next((name for name, named in _named_methods().items() if named == algorithm), method)


@cache
def _named_methods() -> dict[str, Algorithm]:
    """Every method with its defaults, by name."""
    return {name: make(name) for name in ALGORITHMS}


def generated(draws: bool = True) -> dict[Path, str]:
    """Every generated file with its text.

    Args:
        draws: whether figures are drawn; else their texts are empty.
    """
    files: dict[Path, str] = {}
    every = []
    for path in sorted(RESULTS.glob("*.jsonl")):
        name, lines = path.stem, read(path.stem)
        study = measured(committed(name), lines)
        files[PAGES / f"{name}.md"] = page(name, study, lines)
        level = level_of(study_file(name))
        files[PAGES / f"{name}.svg"] = figure(study, lines, study["baseline"], level) if draws else ""
        files[PAGES / f"{name}-curves.svg"] = curves(study, lines) if draws else ""
        every += problems(name, study, lines)
    files[FINDINGS / "learning-rates.svg"] = rates_figure(RESULTS) if draws else ""
    parts = part_gaps()
    files[FINDINGS / "parts.svg"] = parts_figure(parts) if draws else ""
    files[FINDINGS / "parts.md"] = with_table((FINDINGS / "parts.md").read_text(), parts_table(parts))
    files[FINDINGS / "schedules.svg"] = schedules.figure() if draws else ""
    made = {
        "poisoning": poisoning.tables(),
        "private-accuracy": private_accuracy.table(),
        "fine-tuning": fine_tuning.tables(),
        "schedules": schedules.tables(),
    }
    for name, found in made.items():
        files[FINDINGS / f"{name}.md"] = with_table((FINDINGS / f"{name}.md").read_text(), found)
    files[FINDINGS / "fine-tuning.svg"] = fine_tuning.figure() if draws else ""
    files[PAGES / "index.md"] = with_table((PAGES / "index.md").read_text(), claims_table())
    files[EVIDENCE] = "[\n" + ",\n".join(json.dumps(problem) for problem in every) + "\n]\n"
    return files


if __name__ == "__main__":
    PAGES.mkdir(parents=True, exist_ok=True)
    for path, text in generated().items():
        write(path, text)
        print(path.relative_to(ROOT))
