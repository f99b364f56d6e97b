"""The one grammar of names with arguments, `name(0.1, key=value)`. Nothing is evaluated.

    terms     call, or several joined by "+"
    call      name, or name(argument, ...)
    argument  value, or key=value
    value     a number, a text in quotes, True, False, None, inf, values in (...) or [...], or a call

A name may have dashes and dots, and colons for a slot or a reference: `high-pass`, `drift:scaffold`,
`package.module:object`. Every text that names something is read here: methods, models, data sets, partitions,
schedules, amounts, targets and augmentation. `binding.build` passes the arguments to a function.
"""

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, NoReturn

LONGEST = 2000
"""The longest text in characters."""

DEEPEST = 20
"""How many brackets can stand inside one another."""

NAME = r"[A-Za-z_][\w.-]*"
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<number>-?\s*(?:\.?\d(?:[eE][+-]|[\w.])*|inf\b))
      | (?P<name>{NAME}(?:\s*:\s*{NAME})*)
      | (?P<sign>[()\[\],=+])
    )""",
    re.VERBOSE,
)
_CONSTANTS = {"True": True, "true": True, "False": False, "false": False, "None": None, "inf": float("inf")}
_CLOSING = {"(": ")", "[": "]"}
_EXAMPLE = "for example sam(rho=0.05)"


@dataclass(frozen=True)
class Call:
    """A name with its arguments.

    Args:
        name: as written, without blanks.
        positional: the arguments without a name.
        named: those with one.
        source: the text that it was read from, for errors.
    """

    name: str
    positional: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict)
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        """The text that `read_call` reads; without brackets if there are no arguments."""
        shown = [*map(value_text, self.positional), *(f"{key}={value_text(x)}" for key, x in self.named.items())]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


def read_call(text: str, example: str = _EXAMPLE) -> Call:
    """The name and the arguments in a text.

    Args:
        text: the text.
        example: what to write, for errors.

    Example:
        >>> call = read_call("longtail(100, over=dirichlet-client(0.3))")
        >>> call.name, call.positional, str(call.named["over"])
        ('longtail', (100,), 'dirichlet-client(0.3)')
    """
    found = read_terms(text, example)
    if len(found) > 1:
        raise ValueError(f"{text!r}: write one name with its arguments, {example}")
    return found[0]


def read_terms(text: str, example: str = "for example scaffold + sam(rho=0.05)") -> list[Call]:
    """The calls in a text that joins them by "+".

    Args:
        text: the text.
        example: what to write, for errors.

    Example:
        >>> [str(term) for term in read_terms("scaffold + momentum : feddyn( 0.1, )")]
        ['scaffold', 'momentum:feddyn(0.1)']
    """
    return _Reader(text, text, example).terms()


def read_arguments(text: str, source: str) -> Call:
    """Arguments in brackets, without a name in front of them.

    Args:
        text: the brackets and what is inside.
        source: the whole text, for errors.
    """
    reader = _Reader(text, source, _EXAMPLE)
    call = reader.arguments("", 0)
    reader.end()
    return replace(call, source=source)


def value_text(value: object) -> str:
    """A value as the grammar writes it."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(value_text, value))}{',' if len(value) == 1 else ''})"
    return str(value) if isinstance(value, Call) else repr(value)


def changed_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults.

    Example:
        >>> changed_fields(Call("cnn"))
        {'name': 'cnn'}
    """
    given = {f: getattr(record, f.name) for f in fields(record)}
    made = {f: f.default_factory() if callable(f.default_factory) else f.default for f in given}
    return {f.name: value for f, value in given.items() if value != made[f]}


class _Token(NamedTuple):
    """A piece of a text: its kind, what is written, and where it begins and ends."""

    kind: str
    text: str
    start: int
    end: int


class _Reader:
    """Reads the tokens of one text from left to right."""

    def __init__(self, text: str, source: str, example: str) -> None:
        if len(source) > LONGEST:
            raise ValueError(f"a name with its arguments has at most {LONGEST} characters, got {len(source)}")
        self.text, self.source, self.example = text, source, example
        self.tokens, self.place = self._tokens(), 0

    def _tokens(self) -> list[_Token]:
        out, place, last = list[_Token](), 0, len(self.text.rstrip())
        while place < last:
            match = _TOKEN.match(self.text, place)
            if match is None:
                self.fail(f"cannot be read from {self.text[place:].strip()[:40]!r} on")
            kind = str(match.lastgroup)
            out.append(_Token(kind, match[kind], match.start(kind), match.end()))
            place = match.end()
        return out

    def fail(self, problem: str) -> NoReturn:
        raise ValueError(f"{self.source!r}: {problem}")

    def next(self, *texts: str) -> bool:
        """Whether the next token is one of these signs, or of any if none is given."""
        here = self.tokens[self.place : self.place + 1]
        return bool(here) and (not texts or (here[0].kind == "sign" and here[0].text in texts))

    def take(self, sign: str) -> bool:
        """Step over the next token if it is this sign."""
        taken = self.next(sign)
        self.place += taken
        return taken

    def end(self) -> None:
        """Fail if there is anything left."""
        if self.next("("):
            self.fail(f"write one pair of brackets, {self.example}")
        if self.next():
            self.fail(f"cannot be read from {self.text[self.tokens[self.place].start :][:40]!r} on")

    def terms(self) -> list[Call]:
        out = list[Call]()
        while True:
            if not self.next() or self.next("+"):
                raise ValueError(f"{self.source!r} has an empty term; write names joined by +, {self.example}")
            out.append(self.call(0))
            if not self.take("+"):
                self.end()
                return out

    def call(self, depth: int) -> Call:
        token = self.tokens[self.place]
        if token.kind != "name":
            shown = self.text[token.start :].partition("+")[0].strip()
            raise ValueError(f"{shown!r} is not a term; write a name and its arguments, {self.example}")
        self.place += 1
        name = "".join(token.text.split())
        call = self.arguments(name, depth) if self.next("(") else Call(name)
        return replace(call, source=self.text[token.start : self.tokens[self.place - 1].end])

    def arguments(self, name: str, depth: int) -> Call:
        """What is in the brackets after a name."""
        positional, named = list[object](), dict[str, object]()
        if not self.take("("):
            self.fail(f"write one pair of brackets, {self.example}")
        while not self.take(")"):
            token = self.tokens[self.place] if self.next() else None
            if token and token.kind == "name" and token.text.isidentifier() and self._equals():
                self.place += 2
                if token.text in named:
                    self.fail(f"{token.text} is named twice; name it once")
                named[token.text] = self.value(depth + 1)
            elif named:
                self.fail("cannot be read: arguments without a name come first")
            else:
                positional.append(self.value(depth + 1))
            self._comma(")")
        return Call(name, tuple(positional), named)

    def _equals(self) -> bool:
        following = self.tokens[self.place + 1 : self.place + 2]
        return bool(following) and following[0][:2] == ("sign", "=")

    def _comma(self, closing: str) -> None:
        if not self.take(",") and not self.next(closing):
            self.fail(f"cannot be read: a comma or {closing!r} is missing")

    def value(self, depth: int) -> object:
        if depth > DEEPEST:
            self.fail(f"cannot be read: it has brackets in more than {DEEPEST} others")
        if not self.next() or self.next(")", "]", ",", "=", "+"):
            self.fail("cannot be read: a value is missing")
        token = self.tokens[self.place]
        if token.kind == "name" and token.text not in _CONSTANTS:
            return self.call(depth)
        self.place += 1
        if token.kind == "sign":
            return self.values(_CLOSING[token.text], depth)
        if token.kind == "name":
            return _CONSTANTS[token.text]
        return float(token.text.replace(" ", "")) if token.text.endswith("inf") else self.literal(token)

    def values(self, closing: str, depth: int) -> object:
        """A tuple, or one value in round brackets without a comma."""
        out, comma = list[object](), closing == "]"
        while not self.take(closing):
            out.append(self.value(depth + 1))
            comma |= self.next(",")
            self._comma(closing)
        return tuple(out) if comma or not out else out[0]

    def literal(self, token: _Token) -> object:
        """A number or a text as Python reads it; what Python warns about is refused."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                value = ast.literal_eval("".join(token.text.split()) if token.kind == "number" else token.text)
        except (SyntaxError, ValueError, MemoryError) as error:
            self.fail(f"cannot be read: {token.text[:40]}: {str(error).partition(' (')[0]}")
        if not isinstance(value, int | float | str):
            self.fail(
                f"arguments are numbers, texts in quotes, True, False, None, inf or tuples of them, got {value!r}"
            )
        return value
