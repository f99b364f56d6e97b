"""FedAS."""

from undrift.blocks import AlignedBody, ByFisher
from undrift.blocks.personalization.part import Part
from undrift.core.method.algorithm import Algorithm


def fedas(rate: float = 0.01, head: Part = "last") -> Algorithm:
    """FedAS: FedPer in which a client aligns the received body with its own, and steep clients have a larger weight.

    Use it in place of FedPer where clients take part rarely or for few steps. Not for cross-device settings: a client
    keeps its last model, and its weight is measured by one more epoch of gradients.

    The new body places a client's classes elsewhere than its head expects; a few steps move them back before both are
    trained. A client whose loss is flat has learned its data, so the others should move the body.

        client:  p_y the mean features of its examples of class y at its last model;   one epoch from (B, H_i)
                 w <- w - rate grad sum_y mean_x,j (z_j(x) - p_yj)^2 on the body, over the classes of a batch
                 w <- w - lr g(w), body and head;   at the end keep w,  t_i = mean_b ||g_b(w)||^2 over an epoch
        server:  B <- B + sum_i t_i delta_i / sum_i t_i, on the body
        evaluation:  (B, H_i)

    Args:
        rate: step size of the alignment; 0 switches it off.
        head: the private tensors: "last" for those of the last module, or name patterns such as ("head.*",).

    Limits:
        rate=0 and equal t_i give FedPer with equal weights.
        A client's first round has no model of its own and no alignment.

    Example:
        >>> fedas()
        Algorithm(aggregation=ByFisher(), personalization=AlignedBody(names='last', rate=0.01))

    References:
        Yang et al., FedAS: bridging inconsistency in personalized federated learning, CVPR 2024.

    Note:
        t_i is the trace of the Fisher matrix from gradients of batches, as in released code; batches of one example
        give the trace itself. That code adds them up over batches, so that larger clients have larger weights, and
        requires the trace of absent clients, too; here it is the mean over batches, of the clients of the round. It
        measures in evaluation mode, here the model is in training mode. It aligns before a client is evaluated; here a
        client is evaluated with the newest body as it is and its own head.
    """
    return Algorithm(aggregation=ByFisher(), personalization=AlignedBody(head, rate))
