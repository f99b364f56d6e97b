"""References: `package.module:object` wherever a name is taken, so that people's own code can be used by name.

The working folder is searched as well as the installed packages. A reference has the SHA-256 of the file that defines
its module: a run records it, and a run whose code has changed is not resumed in silence.
"""

import importlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from undrift.util.naming.names import suggest

_FORM = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


@dataclass(frozen=True)
class Reference:
    """An object in a module.

    Args:
        module: the module's full name.
        name: the object's name in it, with dots for what lies inside a class.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Reference | None":
        """The reference in a text; None if it does not have the form `package.module:object`.

        Example:
            >>> Reference.parse("mypackage.nets:Net"), Reference.parse("cifar10"), Reference.parse("dirichlet:0.1")
            (Reference(module='mypackage.nets', name='Net'), None, None)
        """
        match = _FORM.fullmatch(text.strip())
        return None if match is None else cls(match[1], match[2])

    def resolve(self) -> Any:
        """The object; raises a `ValueError` that names what is missing."""
        value: Any = _import_module(self)
        for part in self.name.split("."):
            try:
                value = getattr(value, part)
            except AttributeError:
                known = getattr(value, "__dict__", {})  # a number has none
                advice = suggest(part, [name for name in known if not name.startswith("_")])
                raise ValueError(f"{self}: {_describe(value)} has no {part!r}; {advice}") from None
        return value

    def sha256(self) -> str | None:
        """The hash of the file that defines the module; None if it has none, as built-in modules."""
        file = getattr(_import_module(self), "__file__", None)
        if file is None:
            return None
        if not Path(file).is_file():
            raise ValueError(f"{self}: its file {Path(file).name} is gone; put it back")
        return sha256(Path(file).read_bytes()).hexdigest()


def _import_module(reference: Reference) -> Any:
    """The module of a reference, from the working folder or the installed packages."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(reference.module)
    except ModuleNotFoundError as error:
        missing = error.name or reference.module
        own = f"{reference.module}.".startswith(f"{missing}.")
        what = f"no module is named {missing!r}" if own else f"{reference.module} needs {missing!r}, which is missing"
        raise ValueError(f"{reference}: {what}; install it, or start in the folder that contains it") from None
    except Exception as error:
        raise ValueError(f"{reference}: importing it failed with {type(error).__name__}: {error}") from error


def _describe(value: Any) -> str:
    """What to call a module or a class in an error."""
    return f"module {value.__name__!r}" if hasattr(value, "__path__") or hasattr(value, "__spec__") else repr(value)


def changes(recorded: Mapping[str, str | None]) -> list[str]:
    """Which references of a record no longer import or have changed, each in a sentence that names it.

    Args:
        recorded: the text of each reference and the hash it had.
    """
    found = []
    for text, before in recorded.items():
        reference = Reference.parse(text)
        try:
            now = reference.sha256() if reference else None
            if reference:
                reference.resolve()
        except ValueError as error:
            found.append(str(error))
            continue
        if now != before:
            found.append(f"{text}: its file has changed ({str(now)[:12]} instead of {str(before)[:12]})")
    return found
