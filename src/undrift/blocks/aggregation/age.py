"""Weights by the age of an upload: how many steps the server made since its client downloaded the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field

from undrift.core import ServerView, Summing, Synchronous, Upload, Vector
from undrift.core.method.aggregation import Weights

Rule = Literal["constant", "polynomial", "hinge", "reciprocal"]
Positive = Annotated[float, Field(gt=0, le=1e6, strict=True)]


@dataclass(frozen=True)
class ByAge(Summing):
    """server:  delta = sum_i n_i s(age_i) delta_i / sum_i n_i

        constant     s = 1
        polynomial   s = (1 + age)^-a
        hinge        s = 1 if age <= b, else 1 / (a (age - b) + 1)
        reciprocal   s = 1 if age <= b, else b / age

    The weights are not divided by their own sum, which would undo them where all uploads are old.

    Args:
        rule: the function s.
        a: how fast it falls; not used by "constant" and "reciprocal".
        b: the age up to which "hinge" and "reciprocal" are 1.
        examples: whether n_i is the number of examples; otherwise it is 1.
    """

    scalars = ("whole",)

    rule: Rule = "polynomial"
    a: Positive = 0.5
    b: Positive = 4.0
    examples: bool = False

    def factor(self, age: int) -> float:
        """The function s."""
        if self.rule == "polynomial":
            return float((1 + age) ** -self.a)
        if self.rule == "constant" or age <= self.b:
            return 1.0
        return 1 / (self.a * (age - self.b) + 1) if self.rule == "hinge" else self.b / age

    def weigh(self, upload: Upload, up: None, age: int) -> Weights:
        """By age, and by examples if they count."""
        whole = float(upload.examples) if self.examples else 1.0
        return {"": whole * self.factor(age), "whole": whole}

    def check(self, up: None, examples: int, weights: Weights) -> None:
        """No weight is above that of a fresh upload."""
        if weights[""] > weights["whole"] * (1 + 1e-9):
            raise ValueError(f"a weight of {weights['']:g} is above that of a fresh upload, {weights['whole']:g}")

    def mean(self, up: None, view: ServerView[None]) -> Vector:
        """Old uploads move the model less."""
        return view.weighted.div_(view.scalar("whole") or 1.0)


@dataclass(frozen=True)
class Mixing(ByAge):
    """server:  w <- (1 - alpha s(age)) w + alpha s(age) w_i

    It mixes models, not displacements: w_i lies where the client started from, plus its displacement. `ByAge` has the
    functions s.

    Args:
        alpha: the share of a fresh model; 1 replaces the model.
        rule: the function s.
        a: how fast it falls.
        b: the age up to which "hinge" and "reciprocal" are 1.
        examples: whether models count by their examples, where several arrive at once.
    """

    alpha: Annotated[float, Field(gt=0, le=1, strict=True)] = 0.6

    def refuses(self, others: Mapping[str, object]) -> str:
        """Steps from several models of different versions."""
        schedule = others["schedule"]
        if isinstance(schedule, Synchronous) and schedule.overlaps and schedule.enough(2) > 1:
            return f"mixes one model at a time, found schedule={schedule!r}; use asynchronous, or by-age with a buffer"
        return ""

    def mean(self, up: None, view: ServerView[None]) -> Vector:
        """Towards the models of the clients."""
        total = view.weighted
        if view.lag is not None:  # of one upload: its weight is the sum of the weights
            total = total + view.weight * view.lag.to(torch.float64)
        return total * (self.alpha / (view.scalar("whole") or 1.0))
