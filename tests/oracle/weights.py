"""Weighing and robust rules, one client at a time in plain loops, straight from the reference sheet.

A rule gets the displacements, the sizes, the model that was sent and what it kept; it gives the new model and what it
keeps. Local training is plain SGD.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .methods import Params, Path, Problem, Settings, local, plain

Rows = list[np.ndarray]
Told = dict[str, Any]  # clients, sizes, model, kept, and what the method's own data are
Rule = Callable[..., np.ndarray]


def flat(params: Params) -> np.ndarray:
    """All tensors in one vector."""
    return np.concatenate([x.detach().numpy().reshape(-1) for x in params.values()])


def unflat(v: np.ndarray, like: Params) -> Params:
    """A vector as tensors."""
    out, at = {}, 0
    for name, x in like.items():
        out[name] = x.new_tensor(v[at : at + x.numel()]).reshape(x.shape)
        at += x.numel()
    return out


def softmax(t: np.ndarray) -> np.ndarray:
    """e^t / sum e^t."""
    e = np.exp(t - t.max())
    out: np.ndarray = e / e.sum()
    return out


def mixture(rows: Rows, weights: Any) -> np.ndarray:
    """sum_i a_i D_i / sum_i a_i."""
    out = np.zeros_like(rows[0])
    for a, row in zip(weights, rows, strict=True):
        out = out + a * row
    return out / float(np.sum(weights))


class Adam:
    """Adam by the book, betas (0.5, 0.999), eps 1e-8."""

    def __init__(self, size: int) -> None:
        self.t, self.m, self.v = 0, np.zeros(size), np.zeros(size)

    def step(self, x: np.ndarray, g: np.ndarray, lr: float) -> np.ndarray:
        """One step."""
        self.t += 1
        self.m = 0.5 * self.m + 0.5 * g
        self.v = 0.999 * self.v + 0.001 * g * g
        return x - lr * (self.m / (1 - 0.5**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


def feddisco(rows: Rows, result: Told, a: float, b: float, metric: str = "kl", reference: Any = ()) -> np.ndarray:
    """r_i = max(0, p_i - a d_i + b); KL over the cohort's sum; p_i if all r_i are zero."""
    distances = []
    for counts in result["label_counts"]:
        own = np.array(counts, dtype=float) / sum(counts)
        prior = np.array(reference) if len(reference) else np.full(len(own), 1 / len(own))
        if metric == "l2":
            distances.append(math.sqrt(sum((own - prior) ** 2)))
        else:
            distances.append(sum(x * math.log(x / y) for x, y in zip(own, prior, strict=True) if x > 0))
    if metric == "kl" and sum(distances) > 0:
        distances = [d / sum(distances) for d in distances]
    p = [n / sum(result["sizes"]) for n in result["sizes"]]
    r = [max(0.0, p_i - a * d_i + b) for p_i, d_i in zip(p, distances, strict=True)]
    return mixture(rows, r if sum(r) > 0 else p)


def alignment(lam: np.ndarray, rows: Rows, w: np.ndarray) -> tuple[float, np.ndarray]:
    """J by the vectors themselves, and its derivative by the logits."""
    target = mixture(rows, lam)
    away = [math.sqrt(float((row - target) @ (row - target)) + 1e-12) for row in rows]
    turn = [1 - float((w + row) @ w) / (np.linalg.norm(w + row) * np.linalg.norm(w)) for row in rows]
    value = sum(lam[i] * (away[i] + turn[i]) for i in range(len(rows)))
    by_share = np.array(
        [
            away[k] + turn[k] + sum(lam[i] * float((target - rows[i]) @ rows[k]) / away[i] for i in range(len(rows)))
            for k in range(len(rows))
        ]
    )
    return value, lam * (by_share - lam @ by_share)


def fedawa(rows: Rows, result: Told, steps: int, lr: float) -> np.ndarray:
    """Logits by client, log n_i at first sight, Adam on J, weights after the steps."""
    table, adam = result["kept"], Adam(len(rows))
    t = np.array([table.get(c, math.log(n)) for c, n in zip(result["clients"], result["sizes"], strict=True)])
    for _ in range(steps):
        t = adam.step(t, alignment(softmax(t), rows, result["model"])[1], lr)
    table.update(zip(result["clients"], t, strict=True))
    return mixture(rows, softmax(t))


def fedlws(rows: Rows, result: Told, beta: float, low: float, high: float) -> np.ndarray:
    """w_l = gamma_l (w_l + A_l), every tensor a layer of its own."""
    w, moved, out, at = result["model"], mixture(rows, result["sizes"]), np.zeros_like(rows[0]), 0
    for size in result["tensors"]:
        part = slice(at, at + size)
        centre = sum(row[part] for row in rows) / len(rows)
        var = sum(float(np.linalg.norm(row[part] - centre)) for row in rows) / len(rows)
        tau = min(high, max(low, beta * var))
        length = float(np.linalg.norm(w[part]))
        gamma = length / (length + tau * float(np.linalg.norm(moved[part])))
        out[part] = gamma * (w[part] + moved[part]) - w[part]
        at += size
    return out


def fedlaw(
    rows: Rows, result: Told, epochs: int, lr: float, form: str = "exp", shrink: bool = True, halving: int = 20
) -> np.ndarray:
    """theta = (T, s), one Adam step for each proxy batch; derivatives by hand."""
    m, w, adam = len(rows), result["model"], Adam(len(rows) + 1)
    models = [w + row for row in rows]
    p = np.array(result["sizes"], dtype=float) / sum(result["sizes"])
    theta = np.append(np.log(p), 0.0) if form == "exp" else np.append(np.full(m, math.sqrt(1 / m)), 1.0)

    def parts() -> tuple[np.ndarray, float]:
        if form == "exp":
            return softmax(theta[:m]), math.exp(theta[m]) if shrink else 1.0
        return theta[:m] ** 2 / sum(theta[:m] ** 2), theta[m] ** 2 if shrink else 1.0

    for epoch in range(epochs):
        for batch in result["proxy"]:
            lam, gamma = parts()
            mean = mixture(models, lam)
            g = result["gradient"](gamma * mean, batch)
            pull = np.array([gamma * float(g @ (model - mean)) for model in models])
            by_t = lam * pull if form == "exp" else 2 * theta[:m] / sum(theta[:m] ** 2) * pull
            by_s = float(g @ mean) * (gamma if form == "exp" else 2 * theta[m]) if shrink else 0.0
            theta = adam.step(theta, np.append(by_t, by_s), lr * 0.5 ** (epoch // halving))
    lam, gamma = parts()
    out: np.ndarray = gamma * mixture(models, lam) - w
    return out


def median(rows: Rows, result: Told) -> np.ndarray:
    """Per coordinate; even m: mean of the two in the middle."""
    return np.array([float(np.median([row[j] for row in rows])) for j in range(len(rows[0]))])


def trimmed_mean(rows: Rows, result: Told, f: int) -> np.ndarray:
    """Per coordinate without the f largest and smallest."""
    columns = [sorted(row[j] for row in rows) for j in range(len(rows[0]))]
    return np.array([sum(c[f : len(c) - f]) / (len(c) - 2 * f) for c in columns])


def krum_scores(rows: Rows, f: int) -> list[float]:
    """The m-f-2 (one at least) smallest squared distances to others, summed."""
    out = []
    for i, one in enumerate(rows):
        others = sorted(float(((one - other) ** 2).sum()) for j, other in enumerate(rows) if j != i)
        out.append(sum(others[: max(1, len(rows) - f - 2)]))
    return out


def multi_krum(rows: Rows, result: Told, f: int, q: int) -> np.ndarray:
    """Mean of the q best scores; ties to the lowest index."""
    scores = krum_scores(rows, f)
    best = sorted(range(len(rows)), key=lambda i: (scores[i], i))[:q]
    return sum(rows[i] for i in best) / q  # type: ignore[return-value]


def krum(rows: Rows, result: Told, f: int) -> np.ndarray:
    """The best score."""
    return multi_krum(rows, result, f, 1)


def bulyan(rows: Rows, result: Told, f: int) -> np.ndarray:
    """m-2f times Krum's winner of those left; then the theta-2f values nearest to the median of the chosen."""
    left, chosen = list(rows), []
    for _ in range(len(rows) - 2 * f):
        scores = krum_scores(left, f)
        chosen.append(left.pop(scores.index(min(scores))))
    out = []
    for j in range(len(rows[0])):
        values = [row[j] for row in chosen]
        middle = float(np.median(values))
        nearest = sorted(range(len(values)), key=lambda i: (abs(values[i] - middle), i))[: len(values) - 2 * f]
        out.append(sum(values[i] for i in nearest) / len(nearest))
    return np.array(out)


def norm_clip(rows: Rows, result: Told, c: float | None = None, q: float | None = None, lr: float = 0.2) -> np.ndarray:
    """mean of D_i min(1, C/norm(D_i)); C fixed, the median norm, or following the quantile q."""
    lengths = [float(np.linalg.norm(row)) for row in rows]
    limit = float(np.median(lengths)) if c is None else result["kept"].get("c", c)
    if q is not None:
        bit = sum(1.0 for x in lengths if x <= limit) / len(rows)
        result["kept"]["c"] = limit * math.exp(-lr * (bit - q))
    return sum(row * min(1.0, limit / x) for row, x in zip(rows, lengths, strict=True)) / len(rows)  # type: ignore[return-value]


def weiszfeld(rows: Rows, weights: list[float], passes: int, floor: float) -> Rows:
    """All iterates from the mean on, until the objective drops by less than 1e-6 of itself."""
    zs = [mixture(rows, weights)]

    def objective(z: np.ndarray) -> float:
        return sum(a * float(np.linalg.norm(z - row)) for a, row in zip(weights, rows, strict=True))

    for _ in range(passes):
        b = [a / max(floor, float(np.linalg.norm(zs[-1] - row))) for a, row in zip(weights, rows, strict=True)]
        zs.append(mixture(rows, b))
        if objective(zs[-2]) - objective(zs[-1]) < 1e-6 * objective(zs[-1]):
            break
    return zs


def geometric_median(rows: Rows, result: Told, passes: int, floor: float, by_examples: bool = True) -> np.ndarray:
    """The last of Weiszfeld's iterates."""
    return weiszfeld(rows, result["sizes"] if by_examples else [1.0] * len(rows), passes, floor)[-1]


def run(rule: Rule, p: Problem, s: Settings, rounds: int, **hyper: Any) -> Path:
    """The global model after each round; label counts and proxy batches are the task's."""
    path, kept = [p.start()], dict[str, Any]()
    task: Any = getattr(p, "task", None)
    for t in range(rounds):
        w, clients = path[-1], p.cohort(t)
        rows = [flat(local(p, s, t, c, w, plain, lambda g, _: g)[0][-1]) - flat(w) for c in clients]
        result = {
            "clients": clients,
            "sizes": [p.examples(c) for c in clients],
            "model": flat(w),
            "kept": kept,
            "tensors": [x.numel() for x in w.values()],
            "label_counts": [task.label_counts(c).tolist() for c in clients],
            "proxy": list(task.proxy()),
            "gradient": lambda v, batch, like=w: flat(p.gradient(unflat(v, like), batch)),
        }
        path.append(unflat(flat(w) + rule(rows, result, **hyper), w))
    return path[1:]
