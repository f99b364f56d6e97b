"""Where a run's model starts: the settings `init` and `frozen`."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator
from torch import nn

from undrift.core.model.modules import plain_state
from undrift.models import Started, fit, hash_weights, read_weights
from undrift.models.start import find_weights
from undrift.runs.settings.named_arguments import parts
from undrift.util.steps import tell

_MATCHES = ("all", "shapes")


def canonical_init(value: object) -> object:
    """`init` as one text: a source, followed by "(match='shapes')" if only tensors that fit are taken.

    Args:
        value: a text, or a table with the keys `name` and `match`.

    Example:
        >>> canonical_init("w.safetensors"), canonical_init({"name": "w.safetensors", "match": "shapes"})
        ('w.safetensors', "w.safetensors(match='shapes')")
    """
    if not isinstance(value, str | Mapping):
        return value
    table: Mapping[str, Any] = {"name": value} if isinstance(value, str) else value
    if not isinstance(table.get("name"), str) or not table["name"].strip():
        raise ValueError('init: write a file, a run or a reference: init = "weights.safetensors"')
    source, given = parts(table["name"])
    given |= {key: item for key, item in table.items() if key != "name"}
    if unknown := sorted(given.keys() - {"match"}):
        raise ValueError(f"init: unknown argument {unknown[0]!r}; known is match")
    if (match := given.get("match", "all")) not in _MATCHES:
        raise ValueError(f'init: match must be "all" or "shapes", got {match!r}')
    return source if match == "all" else f"{source}(match={match!r})"


def canonical_names(value: object) -> object:
    """Name patterns in alphabetical order, each once; a text is one pattern."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return tuple(sorted(set(names)))
    raise ValueError(f'frozen: write name patterns of parameters: frozen = ["features.*"], got {str(value)[:80]!r}')


Init = Annotated[str | None, BeforeValidator(canonical_init)]
"""Where the weights come from; None draws them from the seed."""

Frozen = Annotated[tuple[str, ...], BeforeValidator(canonical_names)]
"""Name patterns of parameters that do not train."""


def check_init(init: str | None) -> None:
    """Raise if there is no such file, before anything is loaded."""
    if init is None:
        return
    try:
        find_weights(parts(init)[0])
    except ValueError as error:
        raise ValueError(f"init: {error}") from None


def with_initial_weights(
    make: Callable[[], nn.Module], init: str | None, frozen: tuple[str, ...] = (), seed: int = 0
) -> Callable[[], nn.Module]:
    """A `make` whose models start from the weights of a run's settings, with its frozen parameters.

    Args:
        make: builds the model with weights from the seed.
        init: as in a run's settings.
        frozen: as in a run's settings.
        seed: of the run, for a reference to a function of the model.
    """
    if init is None:
        return Started(make, frozen=frozen) if frozen else make
    source, given = parts(init)
    tell("reading %s", source)
    try:
        weights, match = read_weights(source, make, seed), given.get("match", "all")
        fit(make(), weights, match)
    except ValueError as error:
        raise ValueError(f"init: {error}") from None
    return Started(make, weights, match, frozen)


def describe_init(make: object, init: str | None) -> dict[str, Any] | None:
    """What a run records about its initial weights; None if they come from the seed.

    `left` has the model's tensors that were not in the weights, `unused` the tensors that the model does not have.

    Args:
        make: the `make` of the run's task.
        init: the run's setting.
    """
    if not isinstance(make, Started) or make.weights is None:
        return None
    module = make.make()
    taken = fit(module, make.weights, make.match)
    own = plain_state(module)
    return {
        "init": init,
        "sha256": hash_weights(make.weights),
        "taken": len(taken),
        "tensors": len(own),
        "left": [name for name in own if name not in taken],
        "unused": sorted(make.weights.keys() - set(taken)),
    }
