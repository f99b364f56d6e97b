"""FedDisco."""

from undrift.blocks import ByDiscrepancy
from undrift.core.method.algorithm import Algorithm


def feddisco(a: float = 0.5, b: float = 0.1, metric: str = "kl", reference: tuple[float, ...] = ()) -> Algorithm:
    """FedDisco: weights that grow with a client's size and fall with the skew of its labels.

    Use it where label distributions differ and that of the task is known: clients far from it count for less. Not with
    secure aggregation or where label skew is confidential: the server holds every upload and one number about each
    client's labels.

    A client whose labels are far from those of the task pulls the average away from what it is tested on, however many
    examples it has. A client reveals one number about its labels, not the counts.

        client:  d_i = KL(P_i || T), P_i the shares of the classes in its data, T the reference;   local SGD
        server:  r_i = max(0, n_i / sum_j n_j - a d_i / sum_j d_j + b);   w <- w + sum_i r_i delta_i / sum_i r_i

    Args:
        a: how much label skew lowers the weight; 0 weighs by size and b alone.
        b: added to every weight; 0 switches it off.
        metric: "kl", normalised over the cohort, or "l2", ||P_i - T||_2 without normalisation.
        reference: the share of each class in T; () gives all classes the same share.

    Limits:
        a = b = 0 gives FedAvg.
        Equal labels everywhere and b = a d_i ("l2") or b = a/m ("kl") give FedAvg.
        a = 0 and b to infinity gives equal weights.

    Example:
        >>> feddisco()
        Algorithm(aggregation=ByDiscrepancy(a=0.5, b=0.1, metric='kl', reference=()))

    References:
        Ye et al., FedDisco: federated learning with discrepancy-aware collaboration, ICML 2023.

    Note:
        The released code crashes when every r_i is 0; we then weigh by size. Only "kl" is normalised over the cohort,
        as in that code. b has an effect of its own: with a = 0 it already makes the weights more equal. The weights of
        a cohort need two sums before they are known, so the server holds every upload. The number of classes is that of
        the task's label_counts(client); a task without one needs a reference. Running statistics are averaged by
        examples.
    """
    return Algorithm(aggregation=ByDiscrepancy(a, b, metric, tuple(reference)))
