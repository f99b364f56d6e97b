"""FedFSA with another choice of layers, a control."""

from dataclasses import replace

from undrift.algorithms.fedfsa import fedfsa
from undrift.blocks import FSA
from undrift.core.method.algorithm import Algorithm


def fedfsa_random(rho: float = 0.1, larger: float = 0.2, count: int = 2, a: float = 0.1, tuned: int = 0) -> Algorithm:
    """FedFSA-Random: FedFSA with the larger radius in layers drawn at random.

    Use it as a control for FedFSA: the larger radius stays, the choice of layers is random. Not as a method of its own:
    it has all of FedFSA's costs.

    The paper's first control: if FedFSA does not beat it, the choice of layers does not matter, only the larger radius.

        client:  offset_k = rho_k g1_k / ||g1||, rho_k = larger for the tensors k in Top_i, else rho
                 g <- a g(w + offset) + (1 - a) m
                 at the end Top_i <- count tensors drawn at random, anew in every round
        server:  m <- mean_i -delta_i / (steps_i lr);   w <- w + mean_i delta_i

    Args:
        rho: the radius of most tensors.
        larger: the radius of the tensors in Top_i; rho gives MoFedSAM.
        count: how many tensors are in Top_i; 0 gives MoFedSAM.
        a: share of the client's own gradient; 1 switches the momentum off.
        tuned: epochs in which a client tunes the head of the global model before it is evaluated; 0 evaluates the model
            it last trained.

    Limits:
        larger = rho, or count = 0, gives MoFedSAM.
        count at or above the number of layers that may be chosen gives FedFSA.

    Example:
        >>> fedfsa_random().perturbation
        FSA(rho=0.1, larger=0.2, count=2, choice='random', measure='normalized', blend=1.0)

    References:
        Xing et al., Flexible sharpness-aware personalized federated learning, AAAI 2025, ablation.

    Note:
        The tensors are drawn at the end of a client's round for its next one, as FedFSA chooses them, from the client's
        own generator; its first round has the radius rho everywhere. Otherwise as FedFSA. It starts as slowly as
        FedFSA: see there for radii that do not.
    """
    return replace(fedfsa(a=a, tuned=tuned), perturbation=FSA(rho, larger, count, choice="random"))
