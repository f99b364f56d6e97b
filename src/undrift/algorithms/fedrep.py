"""FedRep."""

from undrift.blocks import Alternating
from undrift.blocks.personalization.part import Part
from undrift.core.method.algorithm import Algorithm


def fedrep(head_epochs: int = 10, body_epochs: int = 1, head: Part = "last", tuned: int = 10) -> Algorithm:
    """FedRep: FedPer in which a client first fits its head to the received body, then the body to that head.

    Use it in place of FedPer where local computation allows many epochs of the head, ten for each of the body by
    default. Not where local epochs are few or one global model is needed: every client has its own head.

    The many cheap steps of the head make the body's gradient that of a representation, not of a bad classifier.

        client:  start from (B, H_i);   E_h epochs H_i <- H_i - lr g_H;   then E_b epochs B <- B - lr g_B
        server:  B <- B + sum_i n_i/n delta_i, on the body
        evaluation:  (B, H_i), after some epochs of the head alone

    Args:
        head_epochs: E_h; 0 never moves the head.
        body_epochs: E_b; 0 never moves the body. The paper has 1 for clients with 2 classes of CIFAR-10, 5 elsewhere.
        head: the private tensors: "last" for those of the last module, or name patterns such as ("head.*",).
        tuned: epochs of the head alone before a client is evaluated; 0 evaluates as FedPer does.

    Limits:
        head=() gives FedAvg with the E_b epochs of the second phase; with head_epochs=0 FedAvg.
        body_epochs=0 never moves the body: heads on random features.

    Example:
        >>> fedrep(tuned=0)
        Algorithm(personalization=Alternating(names='last', tuned=0, head_epochs=10, body_epochs=1))

    References:
        Collins et al., Exploiting shared representations for personalized federated learning, ICML 2021.

    Note:
        Train with E_h + E_b local epochs (the code's local_ep, 11): with another number the steps are divided in the
        same proportion, the boundary rounded down, so that the body has at least one step. The body is averaged by
        examples; the paper's clients are of one size, its code is uniform on CIFAR and by examples on FEMNIST. The
        code averages heads, too, and then overwrites them: here they are never sent. Its momentum of 0.5 runs through
        both phases; here there is none. Its last round trains the heads of all clients: that is `tuned`. The analysis
        takes one gradient step of the body, the experiments epochs.
    """
    return Algorithm(personalization=Alternating(head, tuned, head_epochs, body_epochs))
