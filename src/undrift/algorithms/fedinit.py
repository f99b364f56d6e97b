"""FedInit."""

from undrift.blocks import RelaxedStart, Uniform
from undrift.core.method.algorithm import Algorithm


def fedinit(beta: float = 0.1, first: bool = True, literal: bool = False) -> Algorithm:
    """FedInit: a client begins a little further from where it ended last.

    Use it where each client takes part often: a start beyond the received model takes away a part of last round's
    drift, at the cost of one model kept. Not where clients are seen once: there is no last model to leave.

    A client's last model lies on its own side of the global one, and training would take it there again. The relaxed
    start begins on the other side.

        client:  y_0 = w + beta (w - w_i), w_i the model it last trained;   delta_i = y_K - w
        server:  w <- w + 1/m sum_i delta_i

    Args:
        beta: strength of the relaxation; 0 gives FedAvg with equal weights.
        first: whether w_i of a client that never took part is the run's first model, as in the paper, which then
            travels in every round; otherwise such a client begins at w.
        literal: delta_i = y_K - y_0, as in released code.

    Limits:
        beta = 0 gives FedAvg with equal weights.
        With all clients in a round both forms are equal, since the offsets cancel.

    Example:
        >>> fedinit(first=False).personalization
        RelaxedStart(beta=0.1, first=False, literal=False)

    References:
        Sun et al., Understanding how consistency works in federated learning via stage-wise relaxed initialization,
        NeurIPS 2023.

    Note:
        The server averages end points, as in the paper. It is a start for any method: "feddyn + relaxed-start(0.1)".
        Methods that read displacements as gradient steps, such as SCAFFOLD, refuse it; scaffold-inside takes it.
    """
    return Algorithm(aggregation=Uniform(), personalization=RelaxedStart(beta, first, literal))
