"""The one reader of names with arguments, and the one place that passes arguments on."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch

from undrift.util.naming.binding import build, check_arguments, conform_argument, literal_types
from undrift.util.naming.calls import Call, read_arguments, read_call, read_terms, value_text


def area(width: float, height: int = 2, flat: bool = False) -> object:
    return width, height, flat


@pytest.mark.quick
def test_names_arguments_and_calls_inside_calls() -> None:
    for text, call in [
        ("a", Call("a")),
        ("a()", Call("a")),
        (" high-pass ( 0.5 , ) ", Call("high-pass", (0.5,))),
        ("drift : my.module:Block(x=-1e-3)", Call("drift:my.module:Block", (), {"x": -1e-3})),
        ("f(1_000, 'a)b', \"c\", x=[1, (2,), (3)], y=())", Call("f", (1000, "a)b", "c"), {"x": (1, (2,), 3), "y": ()})),
        ("f(True, false, None, inf, - inf)", Call("f", (True, False, None, math.inf, -math.inf))),
        ("f(over=g-h(0.3, a=true))", Call("f", (), {"over": Call("g-h", (0.3,), {"a": True})})),
    ]:
        assert read_call(text) == call and read_call(str(call)) == call and read_call(text).source == text.strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' has an empty term; write names joined by \\+, for example b"),
        ("a +", "'a \\+' has an empty term; write names joined by \\+, for example b"),
        ("3", "'3' is not a term; write a name and its arguments, for example b"),
        ("a(1)(2)", "write one pair of brackets, for example b"),
        ("a b", "cannot be read from 'b' on"),
        ("a(1", "cannot be read: a comma or '\\)' is missing"),
        ("a(x=)", "cannot be read: a value is missing"),
        ("a(1 2)", "cannot be read: a comma or"),
        ("a(x=1, x=2)", "x is named twice; name it once"),
        ("a(x=1, 2)", "arguments without a name come first"),
        ("a(1j)", "arguments are numbers, texts in quotes, True, False, None, inf or tuples of them, got 1j"),
        ("a(007)", "cannot be read: 007: leading zeros"),
        (r"a('\d')", "cannot be read"),
        ("a({})", "cannot be read from '{}\\)' on"),
        ("a(" * 50, "brackets in more than 20 others"),
        ("a" * 3000, "a name with its arguments has at most 2000 characters, got 3000"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_terms(text, "for example b")
    with pytest.raises(ValueError, match="write one name with its arguments"):
        read_call("a + b")


def test_arguments_are_checked_against_annotations() -> None:
    assert build(area, read_call("area(1, height=4)")) == (1, 4, False)
    for text, message in [
        ("area('wide')", r"\"area\('wide'\)\": width must be a number, got 'wide'"),
        ("area(wide)", "texts in quotes, True, False, None, inf or tuples of them, got a name: wide"),
        ("area((wide,))", "got a name: wide"),
        ("area(1, height=2.5)", "height must be a whole number, got 2.5"),
        ("area(1, depth=2)", "unexpected keyword argument 'depth'; it takes width: float, height: int = 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            build(area, read_call(text))
    assert build(area, read_call("area(a(3))"), nested=lambda call: call.positional[0]) == (3, 2, False)


def test_scalars_are_what_a_file_can_set() -> None:
    def model(classes: int, patch: int = 4, rate: float | None = None, widths: tuple[int, ...] = ()) -> None: ...

    known = literal_types(model, "classes")
    assert list(known) == ["patch", "rate", "widths"]
    check_arguments("model 'm'", known, {"patch": 16, "rate": 1})
    for given, message in (
        ({"path": 16}, "model 'm' has no argument 'path'; it takes patch, rate, widths"),
        ({"patch": True}, "model 'm': patch must be a whole number, got True"),
        ({"rate": "a"}, "model 'm': rate must be a number or None, got 'a'"),
        ({"widths": (8, "a")}, r"model 'm': widths must be tuple\[int, ...\], got \(8, 'a'\)"),
    ):
        with pytest.raises(ValueError, match=message):
            check_arguments("model 'm'", known, given)


def many(
    mode: Literal["a", 1] = "a",
    row: Sequence[float] = (),
    column: list[float] | None = None,
    pair: tuple[int, str] = (1, "a"),
    thing: object = None,
    *others: float,
    **named: int,
) -> Any:
    return mode, row, column, pair, thing, others, named


def test_annotations_of_ones_own_functions() -> None:
    assert build(many, read_call("many(1, (1, 2.5), (1,), (2, 'b'), 'x', 0.5, 2)")) == (
        1,
        (1, 2.5),
        [1],
        (2, "b"),
        "x",
        (0.5, 2),
        {},
    )
    assert build(many, read_call("many(k=3)"))[-1] == {"k": 3}
    for text, message in [
        ("('b')", r"mode must be Literal\['a', 1\], got 'b'"),
        ("(True)", "mode must be Literal"),
        ("(row=('x',))", r"row must be Sequence\[float\]"),
        ("(column=5)", r"column must be list\[float\] \| None, got 5"),
        ("(pair=(1,))", r"pair must be tuple\[int, str\]"),
        ("(pair=(1, 2))", "pair must be tuple"),
        ("('a', (), None, (1, 'a'), None, 'x')", "others must be a number, got 'x'"),
        ("(k=0.5)", "named must be a whole number, got 0.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            build(many, read_arguments(text, text))


def test_numbers_of_numpy_and_torch_become_python_s() -> None:
    for given, value in ((np.float32(0.5), 0.5), (torch.tensor(0.5), 0.5), (np.int64(2), 2)):
        found = conform_argument(area, "width", given)
        assert found == value and type(found) is type(value)
    assert conform_argument(area, "height", np.int64(2)) == 2
    with pytest.raises(TypeError, match="height must be a whole number"):
        conform_argument(area, "height", np.float32(2.5))


def test_infinities_and_backslashes_come_back() -> None:
    text = f"x({value_text(-math.inf)}, {value_text((math.inf, 'a'))})"
    assert read_call(text).positional == (-math.inf, (math.inf, "a"))
    terms = read_terms(f"a + b({value_text(chr(92))}) + c")
    assert [term.source for term in terms] == ["a", f"b({value_text(chr(92))})", "c"]
    assert terms[1].positional == (chr(92),)
