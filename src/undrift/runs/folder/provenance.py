"""What a run uses from outside the package: code by reference or of plug-ins, data of one's own, a partition's file.

references.json in the folder of a run has each with its SHA-256. A run is not continued if one no longer imports or has
changed. Of code the file counts that defines the object, not what that file imports.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from undrift.algorithms import ALGORITHMS, METHODS
from undrift.compose.terms import BLOCKS, keys, parts, read_composition
from undrift.core.local.settings import AMOUNTS
from undrift.core.tasks.durations import DeviceFiles, read_durations
from undrift.data.files.known import PLUGINS as DATA
from undrift.data.files.known import SOURCES
from undrift.data.partitions.draw import parse
from undrift.data.partitions.from_lists import FromFile, FromFunction
from undrift.models import MODELS
from undrift.models import PLUGINS as MODEL_PLUGINS
from undrift.runs.folder.files import RunError, as_json, read_json, reading
from undrift.runs.settings.config import Config
from undrift.runs.settings.named_arguments import parts as named
from undrift.util.naming.calls import read_terms
from undrift.util.naming.names import normalize_name
from undrift.util.naming.plugins import PluginGroup
from undrift.util.naming.references import Reference, changes
from undrift.util.storage.files import write

FILE = "references.json"


class Recorded(NamedTuple):
    """Something that a setting names.

    Args:
        setting: the setting, such as "model".
        text: a reference, the path of a file, or the name of data.
        sha256: of the file that defines the code, of the file, or of the data; None if there is none.
        kind: what it is.
    """

    setting: str
    text: str
    sha256: str | None
    kind: Literal["code", "file", "data"]


def code_records(setting: str, value: object) -> list[Recorded]:
    """The record of code; none for ours, and for what cannot be imported by name.

    Args:
        setting: what names it.
        value: a reference, or the class or function itself.
    """
    reference = Reference.parse(value) if isinstance(value, str) else None
    found = value if reference is None else reference.resolve()
    defined = Reference.parse(f"{getattr(found, '__module__', '')}:{getattr(found, '__qualname__', '')}")
    if defined is not None and not _resolves_to(defined, found):
        defined = None
    own = [one for one in (reference, defined) if one is not None and one.module.partition(".")[0] != "undrift"]
    return [Recorded(setting, str(one), one.sha256(), "code") for one in dict.fromkeys(own)]


def file_record(setting: str, path: str | Path) -> Recorded:
    """The record of a file."""
    return Recorded(setting, str(path), _hash(Path(path)), "file")


def find_references(config: Config, dataset: Any = None) -> list[Recorded]:
    """What a run uses from outside the package.

    Args:
        config: the settings, with a model.
        dataset: the data, if they are loaded; its `sha256` is recorded for data of one's own.
    """
    found: list[Recorded] = []
    for term in read_composition(config.method):
        if term.reference is not None:
            found += code_records("method", term.name)
        elif normalize_name(term.name) not in keys((*ALGORITHMS, *parts())):
            found += _plugin_records("method", METHODS, term.name) or _plugin_records("method", BLOCKS, term.name)
    for _, block in config.algorithm().slots():
        found += code_records("method", type(block))
    model, data = named(config.model or "")[0], named(config.data)[0]
    if model and model not in MODELS:
        found += _plugin_records("model", MODEL_PLUGINS, model) or code_records("model", model)
    if data not in SOURCES:
        found += _plugin_records("data", DATA, data) or (code_records("data", data) if Reference.parse(data) else [])
        if digest := str(getattr(dataset, "sha256", "")):
            found.append(Recorded("data", data, digest, "data"))
    found += [file_record(setting, path) for setting, path in _files_of(config)]
    for setting, name in _names_of(config):
        if Reference.parse(name) is not None:
            found += code_records(setting, name)
    return list(dict.fromkeys(found))


def _files_of(config: Config) -> Iterator[tuple[str, str]]:
    """Settings that name a file, each with its path."""
    if isinstance(own := parse(config.partition).inner, FromFile):
        yield "partition", own.path
    if (config.availability or "").startswith("file:"):
        yield "availability", str(config.availability).removeprefix("file:").partition("#")[0]
    if config.durations is not None and isinstance(devices := read_durations(config.durations), DeviceFiles):
        yield from (("durations", path) for path in devices.paths)


def _names_of(config: Config) -> Iterator[tuple[str, str]]:
    """Settings that may have a reference, besides method, model and data, each with a name in it."""
    if isinstance(own := parse(config.partition).inner, FromFunction):
        yield "partition", own.reference
    texts = [("loss", named(config.loss or "")[0]), ("availability", config.availability)]
    texts += [("durations", config.durations)] if isinstance(config.durations, str) else []
    texts += [("task", named(config.task or "")[0]), *(("metrics", named(name)[0]) for name in config.metrics or ())]
    texts += [(f"local.{name}", getattr(config.local, name)) for name in AMOUNTS]
    for name in ("schedule", "step_schedule"):
        text = getattr(config.local, name)
        texts += [(f"local.{name}", term.name) for term in (read_terms(text) if text else ())]
    yield from ((setting, value) for setting, value in texts if isinstance(value, str))


def keep_references(folder: Path, found: Iterable[Recorded]) -> None:
    """Write what a run uses into its folder, or compare it with what the folder has; raises `RunError` if it differs.

    Args:
        folder: the run's folder.
        found: of `find_references`, and of other settings as `code_records` and `file_record` return them.
    """
    new = list(found)
    if not (folder / FILE).is_file():
        if new:
            write(folder / FILE, as_json([one._asdict() for one in new]), follow=False)
        return
    same_references(folder, new)


def same_references(folder: Path, found: Iterable[Recorded]) -> None:
    """Raise a `RunError` if a run has used something else under the same name.

    Args:
        folder: the run's folder.
        found: as for `keep_references`.
    """
    before = {(one.setting, one.text, one.kind): one.sha256 for one in _read(folder)}
    for one in found:
        if one.sha256 != before.get((one.setting, one.text, one.kind), one.sha256):
            _refuse(folder, one, f"{one.text}: it has changed")


def check_references(folder: Path) -> None:
    """Raise a `RunError` if code or files that a run uses no longer import, are missing or have changed.

    Args:
        folder: the run's folder.
    """
    for one in _read(folder):
        if one.kind == "code":
            for change in changes({one.text: one.sha256}):
                _refuse(folder, one, change)
        elif one.kind == "file" and one.sha256 != _hash(Path(one.text)):
            _refuse(folder, one, f"{one.text}: the file has changed or is missing")


def _refuse(folder: Path, one: Recorded, why: str) -> None:
    raise RunError(f"{folder}: {one.setting}: {why}; restore it or start a new run")


def _read(folder: Path) -> list[Recorded]:
    """What is recorded in a folder."""
    with reading(folder / FILE):
        return [Recorded(**one) for one in read_json(folder / FILE) or ()]


def _plugin_records(setting: str, group: PluginGroup, name: str) -> list[Recorded]:
    """The record of a plug-in with a name; empty if there is none."""
    plugin = group.find(name)
    return [] if plugin is None else code_records(setting, plugin.value)


def _resolves_to(reference: Reference, value: object) -> bool:
    """Whether a reference resolves to a value."""
    try:
        return reference.module != "__main__" and reference.resolve() is value
    except ValueError:
        return False


def _hash(path: Path) -> str | None:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else None
