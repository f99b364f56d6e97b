"""Names that users write: compared without regard to spelling habits, and suggested when they are unknown."""

from collections.abc import Iterable
from difflib import get_close_matches


def normalized(name: str) -> str:
    """A name without dashes, underscores and capitals, by which names are compared."""
    return name.replace("-", "").replace("_", "").lower()


def suggest(name: str, known: Iterable[str]) -> str:
    """What to say about an unknown name: the nearest known one, or all of them if none is near.

    Args:
        name: what was written.
        known: the names there are.

    Example:
        >>> suggest("fed_proxx", ["fedavg", "fedprox"]), suggest("x", ["fedavg", "fedprox"])
        ("did you mean 'fedprox'?", 'known are fedavg, fedprox')
    """
    names = {normalized(other): other for other in known}
    matches = get_close_matches(normalized(name), names, n=1)
    if matches:
        return f"did you mean {names[matches[0]]!r}?"
    return f"known are {', '.join(names.values())}" if names else "there are none"
