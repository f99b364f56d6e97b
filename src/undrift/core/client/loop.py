"""The one local loop: every method of every paper runs through these lines."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Spectral
from undrift.core.method.view import Step
from undrift.core.model.flat_model import Vector, pieces
from undrift.core.model.oracle import Oracle
from undrift.core.model.samples import clip_norm


def descend(
    algorithm: Algorithm, oracle: Oracle, states: Mapping[str, Any], step: Step, batches: Iterable[Any]
) -> None:
    """All local steps: perturb, filter, clip, correct, decay, move."""
    a, local, w, rate = algorithm, step.local, oracle.model.w, step.lr
    oracle.penalty = partial(a.objective.penalty, states["objective"], step)
    coupled, decoupled = (local.weight_decay if a.local_optimizer.decoupled is x else 0.0 for x in (False, True))
    shared = a.personalization.shared(step.layout)
    shared = shared if shared is None else shared.to(w.device)
    split = shared is not None and type(a.spectral) is not Spectral
    plain = a.local_optimizer.plain and oracle.reads and oracle.scale is None

    def inside(new: Vector, old: Vector) -> Vector:
        """Filters and corrections act on what is shared; the private part follows its own gradient."""
        return new if shared is None or new is old else torch.where(shared, new, old)

    count = 0
    for count, batch in enumerate(batches, start=1):
        oracle.next(count - 1, batch)
        if local.step_schedule is not None:
            step = replace(step, lr=rate * local.factor(count - 1, step.steps))
            oracle.penalty = partial(a.objective.penalty, states["objective"], step)
        oracle.freeze(a.personalization.active(step))
        offset = a.perturbation.perturb(states["perturbation"], step)
        if offset is not None:
            offset = inside(a.spectral.filter_offset(offset, states["spectral"], step), offset)
        grad = a.perturbation.adjust(oracle.gradient(offset), states["perturbation"], step)
        grad = a.personalization.adjust(grad, states["personalization"], step)
        oracle.recall()
        whole = grad.clone() if split else grad
        grad = inside(a.spectral.adjust(grad, states["spectral"], step), whole)
        if local.clip is not None:
            grad = clip_norm(grad, local.clip, read=oracle.reads)
        own = grad.clone() if shared is not None else grad
        grad = a.drift.adjust(grad, states["drift"], step)
        grad = a.momentum.adjust(grad, states["momentum"], step)
        grad = inside(a.objective.adjust(grad, states["objective"], step), own)
        if plain and oracle.frozen is None:
            _move(w, a.local_optimizer.adjust(grad, states["local_optimizer"], step), coupled, step.lr)
            continue
        if coupled:
            grad = grad.add_(w, alpha=coupled)
        if oracle.frozen is not None:
            grad = grad.masked_fill_(oracle.frozen, 0)
        grad = a.local_optimizer.adjust(grad, states["local_optimizer"], step)
        if decoupled:
            grad = grad.add(w, alpha=decoupled)
        w.add_(oracle.allowed(grad), alpha=-step.lr)
    if count != step.steps:
        raise ValueError(f"expected {step.steps} batches for {step.examples} examples, got {count}")


def _move(w: Vector, grad: Vector, decay: float, lr: float) -> None:
    """A step of SGD; the bits are those of two whole passes."""
    for here, slope in pieces(w, grad):
        if decay:
            slope.add_(here, alpha=decay)
        here.add_(slope, alpha=-lr)
