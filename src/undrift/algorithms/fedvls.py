"""FedVLS."""

from undrift.blocks import VacantClasses
from undrift.core.method.algorithm import Algorithm


def fedvls(lam: float = 1.0, suppression: float = 0.005, literal: bool = False) -> Algorithm:
    """FedVLS: clients keep what the received model knows of classes they lack, and restrain logits of other classes.

    Use it for classifiers where clients lack whole classes and have few examples of others. Not where computation is
    scarce: a step takes one more forward pass.

    Balanced logits treat rare classes fairly but leave missing ones alone, whose logits the received model
    teaches; and logits on examples of other classes are held down, those of frequent classes most.

        client:  loss <- CE(f + log p, y) + s sum_c p_c (log sum_{x: y != c} exp(f_c(x) - log p_c - log C) - log B)
                         + lam mean_x KL(softmax(f0(x)[V]) || softmax(f(x)[V]))
                 p the client's label frequencies, V the classes it lacks, f0 the received model, B the batch's size
        server:  FedAvg

    Args:
        lam: strength of the distillation of missing classes; 0 switches it off.
        suppression: s, strength of the second term; 0 switches it off.
        literal: count an example of class c in the second term as exp(0), as in released code, instead of leaving it
            out.

    Limits:
        lam = suppression = 0 gives the balanced softmax.
        With equally many examples of every class on each client and suppression = 0 it is FedAvg.

    Example:
        >>> fedvls()
        Algorithm(objective=VacantClasses(lam=1.0, suppression=0.005, literal=False))

    References:
        Guo et al., Exploring vacant classes in label-skewed federated learning, AAAI 2025.

    Note:
        After the authors' code, in which s is fixed at 0.005 and the argument for it unused. p has 1e-9 added, so a
        missing class all but leaves the softmax of the first term.
    """
    return Algorithm(objective=VacantClasses(lam, suppression, literal))
