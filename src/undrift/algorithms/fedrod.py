"""FedROD."""

from undrift.blocks import AddedHead, BalancedLogits
from undrift.blocks.personalization.part import Part
from undrift.core.method.algorithm import Algorithm


def fedrod(tau: float = 1.0, head: Part = "last") -> Algorithm:
    """FedROD: a global model trained by the balanced softmax, to whose head every client adds one of its own.

    Use it where a global model and personal ones are both needed, for classifiers under label skew. Not where clients
    rarely take part: a client without a round of its own has the global model.

    The balanced loss makes the shared model fit all classes, as if labels were balanced; what is special about a
    client's labels is learned by the small head that stays with it.

        client:      loss <- mean_x CE(f(x) + tau log n, y), n_c the client's examples of class c, for w
                     v <- v - lr g(w + v) on the head, by the plain loss;   at the end keep v
        server:      FedAvg
        evaluation:  w + v: the logits of both heads are added

    Args:
        tau: strength of the balance; 0 trains the global model as FedAvg does.
        head: the tensors that v is added to: "last" for those of the last module, "all", or name patterns.

    Limits:
        The global model is that of FedAvg with the balanced softmax, with tau = 0 that of FedAvg.
        head=() evaluates the global model.

    Example:
        >>> fedrod()
        Algorithm(objective=BalancedLogits(tau=1.0), personalization=AddedHead(names='last'))

    References:
        Chen and Chao, On bridging generic and personalized federated learning for image classification, ICLR 2022.

    Note:
        The paper's variant whose personal head comes from a hypernetwork is left out. v starts at zero, so that a
        client begins with the global model; ports start it as a copy of the head. Its gradient is computed through the
        whole model and cut to the head, a second gradient per step, which equals that on fixed features; a layer that
        draws random numbers, such as dropout, draws other ones for it.
    """
    return Algorithm(objective=BalancedLogits(tau), personalization=AddedHead(head))
