"""FedLin."""

from undrift.blocks import FirstGradients, Uniform
from undrift.core.method.algorithm import Algorithm


def fedlin() -> Algorithm:
    """FedLin: every round first takes all clients' gradients at its model, and corrects the steps with them exactly.

    Use it where all clients take part in every round and corrections must not be stale: none is older than the round.
    Not with small cohorts or few rounds: half of the rounds only take gradients.

    A control variate of SCAFFOLD is as old as the client's last visit. FedLin takes the gradients at the model from
    which the round begins, so that the first step of every client is one along the gradient of the mean loss.

        client:  in rounds 0, 2, ..  c_i = mean of g_i(w) over the visit's batches
                 in rounds 1, 3, ..  y <- y - lr (g_i(y) - c_i + c)
        server:  in rounds 0, 2, ..  c = 1/m sum_i c_i;   the model stays
                 in rounds 1, 3, ..  w <- w + 1/m sum_i delta_i

    Limits:
        With one full-batch step a round it is gradient descent on the mean loss, in every other round.
        With clients of the same data and full batches it is FedAvg with equal weights, in every other round.

    Example:
        >>> fedlin()
        Algorithm(perturbation=FirstGradients(), aggregation=Uniform())

    References:
        Mitra et al., Linear convergence in federated learning: tackling client heterogeneity and sparse gradients,
        NeurIPS 2021.

    Note:
        A round of the paper is an exchange of gradients and one of models: here these are two rounds, so compare it
        with others at twice their rounds. The displacement of the first is c_i up to a factor, so a client uploads one
        model in each. Its gradients are those of the visit's batches: all of its data, if a visit is an epoch of equal
        batches. The sparse gradients of the paper are left out. The paper has all clients in every round; one whose
        gradient is not of the round before takes its steps without a correction. Clipping acts on corrected gradients.
    """
    return Algorithm(perturbation=FirstGradients(), aggregation=Uniform())
