"""Asynchronous methods on clients with quadratic losses of one parameter, in plain floats, straight from their sheet.

`arrivals` is the order in which clients report; each begins again at once, from the model that is then current. So a
task is a pair of a client and the version at which it began.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Step = Callable[[float, list[tuple[int, int, float, float]]], float]
"""The new model from the old one and the arrivals of a step: client, age, the model it started from, its end."""


@dataclass(frozen=True)
class Line:
    """Losses (w - optimum)^2 / 2, a rate and a number of local steps."""

    optima: Sequence[float] = (0.0, 4.0)
    start: float = 1.0
    rate: float = 0.5
    steps: int = 2
    pull: float = 0.0

    def train(self, client: int, w: float) -> float:
        """Where a client ends that starts from w, pulled back to it."""
        y = w
        for _ in range(self.steps):
            y -= self.rate * (y - self.optima[client] + self.pull * (y - w))
        return y


def play(line: Line, arrivals: Sequence[int], size: int, step: Step) -> list[float]:
    """The models after every step of `size` arrivals."""
    w, version, held = line.start, 0, list[tuple[int, int, float, float]]()
    began = dict.fromkeys(range(len(line.optima)), (0, w))
    path: list[float] = []
    for client in arrivals:
        at, start = began[client]
        held.append((client, version - at, start, line.train(client, start)))
        if len(held) == size:
            w, version, held = step(w, held), version + 1, []
            path.append(w)
        began[client] = (version, w)
    return path


def decay(rule: str, a: float, b: float) -> Callable[[int], float]:
    """s(tau)."""
    if rule == "polynomial":
        return lambda tau: (1 + tau) ** -a
    if rule == "hinge":
        return lambda tau: 1.0 if tau <= b else 1 / (a * (tau - b) + 1)
    if rule == "reciprocal":
        return lambda tau: 1.0 if tau <= b else b / tau
    return lambda tau: 1.0


def fedbuff(line: Line, arrivals: Sequence[int], size: int, lr: float, s: Callable[[int], float]) -> list[float]:
    """w + lr / K sum s(tau) D."""
    return play(
        line, arrivals, size, lambda w, held: w + lr * sum(s(tau) * (y - x) for _, tau, x, y in held) / len(held)
    )


def fedasync(line: Line, arrivals: Sequence[int], alpha: float, s: Callable[[int], float]) -> list[float]:
    """(1 - alpha s) w + alpha s w_i."""

    def step(w: float, held: list[tuple[int, int, float, float]]) -> float:
        ((_, tau, _, y),) = held
        return (1 - alpha * s(tau)) * w + alpha * s(tau) * y

    return play(line, arrivals, 1, step)


def fadas(
    line: Line, arrivals: Sequence[int], size: int, lr: float, b1: float, b2: float, eps: float, delay: float
) -> list[float]:
    """AMSGrad on the mean displacement, without bias correction, its rate divided by the largest age above delay."""
    m = u = most = 0.0

    def step(w: float, held: list[tuple[int, int, float, float]]) -> float:
        nonlocal m, u, most
        mean = sum(y - x for _, _, x, y in held) / len(held)
        oldest = max(tau for _, tau, _, _ in held)
        m, u = b1 * m + (1 - b1) * mean, b2 * u + (1 - b2) * mean**2
        most = max(most, u)
        rate: float = lr if oldest <= delay else lr / oldest
        return w + rate * m / float(most**0.5 + eps)

    return play(line, arrivals, size, step)


def fedfa(line: Line, arrivals: Sequence[int], size: int) -> list[float]:
    """The mean of the last `size` models, which are the first model before others arrive."""
    queue = [line.start] * size

    def step(w: float, held: list[tuple[int, int, float, float]]) -> float:
        ((_, _, _, y),) = held
        queue.append(y)
        queue.pop(0)
        return sum(queue) / size

    return play(line, arrivals, 1, step)


def aced(line: Line, arrivals: Sequence[int], lr: float, delay: float) -> list[float]:
    """w + lr times the mean of the last displacements of clients that began at most `delay` steps ago, first zero."""
    cache = dict.fromkeys(range(len(line.optima)), (0, 0.0))
    t = 0

    def step(w: float, held: list[tuple[int, int, float, float]]) -> float:
        nonlocal t
        ((client, tau, x, y),) = held
        cache[client] = (t - tau, y - x)
        active = [u for began, u in cache.values() if t - began <= delay]
        t += 1
        return w + lr * sum(active) / len(active) if active else w

    return play(line, arrivals, 1, step)
