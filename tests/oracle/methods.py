"""Federated methods, one tensor at a time, straight from the reference sheets.

Weight decay is added last, at the unperturbed point, and enters neither momentum nor control variates (the
duals of FedDyn follow the true displacement, decay included). Clipping acts on the data gradient alone, after
the filter, before any correction. Weights are uniform; by examples in fedavg, fedprox, fedavgm and fedasam.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .filters import high_pass

Params = dict[str, Tensor]
Path = list[Params]
Filter = Callable[[np.ndarray, float], np.ndarray]
Rule = Callable[["Problem", int, Params, Params, Any], Params]  # (problem, client, received w, x, batch) -> g


class Problem(Protocol):
    """N clients, with cohorts, batches of all local steps and mean-loss gradients fixed in advance."""

    population: int

    def start(self) -> Params: ...
    def examples(self, client: int) -> int: ...
    def cohort(self, round: int) -> list[int]: ...
    def batches(self, client: int, round: int) -> list[Any]: ...
    def gradient(self, params: Params, batch: Any) -> Params: ...


@dataclass
class Settings:
    """Local optimiser: the rate of round t is lr*decay**t."""

    lr: float
    decay: float = 1.0
    weight_decay: float = 0.0
    clip: float | None = None

    def mover(self) -> Callable[[float, Params, Params], Params]:
        """The steps of one visit: (rate, x, g) -> x - rate*(g + wd*x)."""
        return lambda lr, x, g: sub(x, scale(lr, add(g, scale(self.weight_decay, x))))


def add(a: Params, b: Params) -> Params:
    """a + b."""
    return {name: a[name] + b[name] for name in a}


def sub(a: Params, b: Params) -> Params:
    """a - b."""
    return {name: a[name] - b[name] for name in a}


def scale(factor: float, a: Params) -> Params:
    """factor * a."""
    return {name: factor * a[name] for name in a}


def zero(a: Params) -> Params:
    """Return zeros of the same shapes."""
    return {name: torch.zeros_like(a[name]) for name in a}


def norm(a: Params) -> float:
    """L2 norm over all tensors together."""
    return sum(float((a[name] ** 2).sum()) for name in a) ** 0.5


def unit(a: Params) -> Params:
    """U(v) = v/(norm(v) + 1e-12)."""
    return scale(1.0 / (norm(a) + 1e-12), a)


def total(items: Path) -> Params:
    """sum_i a_i."""
    out = zero(items[0])
    for item in items:
        out = add(out, item)
    return out


def mean(items: Path) -> Params:
    """(1/m) sum_i a_i."""
    return scale(1.0 / len(items), total(items))


def filtered(a: Params, r: float, phi: Filter = high_pass) -> Params:
    """Filter every tensor on its own."""
    return {name: torch.from_numpy(phi(a[name].detach().numpy(), r)) for name in a}


def plain(p: Problem, client: int, w: Params, x: Params, batch: Any) -> Params:
    """g = G(x)."""
    return p.gradient(x, batch)


def sam(
    p: Problem, client: int, w: Params, x: Params, batch: Any, rho: float, r: float = 0, blend: float = 1
) -> Params:
    """delta = H_r(rho*U(G(x))) per tensor, not renormalised; g = (1-blend)*G(x) + blend*G(x+delta)."""
    first = p.gradient(x, batch)
    delta = filtered(scale(rho, unit(first)), r)
    return add(scale(1 - blend, first), scale(blend, p.gradient(add(x, delta), batch)))


def asam(p: Problem, client: int, w: Params, x: Params, batch: Any, rho: float, eta: float) -> Params:
    """delta = rho*T^2*G/norm(T*G), T = |x|+eta on names that contain "weight", else 1; g = G(x+delta)."""
    first = p.gradient(x, batch)
    t = {name: x[name].abs() + eta if "weight" in name else torch.ones_like(x[name]) for name in x}
    size = norm({name: t[name] * first[name] for name in x}) + 1e-12
    delta = {name: rho * t[name] ** 2 * first[name] / size for name in x}
    return p.gradient(add(x, delta), batch)


def lesam(rho: float) -> Rule:
    """delta = rho*U(w_old_i - w^t), constant in the round, 0 the first time; w_old_i: i's last received w."""
    received: dict[int, Path] = {}

    def rule(p: Problem, client: int, w: Params, x: Params, batch: Any) -> Params:
        """g = G(x+delta)."""
        history = received.setdefault(client, [w])
        if history[-1] is not w:  # a new round: every round makes a new dict
            history.append(w)
        old = history[-2] if len(history) > 1 else w
        return p.gradient(add(x, scale(rho, unit(sub(old, w)))), batch)

    return rule


def spectral(p: Problem, client: int, w: Params, x: Params, batch: Any, r: float, phi: Filter = high_pass) -> Params:
    """g = Phi(G(x)) per tensor."""
    return filtered(p.gradient(x, batch), r, phi)


def local(
    p: Problem, s: Settings, t: int, client: int, w: Params, rule: Rule, v: Callable[[Params, Params], Params]
) -> tuple[Path, Path]:
    """x <- x - lr*(v(g, x) + wd*x), g = rule * min(1, clip/norm); return all x (w first) and all g."""
    xs, gs, move = [w], [], s.mover()
    for batch in p.batches(client, t):
        x = xs[-1]
        g = rule(p, client, w, x, batch)
        if s.clip is not None and norm(g) > s.clip:
            g = scale(s.clip / norm(g), g)
        gs.append(g)
        xs.append(move(s.lr * s.decay**t, x, v(g, x)))
    return xs, gs


def average_round(p: Problem, s: Settings, t: int, w: Params, rule: Rule, sizes: bool, mu: float) -> Params:
    """v = g + mu*(x - w^t); return sum_i p_i x_i, p_i = n_i/n_S if sizes, else 1/m."""
    models, weights = [], []
    for client in p.cohort(t):
        xs, _ = local(p, s, t, client, w, rule, lambda g, x: add(g, scale(mu, sub(x, w))))
        weights.append(float(p.examples(client)) if sizes else 1.0)
        models.append(scale(weights[-1], xs[-1]))
    return scale(1.0 / sum(weights), total(models))


def average(p: Problem, s: Settings, rounds: int, rule: Rule, sizes: bool = False, mu: float = 0.0) -> Path:
    """w^{t+1} = sum_i p_i x_i."""
    path = [p.start()]
    for t in range(rounds):
        path.append(average_round(p, s, t, path[-1], rule, sizes, mu))
    return path[1:]


def momentum(p: Problem, s: Settings, rounds: int, beta: float, server_lr: float, nesterov: bool) -> Path:
    """G = w - sum_i p_i x_i; v <- beta*v + G; w <- w - server_lr*v (nesterov: G + beta*v in place of v)."""
    path, v = [p.start()], zero(p.start())
    for t in range(rounds):
        slope = sub(path[-1], average_round(p, s, t, path[-1], plain, True, 0.0))
        v = add(scale(beta, v), slope)
        path.append(sub(path[-1], scale(server_lr, add(slope, scale(beta, v)) if nesterov else v)))
    return path[1:]


def scaffold(p: Problem, s: Settings, rounds: int, rule: Rule, literal: bool = False) -> Path:
    """v = g - c_i + c; c_i^+ = path mean of g; c += (1/N) sum_S (c_i^+ - c_i); w = mean_S x_i.

    literal (published FedFFT-S): v = g + c_i - c, so c_i^+ = c_i - c - D_i/(K lr) = 2(c_i-c) + mean g; and
    c += (1/N) sum_S c_i^+, not the differences. Still corrected: mean over S (printed: sum), K = steps.
    """
    w, c, own, path = p.start(), zero(p.start()), dict[int, Params](), []
    for t in range(rounds):
        models, changes = [], []
        for client in p.cohort(t):
            old = own.get(client, zero(w))
            correction = sub(old, c) if literal else sub(c, old)
            xs, gs = local(p, s, t, client, w, rule, lambda g, x, add_on=correction: add(g, add_on))
            own[client] = add(mean(gs), scale(2.0, correction)) if literal else mean(gs)
            changes.append(own[client] if literal else sub(own[client], old))
            models.append(xs[-1])
        w, c = mean(models), add(c, scale(1.0 / p.population, total(changes)))
        path.append(w)
    return path


def feddyn(p: Problem, s: Settings, rounds: int, rule: Rule, mu: float, literal: str = "") -> Path:
    """v = g + mu*(h_i - w^t) + mu*x; h_i += x_i - w^t (parameter units); w = mean_S x_i + mean_all h_i.

    literal (published FedFFT-D), lambda_i = -mu*h_i: v = g + lambda_i + mu*(x - w^t), that is -h_i; no server
    lambda is ever used; "sum": w = w^t + sum_S D_i as printed; "mean": w = mean_S x_i, 1/|S| put back.
    """
    w, path = p.start(), []
    h = {client: zero(w) for client in range(p.population)}
    for t in range(rounds):
        models = []
        for client in p.cohort(t):
            pull = sub(scale(-1.0, h[client]) if literal else h[client], w)
            xs, _ = local(p, s, t, client, w, rule, lambda g, x, a=pull: add(add(g, scale(mu, a)), scale(mu, x)))
            models.append(xs[-1])
            h[client] = add(h[client], sub(xs[-1], w))
        if literal:
            moves = [sub(x, w) for x in models]
            w = add(w, total(moves) if literal == "sum" else mean(moves))
        else:
            w = add(mean(models), mean([h[client] for client in range(p.population)]))
        path.append(w)
    return path


def fedcm(p: Problem, s: Settings, rounds: int, rule: Rule, a: float) -> Path:
    """v = a*g + (1-a)*m; m = -mean_S(D_i/(K_i*lr)), D_i without its weight-decay part; w = w + mean_S D_i."""
    w, m, path = p.start(), zero(p.start()), []
    for t in range(rounds):
        lr, moves, slopes = s.lr * s.decay**t, [], []
        for client in p.cohort(t):
            xs, _ = local(p, s, t, client, w, rule, lambda g, x, m=m: add(scale(a, g), scale(1 - a, m)))
            moves.append(sub(xs[-1], w))
            undecayed = add(moves[-1], scale(lr * s.weight_decay, total(xs[:-1])))
            slopes.append(scale(-1.0 / ((len(xs) - 1) * lr), undecayed))
        w, m = add(w, mean(moves)), mean(slopes)
        path.append(w)
    return path


def specgrad(
    p: Problem, s: Settings, n: int, r: float, host: str = "uniform", mu: float = 0.0, phi: Filter = high_pass
) -> Path:
    """Host's step on g = Phi(G(x)) (only the data gradient is filtered), uniform weights for every host."""
    rule = partial(spectral, r=r, phi=phi)
    if host in ("uniform", "fedprox"):
        return average(p, s, n, rule, mu=mu if host == "fedprox" else 0.0)
    return {"scaffold": scaffold, "feddyn": partial(feddyn, mu=mu)}[host](p, s, n, rule)


METHODS: dict[str, Callable[..., Path]] = {
    # v = G(x); w = sum_S n_i x_i / n_S, or mean_S x_i; FedProx adds mu*(x - w^t)
    "fedavg": lambda p, s, n: average(p, s, n, plain, sizes=True),
    "uniform": lambda p, s, n: average(p, s, n, plain),
    "fedprox": lambda p, s, n, mu: average(p, s, n, plain, sizes=True, mu=mu),
    # v = G(x) - c_i + c | v = G(x) - lambda_i + mu*(x - w^t) | v = a*G(x) + (1-a)*m
    "scaffold": lambda p, s, n: scaffold(p, s, n, plain),
    "feddyn": lambda p, s, n, mu: feddyn(p, s, n, plain, mu),
    "fedcm": lambda p, s, n, a: fedcm(p, s, n, plain, a),
    "fedavgm": lambda p, s, n, beta, server_lr=1.0, nesterov=False: momentum(p, s, n, beta, server_lr, nesterov),
    # delta = rho*U(G(x)) (ASAM: rho*T^2*G/norm(T*G)); v = G(x+delta)
    "fedsam": lambda p, s, n, rho: average(p, s, n, partial(sam, rho=rho)),
    "fedasam": lambda p, s, n, rho, eta: average(p, s, n, partial(asam, rho=rho, eta=eta), sizes=True),
    # v = a*G(x+delta) + (1-a)*m | v = G(x+delta) - c_i + c
    "mofedsam": lambda p, s, n, rho, a: fedcm(p, s, n, partial(sam, rho=rho), a),
    "fedgamma": lambda p, s, n, rho: scaffold(p, s, n, partial(sam, rho=rho)),
    # q = (1-blend)*G(x) + blend*G(x+delta); v = q - gh_i + mu*(x - w^t); FedDyn's server (the code form)
    "fedspeed": lambda p, s, n, rho, mu, blend=1.0: feddyn(p, s, n, partial(sam, rho=rho, blend=blend), mu),
    # delta = rho*U(w_old_i - w^t); v = G(x+delta), -S: - c_i + c, -D: - lambda_i + mu*(x - w^t)
    "fedlesam": lambda p, s, n, rho: average(p, s, n, lesam(rho)),
    "fedlesam_s": lambda p, s, n, rho: scaffold(p, s, n, lesam(rho)),
    "fedlesam_d": lambda p, s, n, rho, mu: feddyn(p, s, n, lesam(rho), mu),
    # delta = H_r(rho*U(G(x))); v = G(x+delta), -S: - C_k + C, -D: - lambda_k + mu*(x - w^t)
    "fedfft": lambda p, s, n, rho, r: average(p, s, n, partial(sam, rho=rho, r=r)),
    "fedfft_s": lambda p, s, n, rho, r: scaffold(p, s, n, partial(sam, rho=rho, r=r)),
    "fedfft_d": lambda p, s, n, rho, r, mu: feddyn(p, s, n, partial(sam, rho=rho, r=r), mu),
    # the wrong signs as published: see `literal` in scaffold and feddyn
    "fedfft_s_published": lambda p, s, n, rho, r: scaffold(p, s, n, partial(sam, rho=rho, r=r), literal=True),
    "fedfft_d_published": lambda p, s, n, rho, r, mu, server="sum": feddyn(
        p, s, n, partial(sam, rho=rho, r=r), mu, literal=server
    ),
    "specgrad": specgrad,
}


def run(method: str, problem: Problem, settings: Settings, rounds: int, **hyper: Any) -> Path:
    """Return the global model after each round."""
    return METHODS[method](problem, settings, rounds, **hyper)
