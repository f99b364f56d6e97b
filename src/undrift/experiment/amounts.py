"""Keys of run files whose values may differ between clients and rounds: see `undrift.core.work`."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from undrift.core.participation import pinned
from undrift.core.work import checked, portable

WorkAmount: TypeAlias = int | float | str | tuple[int | float, ...]
"""An amount as a run file contains it."""

Availability: TypeAlias = Annotated[str, AfterValidator(pinned)]
"""A trace by its file, whose hash is added, or by reference."""

Sampling: TypeAlias = Literal["uniform", "examples"] | tuple[float, ...]
"""How a cohort is drawn."""


def amount_of(name: str, most: float, *, whole: bool = False) -> BeforeValidator:
    """Validates an amount; None stays None, and a function becomes its reference.

    Args:
        name: the key, for errors.
        most: the largest number allowed.
        whole: whether only whole numbers are allowed.
    """

    def validate(value: Any) -> Any:
        if value is None:
            return None
        found = portable(name, checked(name, value, whole=whole))
        numbers = found if isinstance(found, tuple) else () if isinstance(found, str) else (found,)
        if any(x > most for x in numbers):
            raise ValueError(f"{name} must be at most {most:g}, got {max(numbers):g}")
        return found

    return BeforeValidator(validate)
