"""Where a library computes something else: the line of mathematics, and a function of NumPy that computes the same.

A difference is stated only if its function gives the library's models to the same tolerance.
"""

from collections.abc import Callable

import numpy as np

from task import FEDERATION, HYPER
from undrift.testing.oracles import Vector, fedavg

MU = HYPER["FedDyn"]["mu"]
ADAM = HYPER["FedAdam"]


def ends(round: int, w: Vector) -> Vector:
    """The local models of a round of plain SGD, one per row.

    Args:
        round: counted from 0.
        w: where they begin.
    """
    return np.stack([FEDERATION.visit(i, round, w)[0] for i in FEDERATION.cohorts[round]])


def mean(round: int, w: Vector) -> Vector:
    """Their mean by examples.

    Args:
        round: counted from 0.
        w: where they begin.
    """
    return np.asarray(FEDERATION.weights(round) @ ends(round, w))


def fedlab_feddyn() -> Vector:
    """Local SGD without the two terms; h <- h - mu/N (sum_S x_i - w)."""
    w, h, path = FEDERATION.start, np.zeros_like(FEDERATION.start), []
    for t in range(len(FEDERATION.cohorts)):
        x = ends(t, w)
        h = h - MU / len(FEDERATION.examples) * (x.sum(axis=0) - w)
        w = x.mean(axis=0) - h / MU
        path.append(w)
    return np.stack(path)


def fluke_feddyn() -> Vector:
    """l_i enters as + a_i l_i, a_i = mu mean(n) / n_i; w <- mean_S x_i + mean_S l_i; newcomers begin at mean_S x_i."""
    w = plain = FEDERATION.start
    rates = MU * np.mean(FEDERATION.examples) / np.array(FEDERATION.examples)
    own: dict[int, Vector] = {}
    path = []
    for t, cohort in enumerate(FEDERATION.cohorts):
        found = []
        for i in cohort:
            begin, dual = (w, own[i]) if i in own else (plain, np.zeros_like(w))
            x, _ = FEDERATION.visit(i, t, begin, rates[i] * dual, rates[i])
            own[i] = dual + rates[i] * (begin - x)
            found.append(x)
        plain = np.mean(found, axis=0)
        w = plain + np.mean([own[i] for i in cohort], axis=0)
        path.append(w)
    return np.stack(path)


def fluke_fedavgm() -> Vector:
    """The momentum is 0 in the first round, so that w stays; then as in the paper."""
    w, v, path = FEDERATION.start, np.zeros_like(FEDERATION.start), []
    for t in range(len(FEDERATION.cohorts)):
        v = HYPER["FedAvgM"]["beta"] * v + w - mean(t, w) if t else v
        w = w - v
        path.append(w)
    return np.stack(path)


def adam(factor: float, rate: Callable[[int], float], inside: bool = False) -> Vector:
    """FedAdam from v = 0 with D multiplied by a factor and a rate of every round.

    Args:
        factor: of D.
        rate: (round, from 1) -> the server's rate.
        inside: whether the second moment has the bias correction inside its root, as in Adam of torch.
    """
    w, m, v, path = FEDERATION.start, 0.0, 0.0, []
    for t in range(len(FEDERATION.cohorts)):
        d = factor * (mean(t, w) - w)
        m = ADAM["beta1"] * m + (1 - ADAM["beta1"]) * d
        v = ADAM["beta2"] * v + (1 - ADAM["beta2"]) * d**2
        root = np.sqrt(v / (1 - ADAM["beta2"] ** (t + 1)) if inside else v)
        w = w + rate(t + 1) * m / (root + ADAM["tau"])
        path.append(w)
    return np.stack(path)


def pfl_scaffold() -> Vector:
    """c_i+ = c_i - c + (x - w)/(K lr): the last difference has the other sign."""
    w, c, path = FEDERATION.start, np.zeros_like(FEDERATION.start), []
    own = [np.zeros_like(w) for _ in FEDERATION.examples]
    for t, cohort in enumerate(FEDERATION.cohorts):
        found, changes = [], []
        for i in cohort:
            x, _ = FEDERATION.visit(i, t, w, c - own[i])
            new = own[i] - c + (x - w) / (FEDERATION.steps(i, t) * FEDERATION.rate(t))
            changes.append(new - own[i])
            found.append(x)
            own[i] = new
        w, c = np.mean(found, axis=0), c + np.sum(changes, axis=0) / len(own)
        path.append(w)
    return np.stack(path)


def _corrected(beta1: float, beta2: float, power: int) -> float:
    """sqrt(1 - beta2^power) / (1 - beta1^power)."""
    return float(np.sqrt(1 - beta2**power) / (1 - beta1**power))


DIFFERENCES: dict[tuple[str, str], tuple[str, Callable[[], Vector]]] = {
    ("FedLab", "FedAvg"): (
        "w <- (1/m) sum_S x_i instead of sum_S n_i x_i / sum_S n_i; the same where clients have equally many examples",
        lambda: fedavg(FEDERATION, weighted=False),
    ),
    ("FedLab", "FedDyn"): (
        "the terms -<l_i, x> + mu/2 \\|x - w\\|^2 are computed from detached parameters and have no gradient, so that "
        "local steps are plain SGD; h <- h - mu/N (sum_S x_i - w) instead of h - mu/N sum_S (x_i - w)",
        fedlab_feddyn,
    ),
    ("fluke", "FedDyn"): (
        "a step has + a_i l_i, a_i = mu mean(n) / n_i, instead of - l_i; w <- mean_S x_i + mean_S l_i instead of "
        "mean_S x_i - h/mu with sums over all clients; a client that joins later begins at mean_S x_i",
        fluke_feddyn,
    ),
    ("fluke", "FedAvgM"): (
        "v = 0 in the first round instead of v = d, so that w does not move in it; later rounds are as in the paper",
        fluke_fedavgm,
    ),
    ("fluke", "FedAdam"): (
        "the server's rate multiplies D already in the mean, D <- lr D, so that tau acts as tau/lr; v starts at 0 "
        "instead of tau^2",
        lambda: adam(ADAM["lr"], lambda _: ADAM["lr"]),
    ),
    ("pfl-research", "SCAFFOLD"): (
        "c_i+ = c_i - c + (x - w)/(K lr) instead of c_i - c + (w - x)/(K lr), with the paper's c - c_i in the step",
        pfl_scaffold,
    ),
    ("pfl-research", "FedAdam"): (
        "it has no FedAdam of its own; with torch's Adam as the server's optimizer m and v have bias corrections, and "
        "v starts at 0 instead of tau^2",
        lambda: adam(1.0, lambda t: ADAM["lr"] / (1 - ADAM["beta1"] ** t), inside=True),
    ),
    ("Flower", "FedAdam"): (
        "the rate of round t = 1, 2, ... is lr sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)), a bias correction that "
        "algorithm 2 lacks, with the power of the next round; v starts at 0 instead of tau^2",
        lambda: adam(1.0, lambda t: ADAM["lr"] * _corrected(ADAM["beta1"], ADAM["beta2"], t + 1)),
    ),
}
"""(library, method) -> what it computes instead."""
