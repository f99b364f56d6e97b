"""FedFSA, FedWMSAM and FedSCAM, one tensor at a time, straight from the reference sheet; settings as in methods."""

from collections.abc import Callable
from itertools import count
from math import isnan
from typing import Any

import torch
from torch import Tensor

from .methods import Params, Path, Problem, Settings, add, local, mean, norm, scale, sub, total, unit, zero


def slope(s: Settings, t: int, xs: Path) -> Params:
    """-D/(K*lr), D without its weight-decay part."""
    lr = s.lr * s.decay**t
    undecayed = add(sub(xs[-1], xs[0]), scale(lr * s.weight_decay, total(xs[:-1])))
    return scale(-1.0 / ((len(xs) - 1) * lr), undecayed)


def sensitivity(old: Tensor, new: Tensor, measure: str) -> float:
    """mean_j (mm(new)_j - mm(old)_j)^2, mm(u) = (u - min u)/(max u - min u); raw: without mm; sum: of the raw."""
    a, b = old.reshape(-1).tolist(), new.reshape(-1).tolist()
    if measure == "normalized":
        if min(a) == max(a) or min(b) == max(b):
            return float("nan")
        a, b = ([(x - min(u)) / (max(u) - min(u)) for x in u] for u in (a, b))
    out: float = sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (1 if measure == "sum" else len(a))
    return out


def choose(scores: dict[str, float], most: int, choice: str) -> list[str]:
    """The largest, or smallest that are not zero; ties: the first; NaN last."""
    left, out = {name: x for name, x in scores.items() if choice != "smallest" or x != 0}, list[str]()
    while left and len(out) < most:
        numbers = {name: x for name, x in left.items() if not isnan(x)}
        best = (min if choice == "smallest" else max)(numbers, key=numbers.__getitem__) if numbers else next(iter(left))
        out.append(best)
        del left[best]
    return out


def raised(p: Problem, x: Params, batch: Any, rho: float, larger: float, top: list[str], blend: float = 1.0) -> Params:
    """delta_k = rho_k*g1_k/norm(g1), rho_k = larger for k in Top_i; (1-blend)*g1 + blend*G(x+delta)."""
    g1 = p.gradient(x, batch)
    size = norm(g1) + 1e-12
    delta = {name: (larger if name in top else rho) * g1[name] / size for name in g1}
    return add(scale(1 - blend, g1), scale(blend, p.gradient(add(x, delta), batch)))


def fedspeed_fsa(
    p: Problem,
    s: Settings,
    n: int,
    rho: float,
    larger: float,
    chosen: int,
    mu: float,
    blend: float,
    eligible: tuple[str, ...],
) -> Path:
    """v = raised - gh_i + mu*(x-w^t); gh_i -= mu*D_i; lambda -= mu/N sum D_i; w = mean x_i - lambda/mu."""
    w, path, top = p.start(), [], dict[int, list[str]]()
    duals, dual = dict[int, Params](), zero(w)
    for t in range(n):
        models, moves = [], []
        for client in p.cohort(t):
            own = duals.get(client, zero(w))

            def rule(p: Problem, client: int, w: Params, x: Params, batch: Any) -> Params:
                return raised(p, x, batch, rho, larger, top.get(client, []), blend)

            xs, _ = local(p, s, t, client, w, rule, lambda g, x, h=own, w=w: add(sub(g, h), scale(mu, sub(x, w))))  # type: ignore[misc]
            scores = {name: sensitivity(w[name], xs[-1][name], "normalized") for name in eligible}
            top[client] = choose(scores, chosen, "largest")
            models.append(xs[-1])
            moves.append(sub(xs[-1], w))
            duals[client] = sub(own, scale(mu, moves[-1]))
        dual = sub(dual, scale(mu / p.population, total(moves)))
        w = sub(mean(models), scale(1 / mu, dual))
        path.append(w)
    return path


def fedfsa(
    p: Problem,
    s: Settings,
    n: int,
    rho: float,
    larger: float,
    chosen: int,
    a: float,
    eligible: tuple[str, ...],
    choice: str = "largest",
    measure: str = "normalized",
    draw: Callable[[int, int], list[float]] | None = None,
) -> Path:
    """delta_k = rho_k*g1_k/norm(g1), rho_k = larger for k in Top_i; v = a*G(x+delta) + (1-a)*m; FedCM's server."""
    w, m, path, top = p.start(), zero(p.start()), [], dict[int, list[str]]()
    for t in range(n):
        moves, slopes = [], []
        for client in p.cohort(t):

            def rule(p: Problem, client: int, w: Params, x: Params, batch: Any) -> Params:
                return raised(p, x, batch, rho, larger, top.get(client, []))

            xs, _ = local(p, s, t, client, w, rule, lambda g, x, m=m: add(scale(a, g), scale(1 - a, m)))  # type: ignore[misc]
            scores = {name: sensitivity(w[name], xs[-1][name], measure) for name in eligible}
            if choice == "random":
                scores = dict(zip(eligible, draw(client, t), strict=True))  # type: ignore[misc]
            top[client] = choose(scores, chosen, choice)
            moves.append(sub(xs[-1], w))
            slopes.append(slope(s, t, xs))
        w, m = add(w, mean(moves)), mean(slopes)
        path.append(w)
    return path


def dot(a: Params, b: Params) -> float:
    """<a, b> over all tensors together."""
    return sum(float((a[name] * b[name]).sum()) for name in a)


def fedwmsam(
    p: Problem, s: Settings, n: int, rho: float, a: float, lam: float, variates: bool = True, scaled: bool = False
) -> Path:
    """M_k = Delta + a/(1-a)*(c - c_k); delta = rho*U(w + b*M_k - x); v = a*G(x+delta) + (1-a)*M_k."""
    w, path, own = p.start(), [], dict[int, Params]()
    momentum, c = zero(w), zero(w)
    for t in range(n):
        moves, slopes, changes, turns = [], [], [], []
        for client in p.cohort(t):
            old = own.get(client, zero(w))
            m_k = add(momentum, scale(a / (1 - a), sub(c, old))) if variates else momentum
            steps = count(0.0, s.lr * s.decay**t if scaled else 1.0)

            def rule(
                p: Problem, client: int, w: Params, x: Params, batch: Any, m_k: Any = m_k, steps: Any = steps
            ) -> Params:
                ahead = sub(add(w, scale(next(steps), m_k)), x)
                return p.gradient(add(x, scale(rho, unit(ahead))), batch)

            xs, _ = local(p, s, t, client, w, rule, lambda g, x, m_k=m_k, a=a: add(scale(a, g), scale(1 - a, m_k)))  # type: ignore[misc]
            moves.append(sub(xs[-1], w))
            slopes.append(slope(s, t, xs))
            own[client] = add(sub(old, c), slopes[-1])
            changes.append(sub(own[client], old))
            apart = norm(moves[-1]) * norm(momentum)
            turns.append(0.0 if norm(momentum) == 0 else 1 + dot(moves[-1], momentum) / apart)
        w, momentum = add(w, mean(moves)), mean(slopes)
        c = add(c, scale(1.0 / p.population, total(changes)))
        a = (1 - lam) * a + lam * min(max(sum(turns) / len(turns), 0.1), 0.9)
        path.append(w)
    return path


def hashed(j: int) -> int:
    """The (j+1)-th output of splitmix64 from state 0: 64 bits."""
    mask = (1 << 64) - 1
    z = (j + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def proj(a: Params, q: int) -> Tensor:
    """Proj(x)_k = sum of sign(j)*x_j over bucket(j) = k; the lowest bit is the sign, the others the bucket."""
    out = [0.0] * q
    for j, x in enumerate(torch.cat([a[name].reshape(-1) for name in a]).tolist()):
        bits = hashed(j)
        out[(bits >> 1) % q] += x if bits & 1 else -x
    return torch.tensor(out, dtype=torch.float64)


def cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of two vectors, 0 if one is zero."""
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size else 0.0


def groups(points: list[Tensor], clusters: int) -> list[int]:
    """K-means: centres from randperm with seed 0; a centre without points stays."""
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0)).tolist()
    centres, labels = [points[i] for i in order[:clusters]], [-1] * len(points)
    while True:
        found = [min(range(len(centres)), key=lambda k, z=z: float((z - centres[k]).norm())) for z in points]  # type: ignore[misc]
        if found == labels:
            return labels
        labels = found
        for k in range(len(centres)):
            inside = [z for z, label in zip(points, labels, strict=True) if label == k]
            centres[k] = sum(inside) / len(inside) if inside else centres[k]


def dampened(moves: Path, clients: list[int], q: int, clusters: int, damp: float) -> list[float]:
    """Of every pair of one cluster with cos < 0 the shorter, or at a tie the larger client number, gets damp, once."""
    points = [proj(unit(move), q) for move in moves]
    points = [z / z.norm() for z in points]
    labels, out = groups(points, clusters), [1.0] * len(moves)
    for i in range(len(moves)):
        for j in range(i):
            if labels[i] == labels[j] and cosine(points[i], points[j]) < 0:
                lost = min((i, j), key=lambda k: (norm(moves[k]), -clients[k]))
                out[lost] = damp
    return out


def fedscam(
    p: Problem,
    s: Settings,
    n: int,
    epochs: int,
    rho: float = 0.0,
    alpha: float = 0.0,
    kappa: float = 0.5,
    gamma: float = 0.0,
    beta: float = 0.0,
    batches: int = 3,
    q: int = 256,
    clusters: int = 0,
    damp: float = 1.0,
) -> Path:
    """rho_i = rho/(1+alpha*hadj); S_i = n_i/(1+gamma*hadj)*max(0, 1+beta*c_i); w += sum S_i m_i D_i/sum S_i."""
    w, path, u = p.start(), [], torch.zeros(q, dtype=torch.float64)
    for t in range(n):
        moves, weights, clients = [], [], p.cohort(t)
        for client in clients:
            plan = p.batches(client, t)
            probe = plan[: len(plan) // epochs][:batches]
            h = sum(norm(p.gradient(w, batch)) for batch in probe) / len(probe)
            ahead = scale(0.5 * rho / (1 + alpha * h), unit(p.gradient(w, probe[0])))
            v = scale(-1.0, p.gradient(add(w, ahead), probe[0]))
            c = cosine(proj(unit(v), q), u)
            hadj = h * max(0.0, 1 - kappa * c)

            def rule(
                p: Problem, client: int, w: Params, x: Params, batch: Any, r: Any = rho / (1 + alpha * hadj)
            ) -> Params:
                return p.gradient(add(x, scale(r, unit(p.gradient(x, batch)))), batch)

            xs, _ = local(p, s, t, client, w, rule, lambda g, x: g)
            moves.append(sub(xs[-1], w))
            weights.append(p.examples(client) / (1 + gamma * hadj) * max(0.0, 1 + beta * c))
        if sum(weights) == 0:
            weights = [float(p.examples(client)) for client in clients]
        factors = dampened(moves, clients, q, clusters, damp) if clusters else [1.0] * len(moves)
        shares = [weight / sum(weights) * factor for weight, factor in zip(weights, factors, strict=True)]
        step = total([scale(share, move) for share, move in zip(shares, moves, strict=True)])
        w, u = add(w, step), proj(unit(step), q)
        path.append(w)
    return path
