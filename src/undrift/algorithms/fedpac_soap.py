"""FedPAC with SOAP."""

from undrift.blocks import MixedSOAP, Uniform
from undrift.core.method.algorithm import Algorithm


def fedpac_soap(
    gamma: float = 0.5, beta1: float = 0.95, beta2: float = 0.95, frequency: int = 10, largest: int = 10_000
) -> Algorithm:
    """FedPAC with SOAP: clients take Adam's steps in common eigenbases, and mix in the last global direction.

    Use it where clients learn fast with second-order steps and their bases part: the server averages the factors that
    bases come from. Not where traffic is scarce or layers are wide: an axis of n elements has a factor of n^2 numbers,
    which travels both ways, and its eigenvectors cost n^3 in every visit.

    Adam in the eigenbases of a client's own gradients moves each client along other axes. Mean factors give all clients
    of a round the same axes, and every step is mixed with the last global direction.

        client:  L the server's, Q its eigenvectors;   y <- y - lr ((1 - gamma) SOAP's step + gamma d/K)
                 SOAP's step: Adam on Q_a^T of the gradient G on all axes a, turned back
                 L_a <- beta2 L_a + (1 - beta2) G_a G_a^T, G_a the gradient with axis a as rows
        server:  L <- 1/m sum_i L_i;   d <- -1/m sum_i delta_i / lr;   w <- w + 1/m sum_i delta_i

    Args:
        gamma: share of the global direction, beta in the paper; 0 leaves SOAP from averaged factors.
        beta1: memory of the gradient.
        beta2: memory of the squares and of the factors.
        frequency: steps from one change of the bases to the next, within a round.
        largest: longest axis with a factor; longer ones keep the model's own coordinates.

    Limits:
        gamma = 0 is SOAP on the clients from averaged factors; in the first round local SOAP.
        largest = 1 and gamma = 0 is AdamW on the clients, with moments that begin anew in every round.

    Example:
        >>> fedpac_soap().local_optimizer
        MixedSOAP(gamma=0.5, beta1=0.95, beta2=0.95, eps=1e-08, frequency=10, largest=10000)

    References:
        Liu et al., Taming preconditioner drift: unlocking the potential of second-order optimizers for federated
        learning on non-IID data, 2026.
        Vyas et al., SOAP: improving and stabilizing Shampoo using Adam, ICLR 2025.

    Note:
        SOAP begins without bases, so the first gradient of the first round moves nothing. In released code the first
        gradient of every round moves nothing, and a worker that is used for the first time ignores the server's
        factors; here bases are the eigenvectors of those factors before the first step, on every client. Moments begin
        at zero in every round, since a mean of squares in different bases is none. eps is added after the correction of
        the moments, as in Adam. Not the FedPAC of 2023, which combines heads. Sophia is left out: its diagonal needs
        gradients at labels drawn from the model.
    """
    return Algorithm(
        local_optimizer=MixedSOAP(gamma, beta1, beta2, frequency=frequency, largest=largest), aggregation=Uniform()
    )
