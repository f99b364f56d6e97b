"""FedBABU."""

from undrift.blocks import FrozenPart
from undrift.blocks.personalization.part import Part
from undrift.core.method.algorithm import Algorithm


def fedbabu(epochs: int = 5, tune: Part = "all", head: Part = "last") -> Algorithm:
    """FedBABU: only the body is trained; the head stays at its initial values until a client tunes its own model.

    Use it for personal models where clients keep nothing between their rounds: training is FedAvg's with fewer tensors
    that move. Not where the global model itself is used: its head is random, the same for all clients.

    A head that is trained on unlike clients fits none of them and misleads the body. With one fixed head all clients
    train the body towards the same targets, and the head is fitted where it is used.

        client:      w <- w - lr g on the body;   the head stays at its initial values
        server:      FedAvg
        evaluation:  w_i = w, then w_i <- w_i - lr g(w_i) on what is tuned, for some epochs

    Args:
        epochs: epochs of tuning; 0 evaluates the global model.
        tune: what is tuned: "all" for the whole model, "last" for the last module, or name patterns; () tunes nothing.
        head: what training leaves alone, in the same form; () gives FedAvg-FT.

    Limits:
        head=() gives FedAvg-FT.
        epochs=0 gives FedAvg with a frozen head.
        FedRep with head_epochs=0 is FedBABU that tunes the head alone.

    Example:
        >>> fedbabu()
        Algorithm(personalization=FrozenPart(epochs=5, names='all', frozen='last'))

    References:
        Oh et al., FedBABU: toward enhanced representation for federated image classification, ICLR 2022.

    Note:
        The code trains with momentum 0.9; here there is none, unless a local optimizer adds it. The paper compares
        tuning the head, the body and both, which is the default here; its code tunes for 5 epochs. Rate, batch size
        and weight decay of tuning are those of training in the next round. Frozen tensors do not decay.
    """
    return Algorithm(personalization=FrozenPart(epochs, tune, head))
