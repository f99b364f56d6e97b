"""Names with arguments: how a run file names its model and its data.

A name is one of ours, a plug-in's or a reference such as `mypackage.nets:Net`. It is written alone, with arguments in
parentheses, or as a table with the key `name`. All become one text, `name(key=value, ...)` with sorted keys, or the
name alone, so that equal settings have equal texts and identities.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from os.path import exists
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from undrift.data.loader import argument_types
from undrift.models import arguments as model_arguments
from undrift.util.naming.binding import check_arguments, check_literals
from undrift.util.naming.calls import LONGEST, Call, read_arguments


def parts(text: str) -> tuple[str, dict[str, Any]]:
    """The name in a text, which may be a path, and its arguments.

    Example:
        >>> parts("vit-tiny(patch=16)"), parts("cnn")
        (('vit-tiny', {'patch': 16}), ('cnn', {}))
    """
    if len(text) > LONGEST:
        raise ValueError(f"a name with its arguments has at most {LONGEST} characters, got {len(text)}")
    text = text.strip()
    starts = [place for place, sign in enumerate(text) if sign == "("] if text.endswith(")") else []
    if not starts or exists(text):  # a folder may be named "images (copy)"
        return text, {}
    start, call = _arguments(text, starts)
    if call.positional:
        raise ValueError(f"{text!r}: name its arguments, for example vit-tiny(patch=16)")
    return text[:start].strip(), dict(call.named)


def _arguments(text: str, starts: Sequence[int]) -> tuple[int, Call]:
    """The arguments at the end of a text and where they begin: at the first place from which they can be read."""
    problems = []
    for start in starts:
        try:
            call = read_arguments(text[start:], text)
            check_literals(call)
            return start, call
        except ValueError as error:
            problems.append(error)
    raise problems[0]


def named_text(value: str | Mapping[str, Any], example: str) -> tuple[str, dict[str, Any]]:
    """The name and the sorted arguments of a text, or of a table with the key `name`, which override the text's.

    Args:
        value: the text or the table.
        example: what to write, for the error.
    """
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table.get("name"), str):
        raise ValueError(f"write name = {example}")
    name, given = parts(table["name"])
    return name, dict(sorted((given | {key: item for key, item in table.items() if key != "name"}).items()))


def names_owner(data: object) -> bool:
    """Whether data are files with a column of owners that their argument `owner` names.

    Args:
        data: the setting, a text or a table.

    Example:
        >>> names_owner("patients.csv(target='outcome', owner='hospital')"), names_owner("patients.csv")
        (True, False)
    """
    if not isinstance(data, str | Mapping):
        return False
    with suppress(ValueError):  # refused where it is read
        name, given = named_text(data, _EXAMPLES["data"])
        return ":" not in name and bool(given.get("owner"))
    return False


def canonical(value: object, info: ValidationInfo) -> object:
    """A model or data set as one text, with its arguments checked; what is neither a text nor a table is returned.

    Args:
        value: a name, a text with arguments, or a table with the key `name` and arguments, which override those of
            the text in `name`.
        info: has the name of the setting, "model" or "data".
    """
    if not isinstance(value, str | Mapping):
        return value
    setting = str(info.field_name)
    try:
        name, given = named_text(value, f"{_EXAMPLES[setting]} beside the arguments, or give --{setting}")
        if not given:
            return name
        check_arguments(repr(name), _KNOWN[setting](name), given)
        given = {key: _plain(item) for key, item in given.items()}
        if any(isinstance(item, float) and not isfinite(item) for item in given.values()):
            raise ValueError(f"{name!r} takes finite numbers, got {given}")
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from None
    return str(Call(name, (), given))


def check_name(setting: str, text: str) -> None:
    """Raise if a model or data set is unknown.

    Args:
        setting: "model" or "data".
        text: its name, with or without arguments.
    """
    try:
        _KNOWN[setting](parts(text)[0])
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from None


def _plain(value: object) -> object:
    """A value of a TOML file as an argument: a list becomes a tuple."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, bool | int | float | str | None):
        return value
    raise ValueError(f"arguments are numbers, texts, true, false or lists of them, got {value!r:.80}")


_KNOWN: dict[str, Callable[[str], dict[str, Any]]] = {"model": model_arguments, "data": argument_types}
_EXAMPLES = {"model": '"vit-tiny"', "data": '"cifar10"'}

Named = Annotated[str, BeforeValidator(canonical)]
"""A name, with its arguments if it has any, as one text."""

NamedOrNone = Annotated[str | None, BeforeValidator(canonical)]
"""The same; None stands for a default."""
