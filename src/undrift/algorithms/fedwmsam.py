"""FedWMSAM."""

from undrift.blocks import AdaptiveMomentum, MomentumPath, Scaffold, Uniform
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Correction


def fedwmsam(
    rho: float = 0.01, a: float = 0.1, pace: float = 0.01, personalized: bool = True, paced: bool = False
) -> Algorithm:
    """FedWMSAM: a momentum corrected for each client, a perturbation along its path, and a share that adapts.

    Use it where each client takes part often and FedSAM's second gradient is too expensive. Not for cross-device
    settings or a limited download: clients keep a control variate (unless personalized=False) and download three
    models.

    A client's own sharpness need not be that of the global loss, and momentum is out of date when clients no longer
    agree with it. The perturbation therefore follows the global momentum, at one gradient a step, and the momentum's
    share falls as the clients' directions differ from it.

        client:  M_i = m + a/(1 - a) (c - c_i);   offset = rho U(w0 + b M_i - w) at step b, none at b = 0
                 g <- a (g(w + offset) - c_i + c) + (1 - a) m   = a g(w + offset) + (1 - a) M_i
                 at the end c_i <- c_i - c - delta_i / (steps_i lr);   turn_i = 1 - cos(-delta_i, m), 0 if m = 0
        server:  m <- mean_i -delta_i / (steps_i lr);   c <- c + 1/N sum_i (new c_i - old c_i)
                 a <- (1 - pace) a + pace min(max(mean_i turn_i, 0.1), 0.9);   w <- w + mean_i delta_i

    The personalised momentum is SCAFFOLD followed by FedCM. c_i becomes a g + (1 - a) (c_i - c + m), with the mean g of
    its round, and c becomes (1 - s/N) c + s/N times the new m if s clients took part.

    Args:
        rho: the radius; 0 switches the perturbation off.
        a: the first share of the client's own direction; 1, with pace = 0, switches the momentum off.
        pace: how fast that share adapts, lambda in the paper; 0 keeps it.
        personalized: correct the momentum by control variates; False switches that off, and with it the clients' state.
        paced: scale the path by the learning rate, b lr M_i, so that it has the units of a model.

    Limits:
        rho = 0, personalized = False and pace = 0 gives FedCM.
        rho = 0, a = 1 and pace = 0 gives SCAFFOLD.
        With all clients in every round c is m.

    Example:
        >>> fedwmsam().perturbation, fedwmsam().momentum
        (MomentumPath(rho=0.01, paced=False), AdaptiveMomentum(a=0.1, pace=0.01, least=0.1, most=0.9))

    References:
        Li et al., A fast and flat federated learning method via weighted momentum and sharpness-aware minimization,
        NeurIPS 2025.

    Note:
        Based on the authors' poster and code, which contradict each other. The poster sums the displacements
        without 1/steps and steps against them, which ascends; here as in the code. The poster's c_k in M stands for
        c - c_k, its rule for c has the wrong sign and scale: SCAFFOLD's is meant. The poster sets a to the mean cosine,
        the reverse of its own reasoning; the code has 1 - cos, as here. The code perturbs downhill, and spreads single
        coordinates over whole tensors, an error it shares with FedLESAM's; here the poster's direction, which goes
        uphill. So the published figures test neither form of the perturbation. The code scales m by the decay of the
        rate once too often. b M adds gradients to a model, on the poster and in the code; paced = True does not. The
        server sends m and c apart, three models in all, so that it never sees a client's variate; the authors' server
        holds them all. rho is the best of the authors' sweep from 0.005 to 0.5, their code's default is 0.1: from there
        on accuracy falls.
    """
    return Algorithm(
        perturbation=MomentumPath(rho, paced),
        drift=Scaffold() if personalized else Correction(),
        momentum=AdaptiveMomentum(a, pace),
        aggregation=Uniform(),
    )
