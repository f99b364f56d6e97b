"""Adaptive steps of the server: every coordinate has its own rate."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch

from undrift.core import ServerOptimizer, ServerView, Vector
from undrift.util.naming.ranges import Epsilon, Fraction, Positive, Range, positive


class Moments(NamedTuple):
    """A moving average of the pseudo-gradient, uphill, and what its squares came to."""

    m: Vector
    v: Vector


@dataclass(frozen=True)
class _Adaptive(ServerOptimizer[Moments]):
    """server:  m <- beta1 m - (1 - beta1) delta;   w <- w - lr m / (sqrt(v) + tau);   no bias correction"""

    lr: Positive = 0.1
    beta1: Fraction = 0.9
    tau: Annotated[float, Range("positive and finite", positive, "; 1e-3 is the usual one")] = 1e-3

    def init_server(self, w: Vector) -> Moments:
        """No momentum, and tau^2 where the squares start."""
        return Moments(torch.zeros_like(w), torch.full_like(w, self.tau**2))

    def receive(self, delta: Vector, up: None, view: ServerView[Moments]) -> tuple[Vector, Moments]:
        """Accumulate, then move."""
        m = self.beta1 * view.state.m - (1 - self.beta1) * delta
        v = self._squares(view.state.v, delta.square())
        return -(self.lr * m / (v.sqrt() + self.tau)), Moments(m, v)

    def _squares(self, v: Vector, square: Vector) -> Vector:
        """The new v."""
        raise NotImplementedError


@dataclass(frozen=True)
class Adam(_Adaptive):
    """server:  m <- beta1 m - (1 - beta1) delta;   v <- beta2 v + (1 - beta2) delta^2
             w <- w - lr m / (sqrt(v) + tau), element by element;   v starts at tau^2

    Args:
        lr: server learning rate, about the largest step of a coordinate.
        beta1: momentum; 0 switches it off.
        tau: what keeps the root away from zero; a large one switches adapting off.
        beta2: memory of the squares.
    """

    beta2: Fraction = 0.99

    def _squares(self, v: Vector, square: Vector) -> Vector:
        """A moving average."""
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(_Adaptive):
    """server:  as Adam, but v <- v - (1 - beta2) delta^2 sign(v - delta^2): it falls no faster than it rises

    Args:
        lr: server learning rate, about the largest step of a coordinate.
        beta1: momentum; 0 switches it off.
        tau: what keeps the root away from zero; a large one switches adapting off.
        beta2: memory of the squares.
    """

    beta2: Fraction = 0.99

    def _squares(self, v: Vector, square: Vector) -> Vector:
        """Towards the square by a share of the square."""
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class Adagrad(_Adaptive):
    """server:  as Adam, but v <- v + delta^2, which only grows

    Args:
        lr: server learning rate, the largest step of a coordinate.
        beta1: momentum; 0 switches it off.
        tau: what keeps the root away from zero; a large one switches adapting off.
    """

    beta1: Fraction = 0.0

    def _squares(self, v: Vector, square: Vector) -> Vector:
        """The sum of all squares."""
        return v + square


class Peaks(NamedTuple):
    """A moving average of the displacements, one of their squares, and the largest value that the latter has had."""

    m: Vector
    v: Vector
    peak: Vector


@dataclass(frozen=True)
class AMSGrad(ServerOptimizer[Peaks]):
    """server:  m <- beta1 m + (1 - beta1) delta;   v <- beta2 v + (1 - beta2) delta^2;   peak <- max(peak, v)
             w <- w + lr_t m / (sqrt(peak) + eps);   lr_t = lr if age <= delay, else lr / age

    Element by element, without bias correction. The age is that of the oldest upload of the step; in synchronous rounds
    it is 0.

    Args:
        lr: server learning rate, about the largest step of a coordinate.
        beta1: momentum; 0 switches it off.
        beta2: memory of the squares.
        eps: keeps the root away from zero.
        delay: the age up to which the rate is lr; None does not adapt it.
    """

    lr: Positive = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.99
    eps: Epsilon = 1e-8
    delay: int | None = 1

    def __post_init__(self) -> None:
        if self.delay is not None and self.delay < 1:
            raise ValueError(f"AMSGrad: delay must be 1 or more, or None for a fixed rate, got {self.delay}")

    def receive(self, delta: Vector, up: None, view: ServerView[Peaks]) -> tuple[Vector, Peaks]:
        """Accumulate, then move, less far if an upload is old."""
        m = self.beta1 * view.state.m + (1 - self.beta1) * delta
        v = self.beta2 * view.state.v + (1 - self.beta2) * delta.square()
        peak = torch.maximum(view.state.peak, v)
        slow = self.delay is not None and view.age > self.delay
        return self.lr / (view.age if slow else 1) * m / (peak.sqrt() + self.eps), Peaks(m, v, peak)
