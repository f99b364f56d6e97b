"""Models of one's own by reference and of plug-ins, and the perceptron for tables."""

import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from support.own import own_code_fixture, plugged_fixture  # noqa: F401
from undrift.models import INPUTS, MLP, arguments, build


def test_a_class_and_a_function_get_what_they_name(own_code: Path) -> None:
    net: Any = build("their_parts:Net", classes=4, channels=1, image=8, width=5)
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 4) and net.layers[1].weight.shape == (5, 64)
    function = build("their_parts:stack", classes=3, channels=1, image=28, widths=(6, 7))
    assert function(torch.zeros(2, 1, 28, 28)).shape == (2, 3) and len(function) == 4  # type: ignore[arg-type]
    assert build("their_parts:Regressor", inputs=5, outputs=2)(torch.zeros(3, 5)).shape == (3, 2)
    assert build("their_parts:Regressor", classes=4, inputs=5).out_features == 4
    assert build("torch.nn:Linear", classes=4, in_features=2, out_features=4).weight.shape == (4, 2)


def test_arguments_are_those_of_the_signature(own_code: Path) -> None:
    found = arguments("their_parts:Net")
    assert found["width"] is int and found["classes"] is Any
    assert arguments("their_parts:stack") == {"classes": Any, "widths": tuple[int, ...], "**": Any}
    given: Any = build("their_parts:Net", classes=4, channels=1, image=8, width=3)
    assert given.layers[1].out_features == 3


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("their_parts:Nett", {}, "module 'their_parts' has no 'Nett'; did you mean 'Net'?"),
        ("their_gone:Net", {}, "no module is named 'their_gone'"),
        ("their_parts:Net", {"widht": 3}, "model 'their_parts:Net' has no argument 'widht'; it takes classes"),
        ("their_parts:Net", {"width": "x"}, "model 'their_parts:Net': width must be a whole number, got 'x'"),
        ("their_parts:wide", {}, "missing a required argument: 'hidden'; give it as their_parts:wide(...), the data"),
        ("their_parts:nothing", {}, "it must be an nn.Module or return one, got 'no module'"),
        ("their_parts:THING", {}, "it must be a class derived from nn.Module or a function that returns a module"),
        ("cn", {}, "no model is named 'cn'; did you mean 'cnn'?"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(own_code: Path, name: str, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(name, classes=10, channels=1, image=28, **given)


def test_a_maker_is_pickled_by_name(own_code: Path) -> None:
    make = partial(build, "their_parts:Net", classes=4, channels=1, image=8)
    assert len(pickle.dumps(make)) < 300
    assert pickle.loads(pickle.dumps(make))()(torch.zeros(1, 1, 8, 8)).shape == (1, 4)


def test_plug_ins_are_models(plugged: Path) -> None:
    net: Any = build("their-net", classes=4, channels=1, image=8)
    assert net.layers[3].out_features == 4
    assert arguments("their-net")["width"] is int
    with pytest.raises(ValueError, match="'thing': it must be a class"):
        build("thing", classes=4)
    with pytest.raises(ValueError, match="did you mean 'their-net'"):
        build("their-nett", classes=4)


@pytest.mark.quick
def test_the_perceptron_reads_tables() -> None:
    assert INPUTS["mlp"] == "table" and arguments("mlp") == {"width": int, "depth": int}
    model = build("mlp", classes=3, inputs=7, width=4, depth=1)
    assert model(torch.zeros(5, 7)).shape == (5, 3)
    assert sum(p.numel() for p in model.parameters()) == 7 * 4 + 4 + 4 * 3 + 3
    assert build("mlp", outputs=1, inputs=7)(torch.zeros(5, 7)).shape == (5, 1)
    assert [name for name, _ in MLP(7, 2, depth=0).named_parameters()] == ["head.weight", "head.bias"]
    with pytest.raises(ValueError, match="model 'cnn' reads image data and these are table data; try 'mlp'"):
        build("cnn", classes=3, inputs=7)
    with pytest.raises(ValueError, match="MLP: depth must be 0 or more, got -1"):
        build("mlp", classes=3, inputs=7, depth=-1)


def test_our_models_predict_numbers_too() -> None:
    assert build("small-cnn", outputs=2, channels=1, image=8)(torch.zeros(3, 1, 8, 8)).shape == (3, 2)
    with pytest.raises(ValueError, match="classes must be 1 or more, got 0"):
        build("small-cnn")
