"""Names that users type: compared without case, dashes and underscores, and suggested when they are unknown."""

from collections.abc import Iterable
from difflib import get_close_matches


def normalize_name(name: str) -> str:
    """A name in lower case without dashes and underscores, for comparison."""
    return name.replace("-", "").replace("_", "").lower()


def suggest(name: str, known: Iterable[str]) -> str:
    """Advice on an unknown name: the closest known name, or all names if none is close.

    Args:
        name: the unknown name.
        known: the known names.

    Example:
        >>> suggest("fed_proxx", ["fedavg", "fedprox"]), suggest("x", ["fedavg", "fedprox"])
        ("did you mean 'fedprox'?", 'known are fedavg, fedprox')
    """
    names = {normalize_name(other): other for other in known}
    matches = get_close_matches(normalize_name(name), names, n=1)
    if matches:
        return f"did you mean {names[matches[0]]!r}?"
    return f"known are {', '.join(names.values())}" if names else "there are none"


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """The refusal of an unknown name.

    Args:
        what: what has such names: "model".
        name: the unknown name.
        known: the known names.

    Example:
        >>> unknown_name("model", "cn", ["cnn", "lstm"])
        "no model is named 'cn'; did you mean 'cnn'?"
    """
    return f"no {what} is named {name!r}; {suggest(name, known)}"
