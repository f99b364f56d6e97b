"""The page: one self-contained HTML file that makes no request and runs no script but its own."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from undrift.algorithms import listed
from undrift.compose.cards import Card, card, family
from undrift.core.method.algorithm import cost
from undrift.report.draw.description import Table, style
from undrift.report.draw.plotly_figures import plotly
from undrift.report.kinds import command_for
from undrift.report.loaded import LoadedRun, Material, ReportError
from undrift.report.sections import Section, sections
from undrift.runs.settings.config import Config
from undrift.util.storage.files import write
from undrift.util.version import __version__

SHORT = 16  # digits shown of a hash


@dataclass(frozen=True)
class Method:
    """A method of the report: its label, colour and card, and the arguments that were set."""

    label: str
    colour: str
    card: Card
    arguments: dict[str, Any]


def write_page(material: Material, path: Path, parts: Sequence[Section] | None = None) -> Path:
    """Write the report of runs to a file.

    Args:
        material: the result of `collect`.
        path: the HTML file.
        parts: the result of `sections(material)`, if it is known already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, render(material, parts), mode=page_mode(path))
    return path


def page_mode(path: Path) -> int:
    """The permissions of a page before the umask: in the folder of a run or a comparison it is for its owner only.

    Args:
        path: the HTML file.
    """
    return 0o600 if any((path.parent / name).exists() for name in ("audit.jsonl", "table.json")) else 0o666


def render(material: Material, parts: Sequence[Section] | None = None) -> str:
    """The whole report as HTML."""
    try:
        import jinja2  # noqa: F401  `fill` needs it: a missing library is named before the figures are drawn
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReportError(f"a report needs {error.name}: pip install 'undrift[report]'") from None

    shown = sections(material) if parts is None else parts
    unmeasured: dict[tuple[str, str], list[str]] = {}
    for part in shown:
        if not part.tables and not part.figures:
            unmeasured.setdefault((part.reason, part.missing), []).append(part.title)
    return fill(
        "page.html.j2",
        material.title,
        [get_plotlyjs(), asset("common.js") + asset("page.js")],
        {"plotly": plotly, "made": partial(command_for, material)},
        material=material,
        sections=[part for part in shown if part.tables or part.figures],
        unmeasured=unmeasured.items(),
        methods=methods(material),
        runs=_runs(material.runs),
        environments=_environments(material.runs),
        configs=_configs(material),
    )


def fill(
    template: str,
    title: str,
    scripts: Sequence[str],
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **values: Any,
) -> str:
    """A page from a template of this package; it runs the given scripts and no others.

    Args:
        template: the name of the template.
        title: of the page.
        scripts: their texts.
        filters: functions for the template.
        **values: for the template.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise ReportError(f"a report needs {error.name}: pip install 'undrift[report]'") from None

    closed = [_escape_script(script) for script in scripts]
    made = Environment(
        loader=FunctionLoader(lambda name: asset(name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({"halves": _halves, **(filters or {})})
    return made.get_template(template).render(
        title=title,
        style=asset("page.css"),
        scripts=closed,
        hashes=" ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in closed),
        version=__version__,
        **values,
    )


def methods(material: Material) -> list[Method]:
    """The methods with their cards; settings share them, so the first one's arguments are shown."""
    first = {group.label: group for group in reversed(material.groups)}
    return [
        Method(label, style(first[label].style).colour, _card(config), dict(config.arguments))
        for label in material.labels
        for config in [first[label].runs[0].config]
    ]


def _card(config: Config) -> Card:
    """The card of a method; for a composition, one with its blocks and cost only."""
    if (name := listed(config.method)) is not None:
        return card(name)
    algorithm = config.algorithm()
    title = "A composition of blocks."
    return Card(config.method, family(algorithm), title, "", "", config.method, (), cost(algorithm), (), "", ())


def _configs(material: Material) -> list[tuple[str, str]]:
    """Name and settings of the runs that have no recipe of their own."""
    shown = {recipe.name for recipe in material.recipes}
    return [(run.name, run.config.toml()) for run in material.runs if run.name not in shown]


def _runs(runs: Sequence[LoadedRun]) -> Table:
    """Every run with its hashes, which show whether another run is bit-identical."""
    rows = []
    for run in runs:
        summary = {} if run.later else run.read("summary.json") or {}
        split = run.read("partition.json") or {}
        hashes = [str(record.get("sha256", "-"))[:SHORT] for record in (split, summary)]
        rows.append([run.name, run.label, str(run.config.seed), str(len(run.rows)), *hashes])
    headings = ["run", "method", "seed", "rounds", "sha256 of the partition", "sha256 of the final state"]
    reading = "A run made again is the same if its hashes are, given the same torch, kind of device and threads."
    return Table(headings, rows, reading, keys=2)


def _environments(runs: Sequence[LoadedRun]) -> list[tuple[list[str], dict[str, str]]]:
    """The distinct environments of the runs, each with the names of its runs."""
    kinds: dict[str, tuple[list[str], dict[str, str]]] = {}
    for run in runs:
        environment = {str(name): str(value) for name, value in (run.read("environment.json") or {}).items()}
        kinds.setdefault(str(sorted(environment.items())), ([], environment))[0].append(run.name)
    return [(names, environment) for names, environment in kinds.values() if environment]


def _halves(cell: str) -> list[str]:
    """A number and its deviation, interval or count, which is set below it so that tables are narrow.

    Example:
        >>> _halves("60.17 ± 9.45"), _halves("9.0 (1/2)"), _halves("1.00x")
        (['60.17', '± 9.45'], ['9.0', '(1/2)'], ['1.00x', ''])
    """
    return [*re.split(r" (?=[±[(])", cell, maxsplit=1), ""][:2]


def asset(name: str) -> str:
    """The text of a file of this package: a template, style or script."""
    return (files("undrift.report") / name).read_text(encoding="utf-8")


def _escape_script(script: str) -> str:
    """A script that cannot end its element early; line ends as a browser hashes them."""
    return script.replace("</script", "<\\/script").replace("\r\n", "\n").replace("\r", "\n")
