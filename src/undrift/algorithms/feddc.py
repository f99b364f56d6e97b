"""FedDC."""

from undrift.blocks import FedDyn, Scaffold, Uniform
from undrift.core.method.algorithm import Algorithm


def feddc(mu: float = 0.01) -> Algorithm:
    """FedDC: the drift variable of FedDyn, then the control variates of SCAFFOLD.

    Use it where each client takes part often and both FedDyn's dual and SCAFFOLD's control variate are affordable. Not
    where clients are seen rarely or memory is scarce: a client keeps two vectors of the model's size and downloads two.

    A client's drift has two parts: its models move away over the rounds, which a drift variable records, and its
    gradients differ within a round, which a control variate corrects. FedDC corrects both.

        client:  g <- g - h_i + mu (w - w0) - c_i + c
                 at the end h_i <- h_i - mu delta_i;   c_i <- c_i - c - delta_i / (steps lr)
        server:  h <- h - mu/N sum_i delta_i;   c <- c + 1/N sum_i (new c_i - old c_i)
                 w <- w + 1/m sum_i delta_i - h/mu

    Args:
        mu: strength of the proximal term, alpha in the paper: 0.01 for CIFAR, 0.1 for MNIST; it cannot be 0.

    Limits:
        Without its momentum slot, or with variates kept at zero, it is FedDyn.
        With mu to 0 and the server's h kept at zero it is SCAFFOLD (option II).
        Round 0, in which all variates are zero, is that of FedDyn; its local models are those of FedProx.

    Example:
        >>> feddc()
        Algorithm(drift=FedDyn(mu=0.01), momentum=Scaffold(), aggregation=Uniform())

    References:
        Gao et al., FedDC: federated learning with non-IID data via local drift decoupling and correction, CVPR 2022.

    Note:
        The variate is the mean direction descended without the correction, the proximal term included, as in the
        authors' code; the paper's text takes the plain last displacements instead. The server averages equally and
        adds the mean drift of all N clients, as the code does; the paper weighs by examples and adds the drift of
        those that took part. The released code divides by the rate of round 0 in every round, so that its variates
        shrink as the rate decays, and scales them by n_i N / n; we divide by the round's own rate and do not scale.
        The server derives both states from the displacements: a client uploads one model, not two.
    """
    return Algorithm(drift=FedDyn(mu), momentum=Scaffold(), aggregation=Uniform())
