"""Values of the wrong kind are refused by the name of the argument, with what it takes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from undrift import Local, make
from undrift.algorithms import fedprox
from undrift.blocks import GeometricMedian, LocalSGD, high_pass, lap_d


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("fedprox", mu="a"), "fedprox: mu must be a number, got 'a'"),
        (lambda: make("trimmed-mean", f="x"), "trimmed-mean: f must be a number, got 'x'"),
        (lambda: fedprox("a"), "Proximal: mu must be a number, got 'a'"),  # type: ignore[arg-type]
        (lambda: LocalSGD(0.9, "no"), "LocalSGD: nesterov must be true or false, got 'no'"),  # type: ignore[arg-type]
        (lambda: high_pass("0.1"), "high_pass: r must be a number, got '0.1'"),  # type: ignore[arg-type]
        (lambda: high_pass(0.1, order=123), "high_pass: order must be a text, got 123"),  # type: ignore[arg-type]
        (lambda: lap_d(None), "lap_d: window must be a whole number, got None"),  # type: ignore[arg-type]
        (lambda: Local(lr="0.1"), "Local: lr must be a number, got '0.1'"),  # type: ignore[arg-type]
        (lambda: Local(batch_size="10"), "Local: batch_size must be a whole number, got '10'"),  # type: ignore[arg-type]
        (lambda: Local(clip=[1]), r"Local: clip must be a number or None, got \[1\]"),  # type: ignore[arg-type]
        (lambda: Local(schedule=5), "Local: schedule must be a text or None, got 5"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_whole_numbers_are_whole() -> None:
    with pytest.raises(ValueError, match=r"Local: batch_size must be a whole number, got 1\.5"):
        Local(batch_size=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"GeometricMedian: passes must be a whole number, got 1\.5"):
        GeometricMedian(1.5)  # type: ignore[arg-type]


def test_numbers_of_other_libraries_are_numbers() -> None:
    local = Local(lr=np.float32(0.5), batch_size=np.int64(3), clip=torch.tensor(1.0))  # type: ignore[arg-type]
    assert (local.lr, local.batch_size, local.clip) == (0.5, 3, 1.0)
    assert make("fedprox", mu=np.float64(0.5)) == make("fedprox", mu=0.5)
