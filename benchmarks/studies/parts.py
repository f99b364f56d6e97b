"""What each part of a method adds to the method without it: a figure of docs/evidence/findings."""

from matplotlib import rc_context
from matplotlib.figure import Figure

from beside import gap_text
from gaps import gap
from shared import svg
from study import read
from undrift.studies.statistics import Difference
from undrift.util.display.tables import markdown

PARTS = {
    "equal weights": ("uniform", "fedavg"),
    "means removed from gradients": ("center", "uniform"),
    "gradients filtered": ("specgrad", "uniform"),
    "means removed, to duals": ("center-feddyn", "feddyn"),
    "means removed, to control variates": ("center-scaffold", "scaffold"),
    "gradients filtered, to duals": ("specgrad-feddyn", "feddyn"),
    "gradients filtered, to control variates": ("specgrad-scaffold", "scaffold"),
    "server momentum": ("fedcm", "uniform"),
    "duals": ("feddyn", "uniform"),
    "duals, to means removed": ("center-feddyn", "center"),
    "duals, to gradients filtered": ("specgrad-feddyn", "specgrad"),
    "control variates": ("scaffold", "uniform"),
    "control variates, to means removed": ("center-scaffold", "center"),
    "control variates, to gradients filtered": ("specgrad-scaffold", "specgrad"),
    "SAM": ("fedsam", "uniform"),
    "SAM, to server momentum": ("mofedsam", "fedcm"),
    "SAM, to control variates": ("fedgamma", "scaffold"),
    "one perturbation for all, to duals": ("fedsmoo", "feddyn"),
    "filtered SAM, to duals": ("fedfft-d", "feddyn"),
    "filtered SAM, to control variates": ("fedfft-s", "scaffold"),
    "the last global step as perturbation": ("fedlesam", "uniform"),
    "filter, to SAM": ("fedfft", "fedsam"),
    "the filter's norms alone, to SAM": ("fedsam-rescaled", "fedsam"),
    "means removed, to SAM": ("fedsam-center", "fedsam"),
}
"""The part -> the row with it and the row without it; everything else in the two is the same."""

Panels = dict[str, dict[str, Difference]]
_BEGIN, _END = "<!-- begin: made by make results -->\n", "<!-- end -->\n"


def _measured(panels: Panels) -> list[str]:
    """The parts that were measured in one of the problems, in the order of `PARTS`."""
    return [name for name in PARTS if any(name in found for found in panels.values())]


def parts_table(panels: Panels) -> str:
    """The differences as a Markdown table.

    Args:
        panels: title of a problem -> part -> the paired difference.
    """
    rows = [
        [name, f"`{PARTS[name][0]}` - `{PARTS[name][1]}`", *(gap_text(found.get(name)) for found in panels.values())]
        for name in _measured(panels)
    ]
    return markdown(["part", "rows", *panels], rows, left=2)


def with_table(page: str, table: str) -> str:
    """A page with a new table between its two marks.

    Args:
        page: its text.
        table: in Markdown.
    """
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"the page has no {_BEGIN.strip()} ... {_END.strip()}")
    return f"{before}{_BEGIN}\n{table}\n\n{_END}{after}"


def parts_figure(panels: Panels) -> str:
    """The differences with their intervals, a panel for each problem, as SVG.

    Args:
        panels: title of a problem -> part -> the paired difference.
    """
    names = _measured(panels)[::-1]
    with rc_context({"svg.hashsalt": "undrift", "font.size": 8}):
        drawn = Figure(figsize=(9, 0.8 + 0.22 * len(names)), layout="constrained")
        axes = drawn.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for part, (title, found) in zip(axes, panels.items(), strict=True):
            known = [(i, found[name]) for i, name in enumerate(names) if name in found]
            part.axvline(0, color="#777777", linewidth=0.8)
            for i, gap in known:
                low, high = (gap.mean, gap.mean) if gap.low is None or gap.high is None else (gap.low, gap.high)
                colour = "#1b9e77" if low > 0 else "#d95f02" if high < 0 else "#777777"
                part.plot([low, high], [i, i], color=colour, linewidth=1.5)
                part.plot(gap.mean, i, "o", color=colour, markersize=4)
            part.set_title(title, fontsize=8)
            part.set_yticks(range(len(names)), names)
        drawn.supxlabel("late accuracy with the part minus without it, points, paired 95 % intervals", fontsize=8)
        return svg(drawn)


def part_gaps() -> Panels:
    """What each part adds, in both settings of both tables; only with three seeds or more."""
    panels: Panels = {}
    for name, title in (("table-fashion", "Fashion-MNIST"), ("table-cifar", "CIFAR-10")):
        lines = read(name)
        for setting in ("label-0.1", "label-0.6"):
            gaps = {part: gap(lines, setting, *rows) for part, rows in PARTS.items()}
            known = {part: x for part, x in gaps.items() if x is not None and x.pairs > 2}
            panels[f"{title}, Dirichlet {setting.removeprefix('label-')}"] = known
    return panels
