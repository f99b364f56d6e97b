"""Personal methods, one client and one tensor at a time, straight from the reference sheets.

Every method gives the global model after each round and, after the last, the model each client is evaluated with.
Clients that never took part are evaluated with the global model. Gradients are clipped and decayed as in `methods`.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import pstdev
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from undrift.testing import oracles

from . import methods
from .methods import Params, Path, Settings, add, filtered, norm, scale, sub, total, unit

Own = dict[int, Params]
Result = tuple[Path, Own]


class Problem(methods.Problem, Protocol):
    """With losses, any number of training epochs, and epochs in another order than training's."""

    def epochs(self, client: int, round: int, count: int) -> list[Any]: ...
    def aside(self, client: int, round: int, purpose: str) -> list[Any]: ...
    def length(self, batch: Any) -> int: ...
    def loss(self, params: Params, batch: Any) -> float: ...


def only(a: Params, names: set[str]) -> Params:
    """Zero outside the names."""
    return {name: a[name] if name in names else torch.zeros_like(a[name]) for name in a}


def clipped(s: Settings, g: Params, names: set[str]) -> Params:
    """clip(g) on the tensors that move."""
    g = only(g, names)
    return scale(s.clip / norm(g), g) if s.clip is not None and norm(g) > s.clip else g


def slope(s: Settings, g: Params, x: Params, names: set[str]) -> Params:
    """clip(g) + wd*x on the tensors that move."""
    return add(clipped(s, g, names), only(scale(s.weight_decay, x), names))


def stepped(s: Settings, move: Any, lr: float, g: Params, x: Params, names: set[str]) -> Params:
    """x after a step of the tensors that move, along clip(g)."""
    new = move(lr, x, clipped(s, g, names))
    return {name: new[name] if name in names else x[name] for name in x}


def average(p: Problem, clients: list[int], w: Params, moved: Own, sizes: bool = True) -> Params:
    """w + sum_i p_i D_i."""
    weights = [float(p.examples(i)) if sizes else 1.0 for i in clients]
    moves = [scale(a, sub(moved[i], w)) for a, i in zip(weights, clients, strict=True)]
    return add(w, scale(1.0 / sum(weights), total(moves)))


def sam(p: Problem, x: Params, batch: Any, rho: float, r: float, head: set[str]) -> Params:
    """delta = rho*U([G_body; G_head]), H_r on the body only; G(x+delta)."""
    delta = scale(rho, unit(p.gradient(x, batch)))
    low = filtered(delta, r)
    return p.gradient(add(x, {n: delta[n] if n in head else low[n] for n in delta}), batch)


def split(
    p: Problem,
    s: Settings,
    rounds: int,
    head: set[str],
    head_share: float | None = None,
    tuned: int = 0,
    tuned_names: set[str] | None = None,
    sizes: bool = True,
    rule: Callable[[Params, Any], Params] | None = None,
) -> Result:
    """Body shared, head private. head_share: that part of the steps moves the head, the rest the body (FedRep)."""
    rule = rule or p.gradient
    w, heads, path = p.start(), dict[int, Params](), []
    everything = set(w)
    for t in range(rounds):
        moved: Own = {}
        for i in p.cohort(t):
            x = {n: heads[i][n] if i in heads and n in head else w[n] for n in w}
            batches, move = p.batches(i, t), s.mover()
            for k, batch in enumerate(batches):
                names = everything
                if head_share is not None:
                    names = head if k < int(head_share * len(batches) + 1e-9) else everything - head
                x = stepped(s, move, s.lr * s.decay**t, rule(x, batch), x, names)
            heads[i] = x
            moved[i] = {n: w[n] if n in head else x[n] for n in w}
        w = average(p, p.cohort(t), w, moved, sizes)
        path.append(w)
    own = {i: {n: heads[i][n] if i in heads and n in head else w[n] for n in w} for i in range(p.population)}
    for i in own:
        move = s.mover()
        for batch in p.epochs(i, rounds, tuned):
            g = p.gradient(own[i], batch)
            own[i] = stepped(s, move, s.lr * s.decay**rounds, g, own[i], tuned_names or head)
    return path, own


def ditto(p: Problem, s: Settings, rounds: int, lam: float, personal_lr: float | None = None) -> Result:
    """y <- y - eta*g(y); v <- v - eta_p*(g(v) + lam*(v - w^t)); the global path is FedAvg's."""
    kit, named = methods.as_kit(p, s, rounds)
    path, own = oracles.ditto(kit, lam, personal_lr)
    return named(path), dict(enumerate(named(own)))


def apfl(p: Problem, s: Settings, rounds: int, alpha: float, adaptive: bool = False) -> Result:
    """y <- y - eta*g(y); v <- v - eta*alpha*g(vb_old); vb = alpha*v + (1-alpha)*y; alpha moves after step one."""
    w, kept, path = p.start(), dict[int, tuple[Params, float]](), []
    every = set(w)
    for t in range(rounds):
        eta, moved = s.lr * s.decay**t, dict[int, Params]()
        for i in p.cohort(t):
            v, a = kept.get(i, (w, alpha))
            y = w
            for k, batch in enumerate(p.batches(i, t)):
                mixed = add(scale(a, v), scale(1 - a, y))
                new = sub(y, scale(eta, slope(s, p.gradient(y, batch), y, every)))
                v = sub(v, scale(eta * a, slope(s, p.gradient(mixed, batch), mixed, every)))
                y = new
                mixed = add(scale(a, v), scale(1 - a, y))
                if adaptive and k == 0:
                    g = slope(s, p.gradient(mixed, batch), mixed, every)
                    away = sub(v, y)
                    a = min(max(a - eta * sum(float((away[n] * g[n]).sum()) for n in g), 0.0), 1.0)
            moved[i], kept[i] = y, (v, a)
        w = average(p, p.cohort(t), w, moved)
        path.append(w)
    pairs = {i: kept.get(i, (w, alpha)) for i in range(p.population)}
    return path, {i: add(scale(a, v), scale(1 - a, w)) for i, (v, a) in pairs.items()}


def pfedme(p: Problem, s: Settings, rounds: int, lam: float, inner: int, inner_lr: float, beta: float) -> Result:
    """K_in times theta <- theta - eta_p*(g(theta) + lam*(theta - x)), then x <- x - eta*(lam*(x - theta) + wd*x)."""
    w, thetas, path = p.start(), dict[int, Params](), []
    every = set(w)
    for t in range(rounds):
        moved: Own = {}
        for i in p.cohort(t):
            x, theta, move = w, w, s.mover()
            for batch in p.batches(i, t):
                for _ in range(inner):
                    pull = add(p.gradient(theta, batch), scale(lam, sub(theta, x)))
                    theta = sub(theta, scale(inner_lr, pull))
                x = stepped(s, move, s.lr * s.decay**t, scale(lam, sub(x, theta)), x, every)
            moved[i], thetas[i] = x, theta
        w = add(scale(1 - beta, w), scale(beta, average(p, p.cohort(t), w, moved)))
        path.append(w)
    return path, {i: thetas.get(i, w) for i in range(p.population)}


def fedala(
    p: Problem, s: Settings, rounds: int, top: set[str], rate: float, sample: float, batch_size: int, threshold: float
) -> Result:
    """hat = a + (g-a)*W on top; W <- clip(W - rate*grad*(g-a), 0, 1); second visit: until the losses settle."""
    w, kept, path = p.start(), dict[int, tuple[Params, Params]](), []
    every, visits = set(w), dict[int, int]()
    for t in range(rounds):
        moved: Own = {}
        for i in p.cohort(t):
            last, weights = kept.get(i, (w, {n: torch.ones_like(w[n]) for n in top}))
            losses: list[float] = []
            most = {0: 0, 1: 100}.get(visits.get(i, 0), 1)
            count = max(1, -(-int(sample * p.examples(i)) // batch_size))
            while len(losses) < most and not (len(losses) >= 10 and pstdev(losses[-10:]) < threshold):
                seen, heard = 0, 0.0
                for batch in p.aside(i, t, "adapt")[:count]:
                    hat = mixed(last, w, weights)
                    heard += p.length(batch) * p.loss(hat, batch)
                    seen += p.length(batch)
                    g = p.gradient(hat, batch)
                    weights = {n: (weights[n] - rate * g[n] * (w[n] - last[n])).clamp(0, 1) for n in top}
                losses.append(heard / seen)
            x, move = mixed(last, w, weights), s.mover()
            for batch in p.batches(i, t):
                x = stepped(s, move, s.lr * s.decay**t, p.gradient(x, batch), x, every)
            moved[i], kept[i], visits[i] = x, (x, weights), visits.get(i, 0) + 1
        w = average(p, p.cohort(t), w, moved)
        path.append(w)
    return path, {i: mixed(kept[i][0], w, kept[i][1]) if i in kept else w for i in range(p.population)}


def mixed(last: Params, w: Params, weights: Params) -> Params:
    """a + (g-a)*W where there are weights, else g."""
    return {n: last[n] + (w[n] - last[n]) * weights[n] if n in weights else w[n] for n in w}


def fedbn(task: Any, p: Problem, s: Settings, rounds: int) -> tuple[Path, dict[int, dict[str, Tensor]]]:
    """Every client has a module of its own; all but the batch norms is averaged and handed out again."""
    start = task.model()
    norms = {
        f"{name}.{part}"
        for name, layer in start.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        for part, _ in layer.named_parameters()
    }
    clients = {i: deepcopy(start) for i in range(p.population)}
    w, path = {n: x.detach().clone() for n, x in start.named_parameters()}, []
    for t in range(rounds):
        moved: Own = {}
        for i in p.cohort(t):
            named = dict(clients[i].named_parameters())
            put(named, {n: w[n] for n in w if n not in norms})
            move = s.mover()
            for batch in p.batches(i, t):
                x = {n: y.detach().clone() for n, y in named.items()}
                grads = torch.autograd.grad(task.loss(clients[i], batch), list(named.values()))
                g = dict(zip(named, grads, strict=True))
                put(named, stepped(s, move, s.lr * s.decay**t, g, x, set(x)))
            moved[i] = {n: w[n] if n in norms else named[n].detach().clone() for n in w}
        w = average(p, p.cohort(t), w, moved)
        path.append(w)
    for client in clients.values():
        put(dict(client.named_parameters()), {n: w[n] for n in w if n not in norms})
    return path, {i: dict(client.state_dict()) for i, client in clients.items()}


def put(named: dict[str, nn.Parameter], values: Params) -> None:
    """Write values into parameters."""
    with torch.no_grad():
        for name, value in values.items():
            named[name].copy_(value)


def fedrod(p: Problem, s: Settings, rounds: int, names: set[str]) -> Result:
    """z_p <- z_p - eta*g_head(x + z_p), kept by the client; x + z_p is evaluated; x is FedAvg's."""
    w, added, path = p.start(), dict[int, Params](), []
    zeros = only(w, set())
    for t in range(rounds):
        moved: Own = {}
        for i in p.cohort(t):
            x, v = w, added.get(i, zeros)
            for batch in p.batches(i, t):
                eta, g = s.lr * s.decay**t, p.gradient(x, batch)
                v = sub(v, scale(eta, slope(s, p.gradient(add(x, v), batch), v, names)))
                x = sub(x, scale(eta, slope(s, g, x, set(x))))
            moved[i], added[i] = x, v
        w = average(p, p.cohort(t), w, moved)
        path.append(w)
    return path, {i: add(w, added.get(i, zeros)) for i in range(p.population)}


METHODS: dict[str, Callable[..., Result]] = {
    "fedavg-ft": lambda p, s, n, names, epochs: split(p, s, n, set(), tuned=epochs, tuned_names=names),
    "fedbabu": lambda p, s, n, names, tuned, every: split(
        p, s, n, names, 0.0, tuned, set(p.start()) if every else names
    ),
    "fedrod": fedrod,
    "fedper": lambda p, s, n, names: split(p, s, n, names),
    "fedrep": lambda p, s, n, names, share, tuned: split(p, s, n, names, share, tuned),
    "fedper-fft": lambda p, s, n, names, rho, r: split(
        p, s, n, names, sizes=False, rule=partial(sam, p, rho=rho, r=r, head=names)
    ),
    "fedala": lambda p, s, n, names, **hyper: fedala(p, s, n, names, **hyper),
    "ditto": ditto,
    "apfl": apfl,
    "pfedme": pfedme,
}
