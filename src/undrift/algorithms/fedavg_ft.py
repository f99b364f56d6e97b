"""FedAvg-FT."""

from undrift.blocks import Tuned
from undrift.blocks.personalization.part import Part
from undrift.core.method.algorithm import Algorithm


def fedavg_ft(epochs: int = 10, head: Part = "last") -> Algorithm:
    """FedAvg-FT: FedAvg whose model every client tunes on its own data before it is evaluated.

    Use it as the baseline of personal models: training, traffic and state are those of FedAvg. Not for clients without
    labelled examples of their own: there is nothing to tune on.

    The simplest personal model, and a hard one to beat: the shared training is exactly FedAvg's, and a few epochs on
    the head fit it to a client's classes.

        client:      FedAvg
        server:      FedAvg
        evaluation:  w_i = w, then w_i <- w_i - lr g(w_i) on the head for E_ft epochs

    Args:
        epochs: E_ft; 0 evaluates the global model on every client's own test set.
        head: what is tuned: "last" for the tensors of the last module, "all" for the whole model, or name patterns such
            as ("head.*",); () tunes nothing.

    Limits:
        epochs=0 gives FedAvg.
        head="all" tunes the full model.

    Example:
        >>> fedavg_ft()
        Algorithm(personalization=Tuned(epochs=10, names='last'))

    References:
        Collins et al., Exploiting shared representations for personalized federated learning, ICML 2021 (as baseline).
        Zhang et al., FedCR: personalized federated learning based on across-client common representation with
        conditional mutual information regularization, ICML 2023 (as baseline).

    Note:
        Papers differ in what is tuned. FedRep's and FedCR's code tune the head for 10 epochs with the body frozen,
        which is the default here; Ditto's code tunes the full model for max(40 n_i/B, 40) steps. Rate, batch size and
        weight decay are those of training in the next round. Frozen tensors do not decay either.
    """
    return Algorithm(personalization=Tuned(epochs, head))
