"""FedLoGe."""

from undrift.blocks import FixedCorners, RealignedHead
from undrift.core.method.algorithm import Algorithm


def fedloge(sparsity: float = 0.6, length: float = 0.1) -> Algorithm:
    """FedLoGe: features trained towards sparse fixed corners; a global head and personal ones are fitted to them.

    Use it for classifiers with rare classes, where a global model and personal ones are both needed. Not where clients
    rarely take part: a client without a round of its own has the global head, its rows made equally long.

    A head that is trained pulls features towards frequent classes. Here features only see a classifier that no data
    can bend, most of whose entries are zero, so that a class leaves the features it has no use for. Heads follow the
    features and never move them; the lengths of a head's rows tell how frequent its classes are, and are given to the
    global head, which has seen more examples.

        client:      loss <- mean_x CE(c V^T z(x), y) + CE(A [z(x)] + b, y)
                     (L, l) <- (L, l) - lr gradient of mean_x CE(L [z(x)] + l, y), kept by the client
        server:      FedAvg;   V is not sent
        evaluation:  rows ||L_c|| A_c + L_c, biases b_c + l_c

    z are the features, [z] without a gradient, (A, b) the model's last module, V fixed corners of length one.

    Args:
        sparsity: the share of V's entries that are zero.
        length: c, of the rows that the features see.

    Limits:
        sparsity=0 trains the features towards a regular simplex.

    Example:
        >>> fedloge()
        Algorithm(objective=FixedCorners(sparsity=0.6, length=0.1), personalization=RealignedHead(length=1.7))

    References:
        Xiao et al., FedLoGe: joint local and generic federated learning under long-tailed data, ICLR 2024.

    Note:
        After the authors' code. It finds V by 10,000 steps of Adam on the smallest angle; here 1,000 gradient steps on
        all angles bring every cosine within 0.005 of a regular simplex's. V has no bias. L starts as the head that a
        client first receives, there at random. The code's last step, in which a client tunes the lengthened global head
        for some epochs, is left out, and so is the global model of equally long rows but for clients without a round:
        the global accuracy is that of (A, b). The code takes a client's missing classes from its test labels; here they
        are those of its training labels. Its readme adds the global head where its code adds L.
    """
    return Algorithm(objective=FixedCorners(sparsity, length), personalization=RealignedHead())
