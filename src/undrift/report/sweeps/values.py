"""The value of a run at a name: a setting, an argument of its method, or an attribute of one of its blocks."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from undrift.algorithms import ALGORITHMS, listed
from undrift.report.loaded import LoadedRun, ReportError
from undrift.runs.settings.config import Config
from undrift.studies.grid import flatten, value_name
from undrift.util.naming.names import suggest

ARGUMENTS = "arguments."  # names below it are arguments of the method only


@dataclass(frozen=True)
class Found:
    """A value, and the method apart from it: equal for runs that are points of one line.

    Args:
        value: a number or a text; None if the run has no such value.
        method: the method and its other arguments.
    """

    value: Any
    method: str


def values(runs: Sequence[LoadedRun], name: str) -> list[Found]:
    """What each run has at a name, looked up in its settings, then its method's arguments, then its blocks.

    Args:
        runs: the runs; at least one must have the value.
        name: a path of the settings (`local.epochs`), an argument (`rho`), or an attribute of a block, with its slot if
            several blocks have one (`perturbation.rho`).
    """
    found = [_look_up(run, name) for run in runs]
    if all(one.value is None for one in found):
        known = dict.fromkeys(path for run in runs for path in _names(run.config))
        raise ReportError(f"no run has a value named {name!r}; {suggest(name, known)}")
    return found


def _look_up(run: LoadedRun, name: str) -> Found:
    config, arguments = run.config, _arguments(run.config)
    settings = dict(flatten(config.model_dump(exclude={"arguments"})))
    if name in settings:
        return Found(settings[name], _method(config, arguments))
    given = name.removeprefix(ARGUMENTS)
    if given in arguments:
        others = {key: value for key, value in arguments.items() if key != given}
        return Found(_axis_value(arguments[given]), _method(config, others))
    attributes = dict(_attributes(config))
    paths = [name] if name in attributes else [path for path in attributes if _matches(path, name)]
    if len(paths) > 1:
        raise ReportError(
            f"{run.name}: {' and '.join(paths)} are all named {name}; choose one, for example --over {paths[0]}"
        )
    if not paths:
        return Found(None, _method(config, arguments))
    value = attributes.pop(paths[0])
    return Found(_axis_value(value), repr(attributes))


def _arguments(config: Config) -> dict[str, Any]:
    """The arguments of a named method, defaults included; a composition has none."""
    if (name := listed(config.method)) is None:
        return {}
    parameters = inspect.signature(ALGORITHMS[name]).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return {**defaults, **config.arguments}


def _method(config: Config, arguments: Mapping[str, Any]) -> str:
    return f"{config.method}{sorted(arguments.items())}"


def _attributes(config: Config) -> Iterator[tuple[str, Any]]:
    """Paths and values of the settings of all blocks: `spectral.gradient.r`; a block itself is its class's name."""
    for slot, block in config.algorithm().slots():
        yield from _fields(slot, block)


def _fields(path: str, block: Any) -> Iterator[tuple[str, Any]]:
    yield path, type(block).__name__
    for field in fields(block):
        value = getattr(block, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from _fields(f"{path}.{field.name}", value)
        else:
            yield f"{path}.{field.name}", value


def _matches(path: str, name: str) -> bool:
    """Whether a name means a path: its last part, or its slot and its last part."""
    first, _, last = name.rpartition(".")
    return path.endswith(f".{last}") and (not first or path.startswith(f"{first}."))


def _names(config: Config) -> Iterator[str]:
    """Every name that has a value in a run."""
    yield from (path for path, _ in flatten(config.model_dump(exclude={"arguments", "engine", "output"})))
    yield from _arguments(config)
    yield from (path for path, _ in _attributes(config))


def _axis_value(value: Any) -> Any:
    """A value that an axis can show: numbers and texts as they are, all others as a text."""
    return value if value is None or isinstance(value, int | float | str) else str(value)


def without_value(label: str, name: str, value: Any) -> str:
    """A label without the value of a name, if it contains it.

    Example:
        >>> without_value("fedsam-rho-0.05", "rho", 0.05), without_value("fedfsa(larger=0.2, count=2)", "larger", 0.2)
        ('fedsam', 'fedfsa(count=2)')
        >>> without_value("sam-0.1", "rho", 0.1), without_value("feddyn + sam(rho=0.05)", "rho", 0.05)
        ('sam', 'feddyn + sam')
    """
    last = re.escape(name.rpartition(".")[2])
    text = "|".join(re.escape(x) for x in dict.fromkeys((str(value), value_name(value))))
    end = r"(?![\w.])"
    short = re.sub(rf"[-_ ,]*(?<![A-Za-z]){last}[-_ =:]*(?:{text}){end}", "", label, count=1)
    if short == label:
        short = re.sub(rf"(?:[-_]|(?<=\())(?:{text}){end}", "", label, count=1)
    return short.replace("(, ", "(").replace("()", "").strip("-_ ") or label
