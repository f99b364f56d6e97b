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

from undrift.testing import oracles

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
    out: float = sum(float((a[name] ** 2).sum()) for name in a) ** 0.5
    return out


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


def as_kit(
    p: Problem, s: Settings, rounds: int, rule: Rule = plain
) -> tuple[oracles.Federation, Callable[[Any], Path]]:
    """The same problem, flat, for the public oracles; and how their rows become models with names again."""
    start = p.start()
    held: dict[str, Any] = {}  # of the present visit, which begins at the received model

    def named(row: Any) -> Params:
        parts = torch.as_tensor(row).split([x.numel() for x in start.values()])
        return {name: part.reshape(x.shape) for part, (name, x) in zip(parts, start.items(), strict=True)}

    def flat(a: Params) -> np.ndarray:
        return np.concatenate([x.detach().numpy().reshape(-1) for x in a.values()])

    def gradient(client: int, round: int, step: int, x: np.ndarray) -> np.ndarray:
        if step == 0:
            held.update(batches=p.batches(client, round), w=named(x) if held.get("round") != round else held["w"])
            held["round"] = round
        return flat(rule(p, client, held["w"], named(x), held["batches"][step]))

    def optimizer() -> Callable[[float, np.ndarray, np.ndarray], np.ndarray]:
        move = s.mover()
        return lambda lr, x, g: flat(move(lr, named(x), named(g)))

    return oracles.Federation(
        flat(start),
        gradient,
        [p.examples(i) for i in range(p.population)],
        [p.cohort(t) for t in range(rounds)],
        lambda client, t: len(p.batches(client, t)),
        lambda t: s.lr * s.decay**t,
        s.weight_decay,
        s.clip,
        optimizer,
    ), lambda rows: [named(row) for row in rows]


def average(p: Problem, s: Settings, rounds: int, rule: Rule, sizes: bool = False, mu: float = 0.0) -> Path:
    """v = g + mu*(x - w^t); w^{t+1} = sum_i p_i x_i, p_i = n_i/n_S if sizes, else 1/m."""
    kit, named = as_kit(p, s, rounds, rule)
    return named(oracles.fedprox(kit, mu, sizes))


def momentum(p: Problem, s: Settings, rounds: int, beta: float, server_lr: float, nesterov: bool) -> Path:
    """G = w - sum_i p_i x_i; v <- beta*v + G; w <- w - server_lr*v (nesterov: G + beta*v in place of v)."""
    kit, named = as_kit(p, s, rounds)
    return named(oracles.fedavgm(kit, beta, server_lr, nesterov))


def scaffold(p: Problem, s: Settings, rounds: int, rule: Rule) -> Path:
    """v = g - c_i + c; c_i^+ = path mean of g; c += (1/N) sum_S (c_i^+ - c_i); w = mean_S x_i."""
    kit, named = as_kit(p, s, rounds, rule)
    return named(oracles.scaffold(kit))


def feddyn(p: Problem, s: Settings, rounds: int, rule: Rule, mu: float) -> Path:
    """v = g - l_i + mu*(x - w^t); l_i -= mu*(x_i - w^t); h -= mu/N sum_S (x_i - w^t); w = mean_S x_i - h/mu."""
    kit, named = as_kit(p, s, rounds, rule)
    return named(oracles.feddyn(kit, mu))


def published_scaffold(p: Problem, s: Settings, rounds: int, rule: Rule) -> Path:
    """FedFFT-S as printed: v = g + c_i - c; c_i^+ = c_i - c - D_i/(K lr) = 2(c_i-c) + mean g; c += (1/N) sum_S c_i^+.

    Still corrected: mean over S (printed: sum), K = steps.
    """
    w, c, own, path = p.start(), zero(p.start()), dict[int, Params](), []
    for t in range(rounds):
        models = []
        for client in p.cohort(t):
            shift = sub(own.get(client, zero(w)), c)
            xs, gs = local(p, s, t, client, w, rule, lambda g, x, add_on=shift: add(g, add_on))  # type: ignore[misc]
            own[client] = add(mean(gs), scale(2.0, shift))
            models.append(xs[-1])
        w, c = mean(models), add(c, scale(1.0 / p.population, total([own[i] for i in p.cohort(t)])))
        path.append(w)
    return path


def published_feddyn(p: Problem, s: Settings, rounds: int, rule: Rule, mu: float, server: str) -> Path:
    """FedFFT-D as printed: v = g + lambda_i + mu*(x - w^t), lambda_i = -mu*h_i; no server lambda is ever used.

    "sum": w = w^t + sum_S D_i as printed; "mean": w = mean_S x_i, 1/|S| put back.
    """
    w, path = p.start(), []
    h = {client: zero(w) for client in range(p.population)}
    for t in range(rounds):
        moves = []
        for client in p.cohort(t):
            pull = sub(scale(-1.0, h[client]), w)
            xs, _ = local(p, s, t, client, w, rule, lambda g, x, a=pull: add(add(g, scale(mu, a)), scale(mu, x)))  # type: ignore[misc]
            moves.append(sub(xs[-1], w))
            h[client] = add(h[client], moves[-1])
        w = add(w, total(moves) if server == "sum" else mean(moves))
        path.append(w)
    return path


def fedcm(p: Problem, s: Settings, rounds: int, rule: Rule, a: float) -> Path:
    """v = a*g + (1-a)*m; m = -mean_S(D_i/(K_i*lr)), D_i without its weight-decay part; w = w + mean_S D_i."""
    w, m, path = p.start(), zero(p.start()), []
    for t in range(rounds):
        lr, moves, slopes = s.lr * s.decay**t, [], []
        for client in p.cohort(t):
            xs, _ = local(p, s, t, client, w, rule, lambda g, x, m=m: add(scale(a, g), scale(1 - a, m)))  # type: ignore[misc]
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
    out: Path = {"scaffold": scaffold, "feddyn": partial(feddyn, mu=mu)}[host](p, s, n, rule)  # type: ignore[operator]
    return out


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
    # the wrong signs as published: see `published_scaffold` and `published_feddyn`
    "fedfft_s_published": lambda p, s, n, rho, r: published_scaffold(p, s, n, partial(sam, rho=rho, r=r)),
    "fedfft_d_published": lambda p, s, n, rho, r, mu, server="sum": published_feddyn(
        p, s, n, partial(sam, rho=rho, r=r), mu, server
    ),
    "specgrad": specgrad,
}


def run(method: str, problem: Problem, settings: Settings, rounds: int, **hyper: Any) -> Path:
    """Return the global model after each round."""
    return METHODS[method](problem, settings, rounds, **hyper)
