"""Dictionaries, lists, numbers and texts from a pickle. Nothing else is built, and nothing is imported or called."""

import pickletools
from typing import Any

_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED = frozenset(("PROTO", "FRAME", "STOP"))


def read_pickled(data: bytes) -> Any:
    """What a pickle of plain values has; a `ValueError` if it has anything else.

    Args:
        data: the pickle, of any protocol.

    Example:
        >>> import pickle
        >>> read_pickled(pickle.dumps({"a": [1, 2.5]}))
        {'a': [1, 2.5]}
    """
    reader = _Reader()
    try:
        for code, argument, _ in pickletools.genops(data):
            reader.step(code.name, argument)
        (found,) = reader.stack
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"it is not a whole pickle: {error!r}") from None
    return found


class _Reader:
    """Builds the values from the steps of a pickle."""

    def __init__(self) -> None:
        self.stack, self._marks, self._memo = list[Any](), list[int](), dict[int, Any]()

    def step(self, name: str, argument: Any) -> None:
        """Follow one step, or refuse it."""
        if name in _NUMBERS or name in _TEXTS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            self.stack.append({} if name == "EMPTY_DICT" else [])
        elif name == "MARK":
            self._marks.append(len(self.stack))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if argument is None else int(argument)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[int(argument)])
        elif name in ("DICT", "LIST", "SETITEM", "SETITEMS", "APPEND", "APPENDS"):
            self._collect(name)
        elif name not in _IGNORED:
            raise ValueError(f"it has more than dictionaries, lists, numbers and texts: {name} {argument or ''}")

    def _collect(self, name: str) -> None:
        """Put values from the stack into a dictionary or a list."""
        if name in ("SETITEM", "APPEND"):
            values = [self.stack.pop() for _ in range(1 + (name == "SETITEM"))][::-1]
        else:
            place = self._marks.pop()
            values = self.stack[place:]
            del self.stack[place:]
        if name in ("DICT", "LIST"):
            self.stack.append({} if name == "DICT" else [])
        into = self.stack[-1]
        if name in ("DICT", "SETITEM", "SETITEMS"):
            into.update(zip(values[::2], values[1::2], strict=True))
        else:
            into.extend(values)
