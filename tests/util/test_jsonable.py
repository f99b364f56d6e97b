"""JSON that every reader takes."""

import json
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
import torch

from undrift.util.storage.jsonable import jsonable, parse_object, read_object, read_objects, to_json


def test_tensors_arrays_and_numbers_that_are_not_finite() -> None:
    value = {"a": torch.tensor([1.0, inf]), "b": (nan, 2, "x"), "c": np.float32(0.5), "d": np.arange(2), "e": None}
    assert jsonable(value) == {"a": [1.0, None], "b": [None, 2, "x"], "c": 0.5, "d": [0, 1], "e": None}
    assert json.loads(to_json(value)) == jsonable(value) and "\n" not in to_json(value, indent=None)


@pytest.mark.quick
def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError):
        to_json({"a": object()})


def test_damaged_files_have_the_objects_that_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert (read_object(file), [*read_objects(file)]) == ({}, [])
    file.write_bytes(b'{"round": 1}\n\xff\n[3]\n' + b"[" * 100_000 + b'\n{"round": 2}\n{"rou')
    assert [*read_objects(file)] == [{"round": 1}, {"round": 2}] and read_object(file) == parse_object("null") == {}
