"""FedLWSAM."""

from undrift.blocks import SAM, ByLastLoss, LastLossComplement
from undrift.core.method.algorithm import Algorithm


def fedlwsam(rho: float = 0.05, rule: str = "inverse", temperature: float = 1.0) -> Algorithm:
    """FedLWSAM: sharpness-aware local steps; clients with a lower training loss count for more.

    Use it where both FedSAM and FedLW fit, or as FedSCAM's baseline. Not under strong label skew, where a low loss
    often means few classes, nor for slow clients: every step takes two gradients.

    FedSAM and FedLW at once: the perturbation seeks flat minima on every client, the weights trust clients whose model
    fits their data.

        client:  g <- g(w + rho g(w)/||g(w)||)
                 L_i = mean loss at the unperturbed points over all examples of the last epoch
        server:  w <- w + sum_i a_i delta_i / sum_i a_i,   a_i = 1 / (L_i + 1e-8)

    Args:
        rho: the radius; 0 switches the perturbation off.
        rule: "inverse"; "softmax" takes a_i = exp(-L_i / temperature), "complement" the weights of FedNolowe.
        temperature: the temperature of the softmax; a large one gives equal weights.

    Limits:
        rho = 0 with one epoch a round gives FedLW, with "complement" FedNolowe.
        With equal losses it is FedSAM.
        Scaling all losses does not change the weights with "inverse" and "complement".
        With two clients a round "inverse" and "complement" are the same.

    Example:
        >>> fedlwsam()
        Algorithm(perturbation=SAM(rho=0.05, blend=1.0), aggregation=ByLastLoss(rule='inverse', temperature=1.0))

    References:
        Named as a baseline in the FedSCAM paper, without a text of its own. Its parts: Qu et al., Generalized federated
        learning via sharpness aware minimization, ICML 2022; Yao et al., A loss-based weighted aggregation method for
        federated learning with heterogeneous computing resources, APNet 2025.

    Note:
        The weight formula, the radius and the epoch that is measured are ours: FedSCAM states only that rho is fixed
        and that FedLW's weights are used, and FedLW's formula is not public (see fedlw). FedLW measures all epochs of a
        round, this method the last one. The numbers of examples are not used. With "complement" running
        statistics are averaged with equal weights, as in FedNolowe.
    """
    return Algorithm(
        perturbation=SAM(rho),
        aggregation=LastLossComplement() if rule == "complement" else ByLastLoss(rule, temperature),
    )
