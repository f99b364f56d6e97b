"""Terms of logits, labels and features, one example at a time, straight from the sheet of the newest methods.

FedAvg with one of these losses; the network is that of `drift.projected`. f0 is the received model.
"""

from collections.abc import Callable
from functools import partial
from math import log
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from .drift import projected
from .methods import Params, Path, Problem, Settings, average

Loss = Callable[..., Tensor]  # (x, received w, batch, counts of classes) -> loss


def ce(logits: Tensor, label: int) -> Tensor:
    """log sum exp - logit of the label."""
    return torch.log(torch.exp(logits).sum()) - logits[label]


def over(x: Params, batch: Any, shift: list[float], factor: list[float]) -> Tensor:
    """Mean cross entropy of factor * logits + shift; a class with shift None leaves the softmax."""
    return shifted(projected(x, batch[0], "")[0], batch[1].tolist(), shift, factor)


def shifted(logits: Any, labels: list[int], shift: list[float], factor: list[float]) -> Tensor:
    """The same of given logits, one row per example."""
    kept = [c for c, value in enumerate(shift) if value > -float("inf")]
    rows = [[row[c] * factor[c] + shift[c] for c in kept] for row in logits]
    return torch.stack([ce(torch.stack(row), kept.index(y)) for row, y in zip(rows, labels, strict=True)]).mean()


def fedlc(x: Params, w: Params, batch: Any, counts: list[int], tau: float) -> Tensor:
    """z_c - tau n_c^(-1/4); without a class it leaves."""
    return over(x, batch, [-tau * n**-0.25 if n else -float("inf") for n in counts], [1.0] * len(counts))


def fedrs(x: Params, w: Params, batch: Any, counts: list[int], alpha: float) -> Tensor:
    """a_c z_c, a_c = alpha for missing classes."""
    return over(x, batch, [0.0] * len(counts), [1.0 if n else alpha for n in counts])


def balanced(x: Params, w: Params, batch: Any, counts: list[int], tau: float = 1.0) -> Tensor:
    """z_c + tau log n_c."""
    return over(x, batch, [tau * log(n) if n else -float("inf") for n in counts], [1.0] * len(counts))


def corners(classes: int, dimension: int, seed: int) -> Tensor:
    """sqrt(C/(C-1)) U (I - 1 1^T / C) by Gram and Schmidt, one number after the other."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(dimension, classes, generator=draw, dtype=torch.float64).tolist()
    found: list[list[float]] = []
    for c in range(classes):
        x = [row[c] for row in rows]
        for u in found:
            share = sum(a * b for a, b in zip(x, u, strict=True))
            x = [a - share * b for a, b in zip(x, u, strict=True)]
        length = sum(a * a for a in x) ** 0.5
        found.append([a / length for a in x])
    middle = [sum(u[k] for u in found) / classes for k in range(dimension)]
    factor = (classes / (classes - 1)) ** 0.5
    columns = [[factor * (a - b) for a, b in zip(u, middle, strict=True)] for u in found]
    return torch.tensor(columns, dtype=torch.float64).T


def fedetf(x: Params, w: Params, batch: Any, counts: list[int], tau: float, corners: Tensor) -> Tensor:
    """z_c = s v_c . f / ||f||, f = head(tanh(body)); then z_c + tau log n_c."""
    logits = []
    for row in batch[0]:
        hidden = torch.tanh(x["body.0.weight"] @ row + x["body.0.bias"])
        f = x["head.weight"] @ hidden + x["head.bias"]
        length = sum(f[k] ** 2 for k in range(len(f))) ** 0.5
        z = [sum(corners[k, c] * f[k] for k in range(len(f))) / length for c in range(corners.shape[1])]
        logits.append([x["scale"][0] * value for value in z])
    shift = [tau * log(n) if n else -float("inf") for n in counts]
    return shifted(logits, batch[1].tolist(), shift, [1.0] * len(counts))


def kl(teacher: list[Tensor], own: list[Tensor]) -> Tensor:
    """KL(softmax(teacher) || softmax(own))."""
    p, q = (torch.exp(torch.stack(z)) / torch.exp(torch.stack(z)).sum() for z in (teacher, own))
    return (p * torch.log(p / q)).sum()


def fedntd(x: Params, w: Params, batch: Any, counts: list[int], beta: float, tau: float) -> Tensor:
    """CE + beta tau^2 KL of the classes that are not the label."""
    logits, first = projected(x, batch[0], "")[0], projected(w, batch[0], "")[0].detach()
    terms = []
    for row, old, y in zip(logits, first, batch[1].tolist(), strict=True):
        others = [c for c in range(len(row)) if c != y]
        terms.append(ce(row, y) + beta * tau**2 * kl([old[c] / tau for c in others], [row[c] / tau for c in others]))
    return torch.stack(terms).mean()


def fedvls(
    x: Params, w: Params, batch: Any, counts: list[int], lam: float, suppression: float, literal: bool = False
) -> Tensor:
    """CE(z + log pi) + s sum_c pi_c (logsumexp_{b: y_b != c}(z_bc - log pi_c - log C) - log B) + lam KL on V."""
    pi = [n / sum(counts) + 1e-9 for n in counts]
    logits, first = projected(x, batch[0], "")[0], projected(w, batch[0], "")[0].detach()
    labels, vacant = batch[1].tolist(), [c for c, n in enumerate(counts) if not n]
    out = over(x, batch, [log(value) for value in pi], [1.0] * len(counts))
    for c, value in enumerate(pi):
        zero = torch.zeros((), dtype=logits.dtype)
        rows = [row[c] - log(value) - log(len(pi)) for row, y in zip(logits, labels, strict=True) if y != c]
        rows += [zero for y in labels if y == c] if literal else []
        if rows:
            out = out + suppression * value * (torch.log(torch.exp(torch.stack(rows)).sum()) - log(len(labels)))
    if vacant:
        pairs = zip(first, logits, strict=True)
        out = out + lam * torch.stack([kl([a[c] for c in vacant], [b[c] for c in vacant]) for a, b in pairs]).mean()
    return out


def plain_ce(x: Params, batch: Any) -> Tensor:
    """Mean cross entropy."""
    logits, _ = projected(x, batch[0], "")
    return torch.stack([ce(row, y) for row, y in zip(logits, batch[1].tolist(), strict=True)]).mean()


def feddecorr(x: Params, w: Params, batch: Any, counts: list[int], beta: float, literal: bool = False) -> Tensor:
    """beta mean_{j != k} rho_jk^2; literal: x^T x is not divided by B - 1, and its squares by B."""
    f, out = projected(x, batch[0], "")[1], plain_ce(x, batch)
    size, d = f.shape
    if size == 1:
        return out
    columns = []
    for j in range(d):
        centred = f[:, j] - f[:, j].mean()
        columns.append(centred / torch.sqrt((centred**2).sum() / (size - 1) + 1e-8))
    products = [(columns[j] * columns[k]).sum() ** 2 for j in range(d) for k in range(d) if j != k]
    scale = 1 / size if literal else 1 / (size - 1) ** 2
    return out + beta * scale * torch.stack(products).mean()


def feduv(x: Params, w: Params, batch: Any, counts: list[int], lam: float, mu: float) -> Tensor:
    """lam mean_c relu(1/sqrt(C) - std_b softmax_bc) + mu mean_{b < b'} exp(-|f_b - f_b'|^2 / sigma)."""
    logits, f = projected(x, batch[0], "")
    out, size = plain_ce(x, batch), len(f)
    if size == 1:
        return out
    rows = torch.stack([torch.exp(row) / torch.exp(row).sum() for row in logits])
    deviations = [torch.sqrt(((p - p.mean()) ** 2).sum() / (size - 1) + 1e-12) for p in rows.T]
    gaps = [torch.clamp(len(deviations) ** -0.5 - deviation, min=0) for deviation in deviations]
    squares = [((f[a] - f[b]) ** 2).sum() for a in range(size) for b in range(a + 1, size)]
    sigma = median_low([value for value in torch.stack(squares).tolist() if value] or [1.0])
    crowded = torch.stack([torch.exp(-value / sigma) for value in squares]).mean()
    return out + lam * torch.stack(gaps).mean() + mu * crowded


def average_of(loss: Loss) -> Callable[..., Path]:
    """FedAvg with a loss."""

    def method(p: Problem, s: Settings, rounds: int, counts: dict[int, list[int]], **hyper: Any) -> Path:
        def rule(p: Problem, client: int, w: Params, x: Params, batch: Any) -> Params:
            leaves = {name: value.clone().requires_grad_() for name, value in x.items()}
            found = partial(loss, **hyper)(leaves, w, batch, counts[client])
            return dict(zip(leaves, torch.autograd.grad(found, list(leaves.values())), strict=True))

        return average(p, s, rounds, rule, sizes=True)

    return method


METHODS: dict[str, Callable[..., Path]] = {
    "fedlc": average_of(fedlc),
    "fedrs": average_of(fedrs),
    "balanced": average_of(balanced),
    "fedetf": average_of(fedetf),
    "fedntd": average_of(fedntd),
    "fedvls": average_of(fedvls),
    "feddecorr": average_of(feddecorr),
    "feduv": average_of(feduv),
}
