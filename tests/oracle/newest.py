"""The methods of 2022 to 2026, one tensor at a time, straight from their sheet.

Symbols and conventions are those of `methods`: D_i points downhill, weight decay is added last and, unless a formula
has it, stays out of variates; gradients are clipped before any correction.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from .methods import Params, Path, Problem, Settings, add, local, mean, norm, plain, sam, scale, sub, total, unit, zero


def keep(g: Params, x: Params) -> Params:
    """The gradient as it is."""
    return g


def fedexp(p: Problem, s: Settings, rounds: int, eps: float, by_examples: bool = False) -> Path:
    """eta = max(1, sum_i p_i |D_i|^2 / (2 (|sum_i p_i D_i|^2 + eps))); x <- x + eta Dbar; evaluated (x + x_old)/2."""
    x, path = p.start(), []
    for t in range(rounds):
        weights = {i: float(p.examples(i)) if by_examples else 1.0 for i in p.cohort(t)}
        moves = {i: sub(local(p, s, t, i, x, plain, keep)[0][-1], x) for i in weights}
        whole = sum(weights.values())
        dbar = total([scale(weights[i] / whole, d) for i, d in moves.items()])
        squares = sum(weights[i] / whole * norm(d) ** 2 for i, d in moves.items())
        eta = max(1.0, squares / (2 * (norm(dbar) ** 2 + eps)))
        new = add(x, scale(eta, dbar))
        path.append(scale(0.5, add(new, x)))
        x = new
    return path


def ahead(p: Problem, s: Settings, rounds: int, lam: float, beta: float = 0.0, rho: float = 0.0) -> Path:
    """s = w + lam m; d = g + beta (y - s); m <- lam m + mean D_i, D_i = y_K - s; w <- w + m. rho: SAM gradients."""
    rule = partial(sam, rho=rho) if rho else plain
    w, m, path = p.start(), zero(p.start()), []
    for t in range(rounds):
        start = add(w, scale(lam, m))
        pull = partial(lambda g, x, start: add(g, scale(beta, sub(x, start))), start=start)
        ends = [local(p, s, t, i, start, rule, pull)[0][-1] for i in p.cohort(t)]
        m = add(scale(lam, m), sub(mean(ends), start))
        w = add(w, m)
        path.append(w)
    return path


def fedgps(p: Problem, s: Settings, rounds: int, rho: float) -> Path:
    """g = G(x - rho U(sum_(j not i) D_j)), D_j the last round's displacements; w <- w + mean D_i."""
    w, last, path = p.start(), dict[int, Params](), []
    for t in range(rounds):
        moves = {}
        for i in p.cohort(t):
            others = total([d for j, d in last.items() if j != i]) if set(last) - {i} else zero(w)
            offset = scale(-rho, unit(others))
            rule = partial(lambda p, client, w, x, batch, offset: p.gradient(add(x, offset), batch), offset=offset)
            moves[i] = sub(local(p, s, t, i, w, rule, keep)[0][-1], w)
        w, last = add(w, mean(list(moves.values()))), moves
        path.append(w)
    return path


def fedinit(p: Problem, s: Settings, rounds: int, beta: float, first: bool = True, literal: bool = False) -> Path:
    """y_0 = w + beta (w - w_i_last), w_i_last the first model before (or without first: w); w = mean y_K."""
    w, last, path = p.start(), dict[int, Params](), []
    zeroth = w
    for t in range(rounds):
        ends, starts = [], []
        for i in p.cohort(t):
            old = last.get(i, zeroth if first else w)
            starts.append(add(w, scale(beta, sub(w, old))))
            ends.append(local(p, s, t, i, starts[-1], plain, keep)[0][-1])
            last[i] = ends[-1]
        w = add(w, sub(mean(ends), mean(starts))) if literal else mean(ends)
        path.append(w)
    return path


def corrected(
    p: Problem,
    s: Settings,
    rounds: int,
    beta: float = 1.0,
    gamma: float | None = None,
    rho: float = 1.0,
    alpha: float = 1.0,
) -> Path:
    """d = beta (g - c_i + c) + (1 - beta) G, rate lr (1 - (1 - rho) k/K); c_i = mean g; w <- w + alpha mean D.

    c <- c + 1/N sum (c_i^+ - c_i), or with gamma c <- c + gamma (mean_S c_i^+ - c); G = mean of the mean d.
    """
    w, c, big, path = p.start(), zero(p.start()), zero(p.start()), []
    own: dict[int, Params] = {}
    for t in range(rounds):
        moves, changes, slopes = [], [], []
        for i in p.cohort(t):
            old = own.get(i, zero(w))
            x, gs, ds = w, [], []
            batches = p.batches(i, t)
            for k, batch in enumerate(batches):
                g = p.gradient(x, batch)
                g = scale(s.clip / norm(g), g) if s.clip is not None and norm(g) > s.clip else g
                d = add(scale(beta, add(g, sub(c, old))), scale(1 - beta, big))
                gs.append(g)
                ds.append(d)
                rate = s.lr * s.decay**t * (1 - (1 - rho) * k / len(batches))
                x = sub(x, scale(rate, add(d, scale(s.weight_decay, x))))
            own[i] = mean(gs)
            moves.append(sub(x, w))
            changes.append(own[i] if gamma else sub(own[i], old))
            slopes.append(mean(ds))
        w, big = add(w, scale(alpha, mean(moves))), mean(slopes)
        c = add(c, scale(gamma, sub(mean(changes), c)) if gamma else scale(1 / p.population, total(changes)))
        path.append(w)
    return path


def fedswa(p: Problem, s: Settings, rounds: int, rho: float, alpha: float) -> Path:
    """y <- y - lr (1 - (1 - rho) k/K) (g + wd y); w <- w + alpha (mean y_K - w)."""
    w, path = p.start(), []
    for t in range(rounds):
        ends = []
        for i in p.cohort(t):
            x, batches = w, p.batches(i, t)
            for k, batch in enumerate(batches):
                g = p.gradient(x, batch)
                g = scale(s.clip / norm(g), g) if s.clip is not None and norm(g) > s.clip else g
                rate = s.lr * s.decay**t * (1 - (1 - rho) * k / len(batches))
                x = sub(x, scale(rate, add(g, scale(s.weight_decay, x))))
            ends.append(x)
        w = add(w, scale(alpha, sub(mean(ends), w)))
        path.append(w)
    return path


def scaffnew(p: Problem, s: Settings, rounds: int, share: float) -> Path:
    """y <- y - lr (g + wd y - h_i); w = mean y_i; h_i <- h_i + share/lr (w - y_i); all clients in every round."""
    w, path = p.start(), []
    h = {i: zero(w) for i in range(p.population)}
    for t in range(rounds):
        ends = {}
        for i in p.cohort(t):
            ends[i] = local(p, s, t, i, w, plain, partial(lambda g, x, h: sub(g, h), h=h[i]))[0][-1]
        w = mean(list(ends.values()))
        for i, y in ends.items():
            h[i] = add(h[i], scale(share / (s.lr * s.decay**t), sub(w, y)))
        path.append(w)
    return path


def fedlin(p: Problem, s: Settings, rounds: int) -> Path:
    """Two exchanges t each: c_i = mean of g_i(w), c = mean c_i, w stays; then y <- y - lr (g_i(y) - c_i + c)."""
    w, own, path = p.start(), dict[int, Params](), []
    for t in range(rounds):
        if t % 2 == 0:
            gradients = {i: [p.gradient(w, batch) for batch in p.batches(i, t)] for i in p.cohort(t)}
            if s.clip is not None:
                gradients = {i: [scale(min(1.0, s.clip / norm(g)), g) for g in gs] for i, gs in gradients.items()}
            own = {i: mean(gs) for i, gs in gradients.items()}
        else:
            c, ends = mean(list(own.values())), []
            for i in p.cohort(t):
                change = sub(c, own[i]) if i in own else zero(w)
                rule = partial(lambda p, client, w, x, batch, d: add(p.gradient(x, batch), d), d=change)
                ends.append(local(p, s, t, i, w, rule, keep)[0][-1])
            w = mean(ends)
        path.append(w)
    return path


METHODS: dict[str, Callable[..., Any]] = {
    "fedexp": fedexp,
    "fedacg": ahead,
    "fednsam": ahead,
    "fedgps": fedgps,
    "fedinit": fedinit,
    "scaffold-m": lambda p, s, n, beta: corrected(p, s, n, beta),
    "scaffnew": lambda p, s, n, p_: scaffnew(p, s, n, p_),
    "fedlin": fedlin,
    "fedswa": fedswa,
    "fedmoswa": lambda p, s, n, rho, alpha, gamma: corrected(p, s, n, gamma=gamma, rho=rho, alpha=alpha),
}
