"""Names of corruptions, one or several in a text, and which images they can be applied to."""

from undrift.data.distortion.kinds import KINDS, STANDARD
from undrift.util.naming.names import suggest

GROUPS = {"standard": STANDARD, "all": tuple(KINDS)}
"""Names for several types."""

ALIASES = {"elastic-transform": "elastic", "jpeg-compression": "jpeg"}
"""CIFAR-C's file names that differ from ours in more than a dash."""

SMALLEST = 8
"""The fewest rows and columns of an image; the constants are for 32 x 32."""


def kind_name(name: str) -> str:
    """The name of a corruption in `KINDS`; CIFAR-C's file names, as "jpeg_compression", are understood.

    Example:
        >>> kind_name("jpeg_compression"), kind_name("shot_noise")
        ('jpeg', 'shot-noise')
    """
    plain = name.replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain == "frost":
        raise ValueError(
            "corrupt: frost needs photographs of ice, which are not included; "
            f"choose from the other types: {', '.join(KINDS)}"
        )
    if plain not in KINDS:
        raise ValueError(f"corrupt: no corruption is named {name!r}; {suggest(plain, KINDS)}")
    return plain


def parse_kinds(text: str) -> tuple[str, ...]:
    """The types that a text names: "standard", "all", or names joined by "+"; in the order of `KINDS`.

    Example:
        >>> parse_kinds("snow+shot-noise")
        ('shot-noise', 'snow')
    """
    named = {kind for name in text.split("+") for kind in GROUPS.get(name) or (kind_name(name),)}
    return tuple(kind for kind in KINDS if kind in named)


def kinds_text(kinds: tuple[str, ...]) -> str:
    """The shortest text that names these types, for `parse_kinds`.

    Example:
        >>> kinds_text(STANDARD), kinds_text(("snow", "fog"))
        ('standard', 'snow+fog')
    """
    return next((name for name, group in GROUPS.items() if group == kinds), "+".join(kinds))


def check_images(kinds: tuple[str, ...], shape: tuple[int, ...]) -> None:
    """Raise if one of the types cannot be applied to images of a shape: (channels, rows, columns)."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"corrupt: images must have 1 or 3 channels, rows and columns, got the shape {shape}")
    if min(shape[1:]) < SMALLEST:
        raise ValueError(
            f"corrupt: images must have at least {SMALLEST} rows and columns, because the corruptions are made for "
            f"32 x 32, got {shape[1]} x {shape[2]}; scale the images up first"
        )
    if shape[0] == 1 and "saturate" in kinds:
        others = kinds_text(tuple(kind for kind in kinds if kind != "saturate")) or "standard"
        raise ValueError(
            f"corrupt: saturate changes colours, but these images are grey; name the others: types={others}"
        )
