"""The parts of a report, in the order in which they are read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from undrift.observe.look import skipped_of
from undrift.report.draw.description import Figure, Table
from undrift.report.loaded import Material, from_here
from undrift.report.panels import geometry, heterogeneity, instruments, training
from undrift.report.panels.blocks import block_reports
from undrift.report.panels.overview import differences, setup
from undrift.report.panels.privacy import audits
from undrift.report.panels.schedule import timing
from undrift.report.panels.tables import curvature, reach, summary


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Args:
        key: its name in links.
        title: its heading.
        text: what it is about, in a sentence or two.
        tables: shown first.
        figures: shown below, one tab at a time.
        missing: the command that would measure what it lacks; empty if it has been run.
        reason: why the lens could not measure it, or a part of it; empty if it could, or has not tried.
    """

    key: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    missing: str = ""
    reason: str = ""

    @property
    def tabs(self) -> dict[str, list[Figure]]:
        """The figures by tab, in order."""
        out: dict[str, list[Figure]] = {}
        for figure in self.figures:
            out.setdefault(figure.tab, []).append(figure)
        return out


Figures = Callable[[Material], Iterator[Figure]]

_LENS: tuple[tuple[str, str, str, Figures, tuple[str, ...]], ...] = (
    (
        "spectrum",
        "Spectrum",
        "Clients' vectors as sequences, band by band: what do they share, and what sets them apart?",
        instruments.spectrum,
        ("spectrum",),
    ),
    ("layers", "Layers", "Where in the model clients pull apart.", instruments.divergence, ("divergence",)),
    (
        "heterogeneity",
        "Heterogeneity",
        "The quantities of convergence theory: the gradient of the mean loss, and the variance between and within "
        "clients, before and after a filter.",
        heterogeneity.over_rounds,
        ("heterogeneity",),
    ),
    (
        "alignment",
        "Alignment",
        "How alike clients' models see the same examples, by CKA.",
        instruments.alignment,
        ("alignment",),
    ),
    (
        "landscape",
        "Landscape",
        "How sharp the minimum is that each method found.",
        geometry.landscape,
        ("curvature", "surface"),
    ),
    ("plane", "Plane", "Clients and examples on a plane.", geometry.plane, ("embedding", "joint", "views")),
)
"""Key, title, text, figures and the parts of the lens that they need."""


def sections(material: Material) -> list[Section]:
    """All parts that have something to show, or a command that would produce it."""
    learning = tuple(training.learning(material))
    split, clients = tuple(training.partitions(material)), tuple(training.fairness(material))
    reported, gaps = tuple(block_reports(material)), tuple(differences(material))
    parts = [
        Section("summary", "Summary", _facts(material), (summary(material), setup(material)), gaps),
        Section("curves", "Learning curves", "How fast each method learns, by what it costs.", (), learning),
        Section("target", "Rounds to a target", "What it takes to be good enough.", (reach(material),)),
        Section("partition", "Who has what", "How examples are split over clients, for all methods alike.", (), split),
        Section("clients", "Clients", "A mean hides whom a model fails: here is every client.", (), clients),
        Section(
            "schedule", "Schedule", "When clients trained, and whose work the model has.", (), tuple(timing(material))
        ),
        Section("privacy", "Privacy", "What audits could find out about clients and examples.", audits(material)),
        Section("blocks", "Blocks", "What the parts of each method did in every round.", (), reported),
        *(_lens_section(material, *section) for section in _LENS),
    ]
    return _distinct([part for part in parts if part.tables or part.figures or part.missing or part.reason])


def _lens_section(
    material: Material, key: str, title: str, text: str, draw: Figures, parts: tuple[str, ...]
) -> Section:
    """A part made of lens measurements, or the command that would take them, or why the lens could not."""
    figures = tuple(draw(material))
    tables = {"landscape": curvature, "heterogeneity": heterogeneity.table}
    table = tables[key](material) if key in tables else None
    looks = [look for run in material.runs for look in (run.lens, *run.looks) if look]
    skips = [(name, why) for look in looks for name, why in look.get("skipped", {}).items()]
    reasons = dict.fromkeys(why for name, why in skips if any(skipped_of(part, name) for part in parts))
    tried = bool(reasons) or any(look.get(part) for look in looks for part in parts)
    command = "" if tried else lens_command(material)
    return Section(key, title, text, (table,) if table else (), figures, command, "; ".join(reasons))


def lens_command(material: Material) -> str:
    """What measures the first run of each method, from the current directory."""
    folders = [from_here(group.runs[0].folder) for group in material.groups]
    if len(folders) == 1:
        return f"undrift lens {folders[0]}"
    return f'for run in {" ".join(folders)}; do undrift lens "$run"; done'


def _facts(material: Material) -> str:
    """What was compared, in a sentence."""
    runs = material.runs
    seeds = len({run.config.seed for run in runs})
    data = ", ".join(dict.fromkeys(run.config.subject for run in runs))
    models = ", ".join(dict.fromkeys(run.config.model for run in runs if run.config.model))
    return (
        f"{_count(len(material.labels), 'method')}, {_count(len(material.settings), 'setting')}, "
        f"{_count(seeds, 'seed')}: {_count(len(runs), 'run')} on {data}" + (f" with {models}." if models else ".")
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _distinct(parts: Sequence[Section]) -> list[Section]:
    """Give every figure a file name of its own."""
    seen: dict[str, int] = {}
    out = []
    for part in parts:
        figures = []
        for figure in part.figures:
            seen[figure.name] = seen.get(figure.name, 0) + 1
            count = seen[figure.name]
            figures.append(figure if count == 1 else replace(figure, name=f"{figure.name}-{count}"))
        out.append(replace(part, figures=tuple(figures)))
    return out
