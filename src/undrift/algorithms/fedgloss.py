"""FedGloSS."""

from undrift.blocks import FedDyn, ServerSAM, WarmSAM
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Correction


def fedgloss(
    rho: float = 0.15, local_rho: float = 0.15, mu: float = 0.1, warmup: int = 2000, first: float = 0.001
) -> Algorithm:
    """FedGloSS: sharpness-aware steps of the server, at no extra traffic, inside FedDyn.

    Use it for long runs in which each client takes part often: the server perturbs the model without additional
    traffic. Not for short runs with the default warm-up of 2000 rounds, nor where clients are seen rarely: each keeps a
    dual.

    What is flat for a client need not be flat for the global loss. The server therefore perturbs the global model
    itself, along the last round's pseudo-gradient, and sends out the perturbed model; the duals keep the clients
    consistent, so that the last pseudo-gradient approximates the next.

        server:  broadcast w0 = w + rho_t U(p);   p the last pseudo-gradient, 0 in round 0
        client:  offset = local_rho_t U(g(w));   g <- g(w + offset) - h_i + mu (w - w0)
                 at the end h_i <- h_i - mu delta_i,  delta_i = w - w0
        server:  h <- h - mu/N sum_i delta_i;   p <- -sum_i n_i delta_i / sum_i n_i
                 w <- w - p - h/mu, from the w that was not shifted
        radii:   rho_t = first + (rho - first) min(1, t / warmup), for both

    Args:
        rho: the server's radius; 0 gives FedSpeed, by examples and with the warm-up. 0.01 for CIFAR-100.
        local_rho: the clients' radius; 0 has them take plain steps, at one gradient each. 0.2 for CIFAR-100.
        mu: strength of the proximal term, 1/beta in the paper, 0.01 for CIFAR-100; 0 switches the duals off.
        warmup: how many rounds the radii grow, 15000 for CIFAR-100; 0 switches the warm-up off.
        first: both radii in round 0; a radius below it does not grow.

    Limits:
        rho = 0 and warmup = 0 gives FedSpeed with radius local_rho, by examples.
        rho = local_rho = 0 gives FedDyn, by examples.
        mu = 0 gives FedSAM on clients and server, without duals; with both radii 0 that is FedAvg.
        Round 0 is not shifted.

    Example:
        >>> fedgloss().perturbation, fedgloss().drift
        (WarmSAM(rho=0.15, warmup=2000, first=0.001), FedDyn(mu=0.1))
        >>> fedgloss(rho=0.01).server_optimizer
        ServerSAM(rho=0.01, warmup=2000, first=0.001)

    References:
        Caldarola et al., Beyond local sharpness: communication-efficient global sharpness-aware minimization for
        federated learning, CVPR 2025.

    Note:
        The defaults are those for CIFAR-10 over 10000 rounds: shorten warmup with the run, or the radii stay small. The
        paper's sum in h runs over all clients, of which only those that took part have a displacement; its code also
        divides by their number. Here the sum is over the cohort, divided by N, as in FedDyn; the authors' mu, tuned
        with the code's scale, may be too large. The code moves anchor and dual after every epoch, here after every
        round: the same for one epoch. In the code's warm-up the server's radius is constant, near the clients' radius;
        here both follow the paper's formula. The model evaluated is the one that is not shifted.
    """
    return Algorithm(
        perturbation=WarmSAM(local_rho, warmup, first),
        drift=FedDyn(mu) if mu else Correction(),
        server_optimizer=ServerSAM(rho, warmup, first),
    )
