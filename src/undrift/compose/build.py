"""Methods from text: a name or a composition."""

from undrift import algorithms
from undrift.compose.grammar import composed, parse, with_arguments
from undrift.compose.presets import resolve
from undrift.core.method.algorithm import Algorithm


def make(method: str, *, preset: str | None = None, **arguments: object) -> Algorithm:
    """A method by its name, or from a composition.

    Args:
        method: a name from `undrift list`, or terms joined by "+" with their arguments: "scaffold + sam(rho=0.05)".
        preset: a paper whose values the arguments have that are not given; `undrift show NAME` lists them.
        arguments: the arguments of a name or a single term; the others have their defaults. A composition of several
            terms includes its arguments.

    Example:
        >>> make("fedsam", rho=0.05) == make("fedsam(0.05)") == make("fedavg + sam(0.05) + uniform")
        True
        >>> make("fedgloss", preset="fedfft").server_optimizer
        ServerSAM(rho=0.1, warmup=0, first=0.001)
    """
    if not composed(method):
        return algorithms.make(method, preset=preset, **arguments)
    if arguments and preset is not None:
        raise TypeError(f"make: with a preset a composition includes its arguments; write them into {method!r}")
    method = with_arguments(method, arguments)
    return parse(method if preset is None else resolve(preset, method, {}).method)
