"""FedDC, FedNova, MOON, FedOpt, SCAFFOLD I, GradFilter-FedDyn, q-FedAvg, FedLW and FedNolowe, from the first sheet.

Symbols are the sheet's: D_i = w_i - w^t points downhill, duals h_i are in model units, p_i = n_i / n_S. Weight decay
is added last and stays out of duals' and variates' gradients, as in `methods`.
"""

from collections.abc import Callable
from functools import partial
from math import exp
from typing import Any, Protocol

import torch
from torch import Tensor

from undrift.testing import oracles

from .methods import Params, Path, Settings, add, as_kit, local, mean, norm, plain, scale, spectral, sub, total, zero
from .methods import Problem as Smooth


class Problem(Smooth, Protocol):
    """A problem that also tells losses, the sizes of its batches and all data of a client as one batch."""

    def loss(self, params: Params, batch: Any) -> float: ...
    def sizes(self, client: int, round: int) -> list[int]: ...
    def whole(self, client: int) -> Any: ...


def feddc(p: Problem, s: Settings, rounds: int, mu: float) -> Path:
    """d = g + mu*(y - w + h_i) + c - c_i; h_i += D_i; c_i^+ = mean of d without c - c_i; w = mean_S w_i + H."""
    w, server_c, server_h, path = p.start(), zero(p.start()), zero(p.start()), []
    h: dict[int, Params] = {}
    c: dict[int, Params] = {}
    for t in range(rounds):
        ends, changes = [], []
        for i in p.cohort(t):
            h_i, c_i = h.get(i, zero(w)), c.get(i, zero(w))
            pull = partial(lambda x, w, h_i: scale(mu, add(sub(x, w), h_i)), w=w, h_i=h_i)
            step = partial(lambda g, x, pull, c_i, c: add(add(g, pull(x)), sub(c, c_i)), pull=pull, c_i=c_i, c=server_c)
            ys, gs = local(p, s, t, i, w, plain, step)
            h[i] = add(h_i, sub(ys[-1], w))
            c[i] = mean([add(g, pull(y)) for g, y in zip(gs, ys[:-1], strict=True)])
            changes.append(sub(c[i], c_i))
            ends.append(ys[-1])
        server_h = add(server_h, scale(1 / p.population, total([sub(y, w) for y in ends])))
        server_c = add(server_c, scale(1 / p.population, total(changes)))
        w = add(mean(ends), server_h)
        path.append(w)
    return path


def scaffold_i(p: Problem, s: Settings, rounds: int) -> Path:
    """d = g - c_i + c; c_i^+ = clip(full data gradient at the received model); c += (1/N) sum dc_i; w = mean_S w_i."""
    w, server, path = p.start(), zero(p.start()), []
    c: dict[int, Params] = {}
    for t in range(rounds):
        ends, changes = [], []
        for i in p.cohort(t):
            old, new = c.get(i, zero(w)), p.gradient(w, p.whole(i))
            new = scale(s.clip / norm(new), new) if s.clip is not None and norm(new) > s.clip else new
            shift = sub(server, old)
            ys, _ = local(p, s, t, i, w, plain, lambda g, x, shift=shift: add(g, shift))  # type: ignore[misc]
            ends.append(ys[-1])
            changes.append(sub(new, old))
            c[i] = new
        w, server = mean(ends), add(server, scale(1 / p.population, total(changes)))
        path.append(w)
    return path


def gradfilter_feddyn(p: Problem, s: Settings, rounds: int, r: float, mu: float) -> Path:
    """v = H_r(G(x)) + mu*(x - w + h_i); h_i += D_i; w = mean_S w_i + mean over all clients of h_i."""
    w, path = p.start(), []
    h = {i: zero(w) for i in range(p.population)}
    for t in range(rounds):
        ends = {}
        for i in p.cohort(t):
            anchor = sub(w, h[i])
            rule = partial(spectral, r=r)
            ys, _ = local(p, s, t, i, w, rule, lambda g, x, anchor=anchor: add(g, scale(mu, sub(x, anchor))))  # type: ignore[misc]
            ends[i] = ys[-1]
        for i, y in ends.items():
            h[i] = add(h[i], sub(y, w))
        w = add(mean(list(ends.values())), mean(list(h.values())))
        path.append(w)
    return path


def updates(p: Problem, s: Settings, t: int, w: Params) -> dict[int, Params]:
    """D_i of plain local SGD."""
    return {i: sub(local(p, s, t, i, w, plain, lambda g, x: g)[0][-1], w) for i in p.cohort(t)}


def adaptive(p: Problem, s: Settings, rounds: int, kind: Callable[..., Any], **hyper: float) -> Path:
    """m <- b1*m + (1-b1)*Dbar; v by kind, from tau^2; w <- w + server_lr*m/(sqrt(v) + tau); Dbar = sum p_i D_i."""
    kit, named = as_kit(p, s, rounds)
    return named(kind(kit, **hyper))


def q_fedavg(p: Problem, s: Settings, rounds: int, q: float) -> Path:
    """Delta_i = (F+1e-10)^q v_i, h_i = q (F+1e-10)^(q-1) |v_i|^2 + L (F+1e-10)^q; w <- w - sum Delta / sum h."""
    w, path = p.start(), []
    for t in range(rounds):
        big = 1 / (s.lr * s.decay**t)
        top, bottom = [], 0.0
        for i, d in updates(p, s, t, w).items():
            f, v = p.loss(w, p.whole(i)) + 1e-10, scale(-big, d)
            square = sum(float((x * x).sum()) for x in v.values())
            top.append(scale(f**q, v))
            bottom += q * f ** (q - 1) * square + big * f**q
        w = sub(w, scale(1 / bottom, total(top)))
        path.append(w)
    return path


def fednova(p: Problem, s: Settings, rounds: int, rho: float, mu: float) -> Path:
    """Momentum and prox locally; a_i their response to a unit gradient; w <- w + tau_eff sum p_i D_i / a_i."""
    w, path = p.start(), []
    for t in range(rounds):
        lr, rows = s.lr * s.decay**t, []
        for i in p.cohort(t):
            held = [zero(w)]

            def step(g: Params, x: Params, held: Path = held, w: Params = w) -> Params:
                held[0] = add(scale(rho, held[0]), g)
                return add(held[0], scale(mu, sub(x, w)))

            ys, gs = local(p, s, t, i, w, plain, step)
            buf = x = 0.0
            for _ in gs:
                buf = rho * buf + 1
                x = x - lr * (buf + mu * x)
            rows.append((p.examples(i), sub(ys[-1], w), -x / lr, len(gs)))
        n = sum(row[0] for row in rows)
        tau_eff = sum(n_i / n * (tau if mu else a) for n_i, _, a, tau in rows)
        w = add(w, scale(tau_eff, total([scale(n_i / n / a, d) for n_i, d, a, _ in rows])))
        path.append(w)
    return path


def by_loss(p: Problem, s: Settings, rounds: int, rule: Callable[[list[float]], list[float]]) -> Path:
    """L_i = sum over batches of loss*size / (n_i E), before each step; w <- w + sum rule(L)_i D_i."""
    w, path = p.start(), []
    for t in range(rounds):
        losses, moves = [], []
        for i in p.cohort(t):
            ys, _ = local(p, s, t, i, w, plain, lambda g, x: g)
            rows = list(zip(ys[:-1], p.batches(i, t), p.sizes(i, t), strict=True))
            losses.append(sum(p.loss(y, batch) * n for y, batch, n in rows) / sum(n for *_, n in rows))
            moves.append(sub(ys[-1], w))
        w = add(w, total([scale(a, d) for a, d in zip(rule(losses), moves, strict=True)]))
        path.append(w)
    return path


def inverse(losses: list[float]) -> list[float]:
    """a_i = 1/(L_i + 1e-8), normalised."""
    a = [1 / (x + 1e-8) for x in losses]
    return [x / sum(a) for x in a]


def softmax(losses: list[float], temperature: float) -> list[float]:
    """a_i = exp(-L_i/T), normalised."""
    a = [exp(-x / temperature) for x in losses]
    return [x / sum(a) for x in a]


def complement(losses: list[float]) -> list[float]:
    """u_i = L_i / sum L; lam_i = (1 - u_i) / sum_j (1 - u_j)."""
    u = [x / sum(losses) for x in losses]
    return [(1 - x) / sum(1 - y for y in u) for x in u]


def projected(params: Params, x: Tensor, features: str) -> tuple[Tensor, Tensor]:
    """The logits of the projected network of `undrift.testing`, and its features, by hand."""

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]

    body = linear("body", x)
    projection = linear("projection", torch.tanh(body))
    read = torch.tanh(projection)
    return linear("head", read), {"": read, "projection": projection, "body": body}[features]


def moon_loss(
    x: Params, w: Params, previous: Params | None, batch: Any, mu: float, temperature: float, features: str
) -> Tensor:
    """CE + mu * mean l_con, one example after the other; no term without a previous model."""
    inputs, targets = batch
    logits, z = projected(x, inputs, features)
    terms = []
    for k, label in enumerate(targets.tolist()):
        term = torch.log(torch.exp(logits[k]).sum()) - logits[k, label]
        if previous is not None:
            near, far = (projected(model, inputs, features)[1][k] for model in (w, previous))
            one, two = (torch.exp(z[k] @ o / (z[k].norm() * o.norm()) / temperature) for o in (near, far))
            term = term - mu * torch.log(one / (one + two))
        terms.append(term)
    return torch.stack(terms).mean()


def moon(p: Problem, s: Settings, rounds: int, mu: float, temperature: float, features: str = "") -> Path:
    """FedAvg with l_con in the loss; w_i_prev <- w_i at the end of every round of client i."""
    w, path = p.start(), []
    previous: dict[int, Params] = {}

    def rule(p: Problem, client: int, w: Params, x: Params, batch: Any) -> Params:
        leaves = {name: value.clone().requires_grad_() for name, value in x.items()}
        loss = moon_loss(leaves, w, previous.get(client), batch, mu, temperature, features)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    for t in range(rounds):
        ends = {i: local(p, s, t, i, w, rule, lambda g, x: g)[0][-1] for i in p.cohort(t)}  # type: ignore[arg-type]
        previous |= ends
        n = sum(p.examples(i) for i in ends)
        w = total([scale(p.examples(i) / n, y) for i, y in ends.items()])
        path.append(w)
    return path


METHODS: dict[str, Callable[..., Path]] = {
    "feddc": feddc,
    "scaffold-i": scaffold_i,
    "gradfilter-feddyn": gradfilter_feddyn,
    "fedadam": partial(adaptive, kind=oracles.fedadam),
    "fedyogi": partial(adaptive, kind=oracles.fedyogi),
    "fedadagrad": partial(adaptive, kind=oracles.fedadagrad),
    "q-fedavg": q_fedavg,
    "fednova": fednova,
    "fedlw": lambda p, s, n, rule, temperature=1.0: by_loss(
        p,
        s,
        n,
        {"inverse": inverse, "complement": complement, "softmax": partial(softmax, temperature=temperature)}[rule],  # type: ignore[arg-type]
    ),
    "fednolowe": lambda p, s, n: by_loss(p, s, n, complement),
    "moon": moon,
}
