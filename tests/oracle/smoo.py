"""FedSMOO, FedGloSS, FedLWSAM and FedSOL from the sheets: plain loops over clients and steps, tensors by name.

Duals of the model are in its own units, as in the authors' code: h_i = -lambda_i/mu, so that the server needs no dual
of its own: w = (weighted) mean of x_i, from the model that was not shifted, plus the mean of all N clients' h_i.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from .methods import Params, Path, Problem, Settings, add, local, mean, norm, sam, scale, sub, total, unit, zero


class Measured(Problem, Protocol):
    """A problem whose losses are known, too, and in how many batches of which sizes a client's epoch comes."""

    def loss(self, params: Params, batch: Any) -> float: ...
    def sizes(self, client: int) -> list[int]: ...


def fedsmoo(p: Problem, s: Settings, rounds: int, rho: float, mu: float) -> Path:
    """delta = rho*U(G(x) - d_i - s); d_i += delta - s; v = G(x+delta) - lambda_i + mu*(x-w); s = rho*U(mean_S d_i)."""
    w, agreed, path = p.start(), zero(p.start()), []
    d = {client: zero(w) for client in range(p.population)}
    h = {client: zero(w) for client in range(p.population)}
    for t in range(rounds):
        active, ends = p.cohort(t), []

        def rule(p: Problem, client: int, w: Params, x: Params, batch: Any, agreed: Params = agreed) -> Params:
            delta = scale(rho, unit(sub(sub(p.gradient(x, batch), d[client]), agreed)))
            d[client] = sub(add(d[client], delta), agreed)
            return p.gradient(add(x, delta), batch)

        for client in active:
            anchor = sub(w, h[client])
            xs, _ = local(p, s, t, client, w, rule, lambda g, x, a=anchor: add(g, scale(mu, sub(x, a))))  # type: ignore[misc]
            h[client] = add(h[client], sub(xs[-1], w))
            ends.append(xs[-1])
        agreed = scale(rho, unit(mean([d[client] for client in active])))
        w = add(mean(ends), mean(list(h.values())))
        path.append(w)
    return path


def warm(rho: float, first: float, warmup: int, t: int) -> float:
    """rho_t = rho0 + (rho-rho0)*min(1, t/T_s), rho0 no larger than rho."""
    start = min(first, rho)
    return start + (rho - start) * (min(1.0, t / warmup) if warmup else 1.0)


def fedgloss(
    p: Problem, s: Settings, rounds: int, rho: float, rho_l: float, mu: float, warmup: int = 0, first: float = 0.001
) -> Path:
    """wt = w + rho_t*U(pg); v = G(x+delta) - sigma_k + mu*(x-wt); pg = -wmean D_k; w = w - pg - sigma/mu.

    Without mu there is no dual.
    """
    w, pg, path = p.start(), zero(p.start()), []
    h = {client: zero(w) for client in range(p.population)}
    for t in range(rounds):
        wt, moves, weights = add(w, scale(warm(rho, first, warmup, t), unit(pg))), [], []

        rule = partial(sam, rho=warm(rho_l, first, warmup, t))
        for client in p.cohort(t):
            anchor = sub(wt, h[client])
            xs, _ = local(p, s, t, client, wt, rule, lambda g, x, a=anchor: add(g, scale(mu, sub(x, a))))  # type: ignore[misc]
            weights.append(float(p.examples(client)))
            moves.append(scale(weights[-1], sub(xs[-1], wt)))
            if mu:
                h[client] = add(h[client], sub(xs[-1], wt))
        pg = scale(-1.0 / sum(weights), total(moves))
        w = add(sub(w, pg), mean(list(h.values())))
        path.append(w)
    return path


def shares(rule: str, losses: list[float]) -> list[float]:
    """p_i proportional to 1/(L_i+1e-8), or to 1 - L_i/sum L (uniform if the sum is 0 or there is one client)."""
    whole, count = sum(losses), len(losses)
    if rule == "inverse":
        raw = [1 / (loss + 1e-8) for loss in losses]
    elif whole == 0 or count == 1:
        raw = [1.0] * count
    else:
        raw = [1 - loss / whole for loss in losses]
    return [x / sum(raw) for x in raw]


def fedlwsam(p: Measured, s: Settings, rounds: int, rho: float, rule: str = "inverse") -> Path:
    """SAM steps; L_i = mean over the last epoch's examples of the loss at the unperturbed x; w = w + sum p_i D_i."""
    w, path = p.start(), []
    for t in range(rounds):
        moves, losses = [], []
        for client in p.cohort(t):
            xs, _ = local(p, s, t, client, w, partial(sam, rho=rho), lambda g, x: g)
            sizes = p.sizes(client)
            seen = list(zip(xs[:-1], p.batches(client, t), strict=True))[-len(sizes) :]
            each = [n * p.loss(x, batch) for n, (x, batch) in zip(sizes, seen, strict=True)]
            losses.append(sum(each) / sum(sizes))
            moves.append(sub(xs[-1], w))
        w = add(w, total([scale(a, move) for a, move in zip(shares(rule, losses), moves, strict=True)]))
        path.append(w)
    return path


def softmax(z: Tensor) -> Tensor:
    """Row by row."""
    e = torch.exp(z - z.max(dim=1, keepdim=True).values)
    return e / e.sum(dim=1, keepdim=True)


def linear_kl(temperature: float) -> Callable[[Params, Params, Any], Params]:
    """Gradient of KL(softmax(z_g/T) || softmax(z/T)), z = x W^T + b: dz = (softmax(z/T) - softmax(z_g/T))/(T B)."""

    def gradient(w: Params, x: Params, batch: Any) -> Params:
        inputs = batch[0]
        near, far = (softmax((inputs @ m["weight"].T + m["bias"]) / temperature) for m in (x, w))
        dz = (near - far) / temperature / len(inputs)
        return {"weight": dz.T @ inputs, "bias": dz.sum(dim=0)}

    return gradient


def spread(away: Tensor) -> Tensor:
    """|x - w| of length one along axis 0."""
    size = away.abs()
    return size / torch.sqrt((size**2).sum(dim=0, keepdim=True)).clamp(min=1e-12)


def fedsol(
    p: Problem,
    s: Settings,
    rounds: int,
    rho: float,
    gradient: Callable[[Params, Params, Any], Params],
    adaptive: bool = False,
    chosen: tuple[str, ...] | None = None,
) -> Path:
    """delta = rho*U(grad of the proximal loss at x), 0 at x = w; adaptive: delta *= |x-w| by column; w = wmean x_i."""

    def rule(p: Problem, client: int, w: Params, x: Params, batch: Any) -> Params:
        if norm(sub(x, w)) == 0:
            return p.gradient(x, batch)
        away = gradient(w, x, batch)
        if chosen is not None:
            away = {name: v if name in chosen else torch.zeros_like(v) for name, v in away.items()}
        delta = scale(rho, unit(away))
        if adaptive:
            delta = {name: delta[name] * spread(x[name] - w[name]) for name in delta}
        return p.gradient(add(x, delta), batch)

    w, path = p.start(), []
    for t in range(rounds):
        models, weights = [], []
        for client in p.cohort(t):
            xs, _ = local(p, s, t, client, w, rule, lambda g, x: g)
            weights.append(float(p.examples(client)))
            models.append(scale(weights[-1], xs[-1]))
        w = scale(1.0 / sum(weights), total(models))
        path.append(w)
    return path
