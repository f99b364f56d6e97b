"""Personal methods that compare features by class, one example at a time, straight from the sheet of newest methods.

The network is that of `drift.projected`; features are what its head reads.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .drift import projected
from .labels import ce, corners, plain_ce
from .methods import Params, Settings, add, norm, scale, sub, total
from .personal import Own, Problem, Result, average, stepped

HEAD = {"head.weight", "head.bias"}


def features(x: Params, batches: list[Any]) -> dict[int, list[Tensor]]:
    """The features of all examples, class by class."""
    found: dict[int, list[Tensor]] = {}
    for inputs, labels in batches:
        for z, y in zip(projected(x, inputs, "")[1], labels.tolist(), strict=True):
            found.setdefault(y, []).append(z)
    return found


def mean(rows: list[Tensor]) -> Tensor:
    """The mean of some vectors."""
    out = torch.zeros_like(rows[0])
    for row in rows:
        out = out + row / len(rows)
    return out


def gradient(x: Params, loss: Callable[[Params], Tensor]) -> Params:
    """The gradient of a loss at x; zero for tensors it does not depend on."""
    leaves = {n: v.clone().requires_grad_() for n, v in x.items()}
    found = torch.autograd.grad(loss(leaves), list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(x[n]) if g is None else g for n, g in zip(leaves, found, strict=True)}


def fedas(p: Problem, s: Settings, rounds: int, rate: float) -> Result:
    """Align z(x) with the class means at the old model, train, keep the head; weights mean_b |g_b|^2."""
    w, last, path = p.start(), dict[int, Params](), []
    every = set(w)
    for t in range(rounds):
        moved: Own = {}
        traces: dict[int, float] = {}
        for i in p.cohort(t):
            x = {n: last[i][n] if i in last and n in HEAD else w[n] for n in w}
            if i in last:
                batches = p.aside(i, t, "align")
                own = {y: mean(rows) for y, rows in features(last[i], batches).items()}
                for batch in batches:

                    def distance(x: Params, batch: Any = batch, own: dict[int, Tensor] = own) -> Tensor:
                        here = features(x, [batch])
                        return torch.stack(
                            [torch.stack([(z - own[y]) ** 2 for z in rows]).mean() for y, rows in here.items()]
                        ).sum()

                    x = sub(x, scale(rate, gradient(x, distance)))
            move = s.mover()
            for batch in p.batches(i, t):
                x = stepped(s, move, s.lr * s.decay**t, p.gradient(x, batch), x, every)
            squares = [norm(p.gradient(x, batch)) ** 2 for batch in p.aside(i, t, "fisher")]
            traces[i], last[i] = sum(squares) / len(squares), x
            moved[i] = {n: w[n] if n in HEAD else x[n] for n in w}
        moves = [scale(traces[i] / sum(traces.values()), sub(moved[i], w)) for i in moved]
        w = add(w, total(moves))
        path.append(w)
    return path, {i: {n: last[i][n] if i in last and n in HEAD else w[n] for n in w} for i in range(p.population)}


def best_weights(q: Tensor) -> Tensor:
    """argmin a^T q a, a >= 0, sum a = 1: the best of the stationary points of all supports."""
    best, value = torch.zeros(len(q), dtype=q.dtype), float("inf")
    for size in range(1, len(q) + 1):
        for chosen in combinations(range(len(q)), size):
            raw = torch.linalg.pinv(q[list(chosen)][:, list(chosen)]).sum(1)
            a = torch.zeros(len(q), dtype=q.dtype)
            a[list(chosen)] = raw / raw.sum()
            if float(a.min()) >= -1e-12 and float(a @ q @ a) < value - 1e-15:
                best, value = a, float(a @ q @ a)
    return best


def fedpac(
    p: Problem, s: Settings, rounds: int, lam: float, share: float, weights: Callable[[Tensor], Tensor] = best_weights
) -> Result:
    """Heads sum_j a_j H_j; that share of the steps moves the head, the rest the body with lam mean (z - c_y)^2."""
    w, path = p.start(), []
    kept: dict[int, tuple[Params, dict[int, Tensor], float]] = {}
    cohort: list[int] = []
    prototypes: dict[int, Tensor] = {}
    for t in range(rounds):
        moved: Own = {}
        now: dict[int, tuple[Params, dict[int, Tensor], float]] = {}
        sums: dict[int, list[Tensor]] = {}
        for i in p.cohort(t):
            found = features(w, p.aside(i, t, "features"))
            n = sum(len(rows) for rows in found.values())
            h = {y: mean(rows) * (len(rows) / n) for y, rows in found.items()}
            squared = sum(float(z @ z) for rows in found.values() for z in rows) / n
            v = (squared - sum(float(row @ row) for row in h.values())) / n
            x = w
            if cohort:
                others = [*cohort] if i in cohort or i not in kept else [*cohort, i]
                own = kept[i][1] if i in kept else h
                zero = torch.zeros(4, dtype=torch.float64)
                away = [torch.cat([own.get(y, zero) - kept[j][1].get(y, zero) for y in range(3)]) for j in others]
                q = torch.tensor([[float(one @ two) for two in away] for one in away], dtype=torch.float64)
                a = weights(q + torch.diag(torch.tensor([kept[j][2] for j in others], dtype=torch.float64)))
                combined = total([scale(float(a[k]), kept[j][0]) for k, j in enumerate(others)])
                x = {n: combined[n] if n in HEAD else w[n] for n in w}
            batches = p.batches(i, t)
            for k, batch in enumerate(batches):

                def loss(x: Params, batch: Any = batch, prototypes: dict[int, Tensor] = prototypes) -> Tensor:
                    out = plain_ce(x, batch)
                    z = projected(x, batch[0], "")[1]
                    pulls = [
                        (row - prototypes[y]) ** 2 if y in prototypes else torch.zeros_like(row)
                        for row, y in zip(z, batch[1].tolist(), strict=True)
                    ]
                    return out + lam * torch.stack(pulls).mean()

                names = HEAD if k < int(share * len(batches) + 1e-9) else set(w) - HEAD
                g = gradient(x, loss)
                g = {n: g[n] if n in names else torch.zeros_like(g[n]) for n in g}
                x = stepped(s, s.mover(), s.lr * s.decay**t, g, x, names)
            for y, rows in features(x, p.aside(i, t, "prototypes")).items():
                sums.setdefault(y, []).extend(rows)
            moved[i], now[i] = x, (x, h, v)
        prototypes = {**prototypes, **{y: mean(rows) for y, rows in sums.items()}}
        w = average(p, p.cohort(t), w, moved)
        cohort = p.cohort(t)
        kept.update(now)
        path.append(w)
    return path, {i: {n: kept[i][0][n] if i in kept and n in HEAD else w[n] for n in w} for i in range(p.population)}


def lda(mu: np.ndarray, spread: np.ndarray, log_pi: np.ndarray) -> Params:
    """a_c = S'^-1 mu_c, b_c = log pi_c - mu_c . a_c / 2, S' = (1 - e) S + e tr(S)/d I, e = 1e-4."""
    d = len(spread)
    shrunk = (1 - 1e-4) * spread + 1e-4 * np.trace(spread) / d * np.eye(d)
    rows = [np.linalg.inv(shrunk) @ m for m in mu]
    b = [log_pi[c] - mu[c] @ rows[c] / 2 for c in range(len(mu))]
    return {"head.weight": torch.from_numpy(np.stack(rows)), "head.bias": torch.tensor(b, dtype=torch.float64)}


def gaussians(found: dict[int, list[Tensor]], mu: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Class means, those of all clients with two examples or fewer, and the covariance around them."""
    own = mu.copy()
    for c, rows in found.items():
        if len(rows) > 2:
            own[c] = sum(z.numpy() for z in rows) / len(rows)
    n, d = sum(len(rows) for rows in found.values()), mu.shape[1]
    away = [z.numpy() - own[c] for c, rows in found.items() for z in rows]
    scatter = np.sum([np.outer(x, x) for x in away], axis=0)
    return own, scatter / max(n - 1, 1) + ridge * np.eye(d)


def best_beta(
    found: dict[int, list[Tensor]], mu: np.ndarray, spread: np.ndarray, log_pi: np.ndarray, ridge: float
) -> float:
    """Of 0, .05, ..., 1 the one with the least cross entropy of each half under the head from the other half."""
    several = {c: rows for c, rows in found.items() if len(rows) > 1}
    halves = [{c: rows[k::2] for c, rows in several.items()} for k in (0, 1)]
    losses = []
    for k in range(21 if several else 1):
        loss = 0.0
        for fit, rest in (halves, halves[::-1]) if several else ():
            own, covariance = gaussians(fit, mu, ridge)
            b = k / 20
            head = lda(b * own + (1 - b) * mu, b * covariance + (1 - b) * spread, log_pi)
            pairs = [(z, c) for c, rows in rest.items() for z in rows]
            logits = [head["head.weight"] @ z + head["head.bias"] for z, _ in pairs]
            loss += sum(float(torch.logsumexp(x, 0) - x[c]) for x, (_, c) in zip(logits, pairs, strict=True)) / len(
                pairs
            )
        losses.append(loss)
    return min(k for k, loss in enumerate(losses) if loss <= min(losses) + 1e-9) / 20


def pfedfda(
    p: Problem, s: Settings, rounds: int, first: np.ndarray, beta: float | None = None, ridge: float = 1.0
) -> Result:
    """Heads are discriminants of (mu, S); the body is trained; (mu, S) <- sum n_i/n (beta own + (1 - beta) old)."""
    w, path, heads = p.start(), [], dict[int, Params]()
    mu, spread = first, np.eye(first.shape[1])
    body = set(w) - HEAD
    for t in range(rounds):
        moved, sizes, mus, spreads = Own(), [], [], []
        for i in p.cohort(t):
            classes = [y for batch in p.aside(i, t, "labels") for y in batch[1].tolist()]
            pi = np.array([classes.count(c) / len(classes) + 1e-4 for c in range(len(mu))])
            log_pi = np.log(pi / pi.sum())
            x, move = {**w, **lda(mu, spread, log_pi)}, s.mover()
            for batch in p.batches(i, t):
                g = {n: v if n in body else torch.zeros_like(v) for n, v in p.gradient(x, batch).items()}
                x = stepped(s, move, s.lr * s.decay**t, g, x, body)
            found = features(x, p.aside(i, t, "gaussians"))
            b = best_beta(found, mu, spread, log_pi, ridge) if beta is None else beta
            own, covariance = gaussians(found, mu, ridge)
            mus.append(b * own + (1 - b) * mu)
            spreads.append(b * covariance + (1 - b) * spread)
            sizes.append(p.examples(i))
            heads[i] = lda(mus[-1], spreads[-1], log_pi)
            moved[i] = {n: x[n] if n in body else w[n] for n in w}
        w = average(p, p.cohort(t), w, moved)
        mu, spread = (np.average(x, axis=0, weights=sizes) for x in (mus, spreads))
        w = {**w, **lda(mu, spread, np.zeros(len(mu)))}
        path.append(w)
    return path, {i: {**w, **heads.get(i, {})} for i in range(p.population)}


def sparse_corners(classes: int, dimension: int, sparsity: float) -> np.ndarray:
    """1,000 steps along the gradient of ||V^T V - S||^2 / 4 on the entries that are kept; columns of length one."""
    v = corners(classes, dimension, 0).numpy()
    kept: np.ndarray = np.ones(v.size)
    order = torch.randperm(v.size, generator=torch.Generator().manual_seed(0)).tolist()
    kept[order[: int(sparsity * v.size)]] = 0
    kept = kept.reshape(v.shape)
    apart = np.full((classes, classes), -1 / (classes - 1))
    np.fill_diagonal(apart, 1)
    v = v * kept
    v = v / np.sqrt((v**2).sum(0))
    for _ in range(1000):
        v = v - 0.25 * kept * (v @ (v.T @ v - apart))
    return np.asarray(v / np.sqrt((v**2).sum(0)))


def fedloge(p: Problem, s: Settings, rounds: int, sparsity: float = 0.6, length: float = 0.1) -> Result:
    """x by CE(c V^T z) + CE(A [z] + b), [z] fixed; (L, l) by CE(L [z] + l); ||L_c|| A_c + L_c, b + l evaluated."""
    w, path, own, classes = p.start(), [], dict[int, Params](), dict[int, set[int]]()
    v = length * torch.from_numpy(sparse_corners(3, 4, sparsity))
    for t in range(rounds):
        moved: Own = {}
        for i in p.cohort(t):
            classes[i] = {y for batch in p.aside(i, t, "labels") for y in batch[1].tolist()}
            x, head = w, own.get(i, {n: w[n] for n in w if n in HEAD})
            for batch in p.batches(i, t):

                def towards(x: Params, batch: Any = batch) -> Tensor:
                    logits = [z @ v for z in projected(x, batch[0], "")[1]]
                    return torch.stack([ce(z, y) for z, y in zip(logits, batch[1].tolist(), strict=True)]).mean()

                def plain(x: Params, batch: Any = batch) -> Tensor:
                    return plain_ce(x, batch)

                eta = s.lr * s.decay**t
                of_head, of_mine = gradient({**x, **head}, plain), gradient(x, plain)
                g = {n: of_mine[n] if n in HEAD else found for n, found in gradient(x, towards).items()}
                mine = {n: of_head[n] for n in head}
                if s.clip is not None and norm(mine) > s.clip:
                    mine = scale(s.clip / norm(mine), mine)
                head = sub(head, scale(eta, add(mine, scale(s.weight_decay, head))))
                x = stepped(s, s.mover(), eta, g, x, set(x))
            moved[i], own[i] = x, head
        w = average(p, p.cohort(t), w, moved)
        path.append(w)
    models = {}
    for i in range(p.population):
        rows, biases = w["head.weight"].clone(), w["head.bias"].clone()
        for c in range(3):
            row = rows[c].clone()
            if i not in own:
                rows[c] = 1.7 * row / row.square().sum().sqrt()
            elif c in classes[i]:
                private = own[i]["head.weight"][c]
                rows[c] = private.square().sum().sqrt() * row + private
                biases[c] += own[i]["head.bias"][c]
            else:
                rows[c], biases[c] = 0.0, -1e4
        models[i] = {**w, "head.weight": rows, "head.bias": biases}
    return path, models
