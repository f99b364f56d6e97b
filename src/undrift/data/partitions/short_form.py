"""The short form of partitions, `dirichlet:0.1,balance=false`, which earlier versions wrote and shells need not quote.

It is read wherever a partition is, and it is what the identity of a run contains, so that runs recorded with it resume.
"""

import re
from collections.abc import Collection

from undrift.util.naming.calls import Call
from undrift.util.naming.references import Reference

_OVER = re.compile(r",\s*over\s*=")
_TEXTS = re.compile(r"\s*(file|column)\s*:(.*?)((?:,\s*\w+\s*=[^,]*)*)", re.DOTALL)  # their values may have blanks


def is_short(text: str, schemes: Collection[str]) -> bool:
    """Whether a text is in the short form.

    Args:
        text: the text.
        schemes: the names of the schemes, which no module of a reference has.

    Example:
        >>> [is_short(text, ["column", "iid"]) for text in ("column:site", "mine:split,a=1", "mine:split", "iid")]
        [True, True, False, False]
    """
    head = text.partition("(")[0]
    name, colon, _ = head.partition(":")
    return "," in head or bool(colon and (name.strip() in schemes or Reference.parse(head) is None))


def read_short(text: str, schemes: Collection[str]) -> Call:
    """The call that a text in the short form stands for.

    Args:
        text: `name[:value][,key=value...]`; everything after `over=` is the text of the inner scheme. A value is a
            number, true or false, or else a text, without quotes.
        schemes: the names of the schemes.

    Example:
        >>> str(read_short("longtail: 100, over=dirichlet:0.3,balance=false", ["longtail", "dirichlet"]))
        'longtail(100, over=dirichlet(0.3, balance=False))'
    """
    own, *inner = _OVER.split(text, maxsplit=1)
    given = _TEXTS.fullmatch(own)
    head, *settings = (f"{given[1]}{given[3]}" if given else own).split(",")
    head, named = "".join(head.split()), dict[str, object]()
    for setting in settings:
        key, equals, value = "".join(setting.split()).partition("=")
        if not equals:
            raise ValueError(f"{text!r}: {key!r} is not a setting; write key=value")
        if key in named:
            raise ValueError(f"{text!r}: {key} is named twice; name it once")
        named[key] = _scalar(value)
    if inner:
        named["over"] = read_short(inner[0], schemes)
    name, colon, value = head.partition(":")
    if name not in schemes and Reference.parse(head) is not None:
        return Call(head, (), named, text)
    positional = (given[2].strip(),) if given else (_scalar(value),) if colon else ()
    return Call(name, positional, named, text)


def _scalar(text: str) -> object:
    """A value written without quotes: a boolean or a number if it can be read as one, else a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def short_text(call: Call) -> str:
    """A call in the short form; the inner scheme `over` comes last and may have its own settings.

    Example:
        >>> short_text(Call("corrupt", (), {"over": Call("dirichlet", (0.1,)), "severity": 5}))
        'corrupt,severity=5,over=dirichlet:0.1'
    """
    own = [
        f"{key}={_short_value(value)}" for key, value in sorted(call.named.items(), key=lambda item: item[0] == "over")
    ]
    return ",".join([":".join([call.name, *map(_short_value, call.positional)]), *own])


def _short_value(value: object) -> str:
    if isinstance(value, Call):
        return short_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
