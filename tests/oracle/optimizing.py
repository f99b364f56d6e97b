"""Local optimizers that begin from what the server knows, one tensor at a time, from the sheet of the newest methods.

Weights are uniform. The Newton-Schulz iteration, Adam and AdamW are written out.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .methods import Params, Path, Problem, Settings, add, mean, norm, scale, sub, total, zero


def clipped(s: Settings, g: Params) -> Params:
    """g, at most s.clip long."""
    return scale(s.clip / norm(g), g) if s.clip is not None and norm(g) > s.clip else g


def root(v: Params, divisor: float, eps: float) -> Params:
    """sqrt(v / divisor) + eps."""
    return {name: torch.sqrt(x / divisor) + eps for name, x in v.items()}


def over(a: Params, b: Params) -> Params:
    """a / b."""
    return {name: a[name] / b[name] for name in a}


def times(a: Params, b: Params) -> Params:
    """a * b."""
    return {name: a[name] * b[name] for name in a}


def newton_schulz(matrix: Tensor) -> Tensor:
    """X <- a X + (b A + c A^2) X five times, A = X X^T, from X / |X|_F; on the transpose if it is tall."""
    x = matrix.numpy() / np.linalg.norm(matrix.numpy())
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return torch.from_numpy(np.ascontiguousarray(x.T if tall else x))


def is_matrix(x: Tensor) -> bool:
    """Two axes or more, and more than one row or column."""
    return x.dim() > 1 and min(x.flatten(1).shape) > 1


def fedadamw(
    p: Problem,
    s: Settings,
    rounds: int,
    gamma: float,
    means: bool = True,
    convex: bool = False,
    fresh: bool = False,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> Path:
    """m = 0, v = server's, t = all steps so far; y -= lr (AdamW (1 - gamma if convex) + wd y) - gamma lr Delta/K."""
    w, path = p.start(), []
    v, hat, t0 = zero(w), zero(w), 0
    for t in range(rounds):
        lr, moves, squares = s.lr * s.decay**t, [], []
        for i in p.cohort(t):
            y, m, own, batches = w, zero(w), v, p.batches(i, t)
            for k, batch in enumerate(batches, start=1):
                g = clipped(s, p.gradient(y, batch))
                m = add(scale(beta1, m), scale(1 - beta1, g))
                own = add(scale(beta2, own), scale(1 - beta2, times(g, g)))
                corrected = scale(1 / (1 - beta1 ** (k if fresh else t0 + k)), m)
                step = over(corrected, root(own, 1 - beta2 ** (t0 + k), eps))
                step = add(scale(1 - gamma if convex else 1.0, step), scale(s.weight_decay, y))
                y = add(sub(y, scale(lr, step)), scale(gamma * lr / len(batches), hat))
            moves.append(sub(y, w))
            squares.append({n: x.mean().expand_as(x).clone() for n, x in own.items()} if means else own)
        t0 += len(batches)  # the same for all clients
        w, hat, v = add(w, mean(moves)), scale(1 / lr, mean(moves)), mean(squares)
        path.append(w)
    return path


def fedmuon(
    p: Problem, s: Settings, rounds: int, gamma: float, alpha: float, beta1: float, beta2: float = 0.95
) -> Path:
    """Matrices, buffer = server's: 0.2 sqrt(max(A, B)) NS((1-b) g + b m); others fresh Adam; y += gamma lr Delta/K."""
    w, path = p.start(), []
    buffer, hat = zero(w), zero(w)
    for t in range(rounds):
        lr, moves, buffers = s.lr * s.decay**t, [], []
        for i in p.cohort(t):
            y, m, v, batches = w, buffer, zero(w), p.batches(i, t)
            for k, batch in enumerate(batches, start=1):
                g = clipped(s, p.gradient(y, batch))
                m = add(scale(beta1, m), scale(1 - beta1, g))
                v = add(scale(beta2, v), scale(1 - beta2, times(g, g)))
                step = over(scale(1 / (1 - beta1**k), m), root(v, 1 - beta2**k, 1e-8))
                for n, x in y.items():
                    if is_matrix(x):
                        ahead = ((1 - beta1) * g[n] + beta1 * m[n]).flatten(1)
                        step[n] = 0.2 * sqrt(max(ahead.shape)) * newton_schulz(ahead).view_as(x)
                step = add(scale(alpha * (1 - gamma), step), scale(s.weight_decay, y))
                y = add(sub(y, scale(lr, step)), scale(gamma * lr / len(batches), hat))
            moves.append(sub(y, w))
            buffers.append({n: x if is_matrix(x) else torch.zeros_like(x) for n, x in m.items()})
        w, hat, buffer = add(w, mean(moves)), scale(1 / lr, mean(moves)), mean(buffers)
        path.append(w)
    return path


def turned(x: Tensor, bases: list[np.ndarray], back: bool = False) -> Tensor:
    """Q_a^T on every axis a, or Q_a."""
    out = x.numpy()
    for axis, q in enumerate(bases):
        out = np.moveaxis(np.tensordot(q if back else q.T, out, axes=([1], [axis])), 0, axis)
    return torch.from_numpy(np.ascontiguousarray(out))


def learned(old: list[np.ndarray], g: Tensor, beta: float) -> list[np.ndarray]:
    """L_a <- b L_a + (1 - b) G_a G_a^T for every axis a, one sum of outer products."""
    out = []
    for axis, factor in enumerate(old):
        rows = np.moveaxis(g.numpy(), axis, 0).reshape(g.shape[axis], -1)
        out.append(beta * factor + (1 - beta) * sum(np.outer(x, x) for x in rows.T))
    return out


def eigenvectors(factors: list[np.ndarray]) -> list[np.ndarray]:
    """Of every factor, those of large eigenvalues first."""
    return [np.linalg.eigh(factor)[1][:, ::-1] for factor in factors]


class Soap:
    """SOAP on one tensor, from factors that may be given; a vector has none."""

    def __init__(self, x: Tensor, factors: list[np.ndarray] | None, beta1: float, beta2: float, every: int) -> None:
        self.m, self.v, self.t = torch.zeros_like(x), torch.zeros_like(x), 0
        self.beta1, self.beta2, self.every = beta1, beta2, every
        self.factors = factors or [np.zeros((n, n)) for n in x.shape if x.dim() > 1]
        self.q = eigenvectors(self.factors) if factors else None

    def step(self, g: Tensor) -> Tensor:
        """The direction; zero for the first gradient of all, from which the bases are."""
        if self.q is None:
            self.factors = learned(self.factors, g, self.beta2)
            self.q = eigenvectors(self.factors)
            return torch.zeros_like(g)
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * turned(g, self.q) ** 2
        m = turned(self.m, self.q) / (1 - self.beta1**self.t)
        out = turned(m / (torch.sqrt(self.v / (1 - self.beta2**self.t)) + 1e-8), self.q, back=True)
        self.factors = learned(self.factors, g, self.beta2)
        if self.t % self.every == 0:
            for axis, factor in enumerate(self.factors):
                q = self.q[axis]
                order = np.argsort(-np.array([q[:, j] @ factor @ q[:, j] for j in range(len(q))]), kind="stable")
                self.v = torch.from_numpy(np.take(self.v.numpy(), order, axis))
                self.q[axis] = np.linalg.qr(factor @ q[:, order])[0]
        return out


def fedpac_soap(
    p: Problem, s: Settings, rounds: int, gamma: float, frequency: int, beta1: float = 0.95, beta2: float = 0.95
) -> Path:
    """y -= lr ((1 - gamma) SOAP + wd y) - gamma lr Delta/K, SOAP from the mean factors with m = v = 0."""
    w, path = p.start(), []
    hat, known = zero(w), dict[str, list[np.ndarray]]()
    for t in range(rounds):
        lr, moves, found = s.lr * s.decay**t, [], []
        for i in p.cohort(t):
            y, batches = w, p.batches(i, t)
            soaps = {n: Soap(x, known.get(n), beta1, beta2, frequency) for n, x in w.items()}
            for soap in soaps.values():  # vectors have bases, none, from the second round on
                soap.q = [] if known and soap.q is None else soap.q
            for batch in batches:
                g = clipped(s, p.gradient(y, batch))
                step = {n: soaps[n].step(g[n]) for n in g}
                step = add(scale(1 - gamma, step), scale(s.weight_decay, y))
                y = add(sub(y, scale(lr, step)), scale(gamma * lr / len(batches), hat))
            moves.append(sub(y, w))
            found.append({n: soap.factors for n, soap in soaps.items()})
        known = {n: [np.mean([one[n][a] for one in found], axis=0) for a in range(len(found[0][n]))] for n in w}
        w, hat = add(w, mean(moves)), scale(1 / lr, mean(moves))
        path.append(w)
    return path


def lmo(a: Params) -> Params:
    """U V^T of matrices by the SVD, unit vectors of the rest."""
    out = {}
    for n, x in a.items():
        if is_matrix(x):
            u, _, v = np.linalg.svd(x.flatten(1).numpy(), full_matrices=False)
            out[n] = torch.from_numpy(u @ v).view_as(x)
        else:
            out[n] = x / (x.norm() + 1e-12)
    return out


def fedmuon_cv(p: Problem, s: Settings, rounds: int, a: float) -> Path:
    """M_i <- (1-a) M_i + a g; y -= lr LMO(M_i - C_i + C); C_i^+ = M_i; C += 1/N sum dC; w = w + 1/N sum (y - w)."""
    w, c, path = p.start(), zero(p.start()), []
    ms: dict[int, Params] = {}
    cs: dict[int, Params] = {}
    for t in range(rounds):
        moves, changes = [], []
        for i in p.cohort(t):
            y, m, own = w, ms.get(i, zero(w)), cs.get(i, zero(w))
            for batch in p.batches(i, t):
                g = add(clipped(s, p.gradient(y, batch)), scale(s.weight_decay, y))
                m = add(scale(1 - a, m), scale(a, g))
                y = sub(y, scale(s.lr * s.decay**t, lmo(add(sub(m, own), c))))
            moves.append(sub(y, w))
            changes.append(sub(m, own))
            ms[i] = cs[i] = m
        w = add(w, scale(1 / p.population, total(moves)))
        c = add(c, scale(1 / p.population, total(changes)))
        path.append(w)
    return path


def delta_sgd(p: Problem, s: Settings, rounds: int, gamma: float, delta: float) -> Path:
    """eta_k = min(gamma |y_k - y_{k-1}| / (2 |g(y_k) - g(y_{k-1})|), sqrt(1 + delta theta) eta_{k-1}); FedAvg."""
    w, path = p.start(), []
    for t in range(rounds):
        ends, sizes = [], []
        for i in p.cohort(t):
            ys, eta, theta = [w], s.lr * s.decay**t, 1.0
            for batch in p.batches(i, t):
                g = p.gradient(ys[-1], batch)
                if len(ys) > 1:
                    turned = norm(sub(g, p.gradient(ys[-2], batch)))
                    bound = gamma * norm(sub(ys[-1], ys[-2])) / (2 * turned) if turned else float("inf")
                    new = min(bound, sqrt(1 + delta * theta) * eta)
                    theta, eta = new / eta, new
                ys.append(sub(ys[-1], scale(eta, add(clipped(s, g), scale(s.weight_decay, ys[-1])))))
            sizes.append(float(p.examples(i)))
            ends.append(scale(sizes[-1], ys[-1]))
        w = scale(1 / sum(sizes), total(ends))
        path.append(w)
    return path


METHODS: dict[str, Callable[..., Any]] = {
    "fedadamw": fedadamw,
    "fedlada": lambda p, s, n, gamma: fedadamw(p, s, n, gamma, means=False, convex=True),
    "fedmuon": fedmuon,
    "fedpac-muon": lambda p, s, n, gamma: fedmuon(p, s, n, gamma, 1.0, 0.95),
    "fedpac-soap": fedpac_soap,
    "fedmuon-cv": lambda p, s, n, a, iterations: fedmuon_cv(p, s, n, a),
    "delta-sgd": delta_sgd,
}
