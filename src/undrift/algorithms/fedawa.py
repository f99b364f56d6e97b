"""FedAWA."""

from undrift.blocks import ByAgreement
from undrift.core.method.algorithm import Algorithm


def fedawa(steps: int = 1, lr: float = 1e-3) -> Algorithm:
    """FedAWA: the server learns the weights from the uploads themselves, without proxy data.

    Use it where the uploads themselves should determine the weights and the server has no data. Not with secure
    aggregation or in very large cohorts: the server holds every upload of a round.

    An upload that disagrees with the others, or changes the direction of the model's parameters, should count less. The
    server holds one logit per client and improves those of the cohort by Adam.

        server:  T_i = log n_i when client i is first seen;   lam = softmax(T) over the cohort
                 J(T) = sum_i lam_i ||delta_i - sum_j lam_j delta_j|| + sum_i lam_i (1 - cos(w + delta_i, w))
                 T <- T after some steps of Adam on J, betas (0.5, 0.999), fresh in every round
                 w <- w + sum_i lam_i delta_i, lam from the new T

    Args:
        steps: steps of Adam in a round; 0 gives FedAvg.
        lr: rate of Adam; 0 gives FedAvg.

    Limits:
        steps = 0 or lr = 0 gives FedAvg, under partial participation, too.
        Equal uploads do not change the logits.
        One client alone has weight one.

    Example:
        >>> fedawa()
        Algorithm(aggregation=ByAgreement(steps=1, lr=0.001))

    References:
        Shi et al., FedAWA: adaptive optimization of aggregation weights in federated learning using client vectors,
        CVPR 2025.

    Note:
        The released code starts from softmax(n_i / sum_j n_j), nearly equal weights for all sizes; averages with
        the weights from before the step; carries logits by position in the cohort, so that other clients inherit them;
        and keeps the clients' momentum across rounds. Here logits belong to clients, start at FedAvg, and act at once.
        T_i = log n_i, not log of the share in the cohort at first sight: the same with full participation, but shares
        of different cohorts do not compare. A fresh Adam moves each logit by about lr in its only step, 0.3 in 300
        rounds, so with the defaults results stay close to FedAvg; steps=10, lr=0.01 shows an effect. For two clients J
        is smallest with one of them alone: more steps drive the weights there. Running statistics are averaged by
        examples.
    """
    return Algorithm(aggregation=ByAgreement(steps, lr))
