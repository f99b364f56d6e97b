"""The pages of docs/evidence/results and the evidence of `undrift advise`, from the committed raw results.

python benchmarks/studies/pages.py            # make results
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from beside import beside, gap_text, sources, study_file
from gaps import LATE, Lines, all_gaps, gap, values
from parts import part_gaps, parts_figure, parts_table, with_table
from rates import rates_figure, rates_table, read_rates
from row_texts import judged_text, overrides, row_text, row_within, setting_texts
from shared import svg
from study import RESULTS, committed, read
from study_curves import curves
from undrift import make
from undrift.algorithms import ALGORITHMS
from undrift.models import INPUTS, ROWS, build
from undrift.studies.advise import BASELINE, family
from undrift.studies.statistics import paired_difference
from undrift.util.display.tables import markdown
from undrift.util.storage.files import write

ROOT = Path(__file__).parents[2]
PAGES, EVIDENCE = ROOT / "docs/evidence/results", ROOT / "src/undrift/studies/evidence.json"
FINDINGS = ROOT / "docs/evidence/findings"
TUNED = "The learning rate of every row and setting was tuned on held-out examples of one more seed, with one budget."
"""Where the learning rates come from, unless the study has another text in `about`."""
READING = (
    f"Late accuracy is the mean of a run's last {LATE} evaluations, ± the standard deviation over seeds; differences "
    "are paired by seed, with 95 % intervals."
)
COPIES = {
    "cifar10": "The images are a JPEG copy of CIFAR-10; with the original ones, accuracies and hashes differ a little.",
    "shakespeare": "The text is one file of Shakespeare's plays with 198 roles, not the data set of LEAF.",
}
"""Data -> what readers must know about the copy that the studies use."""


def table(study: Mapping[str, Any], lines: Lines, against: list[str]) -> str:
    """A study as a Markdown table.

    Args:
        study: the tuned comparison.
        lines: the raw results.
        against: the rows that differences are taken from.
    """
    texts = []
    for setting in study["settings"]:
        for row in study["methods"]:
            found = list(values(lines, setting, row["label"]).values())
            if not found:
                continue
            spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
            rate = next(x["lr"] for x in lines if (x["setting"], x["label"]) == (setting, row["label"]))
            gaps = [gap_text(gap(lines, setting, row["label"], x)) if x != row["label"] else "" for x in against]
            texts.append([setting, row["label"], f"{rate:g}", f"{fmean(found):.1f}{spread}", str(len(found)), *gaps])
    headings = ["setting", "row", "lr", "late accuracy %", "seeds", *(f"minus {x}" for x in against)]
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
                    *(
                        {seed: x[at] for seed, x in curves.get(name, {}).items() if at in x}
                        for name in (label, baseline)
                    )
                )
                for at in rounds
            ]
            if any(found):
                texts.append([setting, label, *map(gap_text, found)])
    return markdown(["setting", "row", *(f"round {at}" for at in rounds)], texts, left=2)


def figure(study: Mapping[str, Any], lines: Lines, baseline: str) -> str:
    """Differences from the baseline with their intervals, setting by setting, as SVG.

    Args:
        study: the tuned comparison.
        lines: the raw results.
        baseline: the row that differences are taken from.
    """
    gaps = {
        setting: {row: x for row, x in reversed(rows.items()) if x.pairs > 2}
        for setting, rows in all_gaps(study, lines, baseline).items()
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
        parts[-1].set_xlabel(f"late accuracy minus {baseline}, points, paired 95 % intervals")
        return svg(drawn)


def page(name: str, study: Mapping[str, Any], lines: Lines) -> str:
    """The page of a study.

    Args:
        name: the study.
        study: the tuned comparison.
        lines: the raw results.
    """
    base, local = study["base"], study["base"]["local"]
    labels = {row["label"] for row in study["methods"]}
    second = [x for x in ("uniform", "specgrad") if x in labels - {study["baseline"]}]
    against = [study["baseline"], *second[:1]]
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
    weights = ", equal weights" if base.get("weights") == "uniform" else ", each method with its own weights"
    papers = beside(sources(name), all_gaps(study, lines, study["baseline"]), study["baseline"])
    more = rates_table(study, read_rates(RESULTS, name)) + papers
    about = [study_file(name).get("about", TUNED), READING, judged_text(lines), COPIES.get(data)]
    example = f"{lines[0]['setting']}/{lines[0]['label']}/{lines[0]['seed']}"
    return f"""# {study["name"]}

{clients}, {base["cohort"]} in a round, {base["rounds"]} rounds of {work}{weights}.
{fill(" ".join(filter(None, about)), 120)}

![Differences from {study["baseline"]}]({name}.svg)

{table(study, lines, against)}

{rows}

{settings}![Accuracy over rounds]({name}-curves.svg)

Accuracy minus {study["baseline"]} at every evaluation:

{trend(study, lines, study["baseline"])}

{more}Raw results, with the settings and the hash of every run:
[lines](../../../benchmarks/studies/results/here/{name}.jsonl),
[the whole comparison](../../../benchmarks/studies/results/here/{name}.toml). One run again, to the same hash:

```text
python benchmarks/studies/study.py --config {name} {example} > run.toml
undrift run --config run.toml
```
"""


def problems(name: str, study: Mapping[str, Any], lines: Lines) -> list[dict[str, Any]]:
    """The settings of a study with what was measured in them, for `undrift advise`; none if no rates were tuned.

    Args:
        name: the study.
        study: the tuned comparison.
        lines: the raw results.
    """
    found = []
    for setting, part in study["settings"].items() if "tune" in study_file(name) else ():
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
        kind = INPUTS[model] if model not in ROWS else "image"
        sizes = {"symbols": 80} if kind == "text" else {}
        found.append(
            {"study": name, "data": data, "kind": kind, "model": model_text(whole["model"])}
            | {"family": family(build(model, classes=10, **sizes)), "partition": whole["partition"]}
            | {"skew": base["skew"], "clients": whole.get("clients")}
            | {"cohort": whole["cohort"], "rounds": whole["rounds"]}
            | {
                "rows": [
                    {"method": method, "stateless": own["stateless"], "traffic": own["traffic"]}
                    | {"gradients": own["gradients"] / base["gradients"]}
                    | {"accuracy": {seed: round(value, 4) for seed, value in accuracy.items()}}
                    for method, (own, accuracy) in rows.items()
                ]
            }
        )
    return found


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
    return next((name for name in ALGORITHMS if make(name) == algorithm), method)


def generated() -> dict[Path, str]:
    """Every generated file with its text."""
    files, every = {}, []
    for path in sorted(RESULTS.glob("*.jsonl")):
        name, lines = path.stem, read(path.stem)
        study = measured(committed(name), lines)
        files[PAGES / f"{name}.md"] = page(name, study, lines)
        files[PAGES / f"{name}.svg"] = figure(study, lines, study["baseline"])
        files[PAGES / f"{name}-curves.svg"] = curves(study, lines)
        every += problems(name, study, lines)
    files[FINDINGS / "learning-rates.svg"] = rates_figure(RESULTS)
    parts = part_gaps()
    files[FINDINGS / "parts.svg"] = parts_figure(parts)
    files[FINDINGS / "parts.md"] = with_table((FINDINGS / "parts.md").read_text(), parts_table(parts))
    files[EVIDENCE] = "[\n" + ",\n".join(json.dumps(problem) for problem in every) + "\n]\n"
    return files


if __name__ == "__main__":
    PAGES.mkdir(parents=True, exist_ok=True)
    for path, text in generated().items():
        write(path, text)
        print(path.relative_to(ROOT))
