"""Whitened, our own method."""

from dataclasses import replace

from undrift.algorithms.uniform import uniform
from undrift.blocks import Whiten
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Spectral


def whitened(share: float = 0.1, host: Algorithm | None = None, every: int = 1, patches: int = 64) -> Algorithm:
    """Whitened: any method whose layers are trained as if their inputs had no means and few directions in common.

    Use it in short training of CNNs and MLPs, where rounds and traffic count, with skewed labels or without skew. Not
    where computing time counts, as a step solves equations in every layer; nor for recurrent layers, left as they are.

    All inputs of a layer have a mean in common, since activations are positive, and neighbouring pixels are alike. A
    step along such a direction changes the outputs of every example, also of those that a client does not have. So
    means are removed from the gradient of a layer, and what is left of it is damped where its inputs have much energy.
    The derivation and the measurements are in docs/evidence/findings/mean-part.md.

        client:  for every dense and convolutional layer  G <- G P (I + A / (share tr A))^-1,  A = mean of P x x^T P
                 over the inputs x in the batch;  P removes means, over each feature map in a dense layer, over all
                 inputs of a patch in a convolution;  then the step of the host
        server:  that of the host

    Args:
        share: of the energy of the inputs, at which a direction keeps half of its gradient; 1e-5 or more.
        host: the method whose gradients are changed, by no filter yet; None is FedAvg with equal weights.
        every: after how many steps of a visit A is taken anew; 1 takes that of every batch.
        patches: of an image a convolution reads at most about so many, evenly spaced.

    Limits:
        A large share gives the host with the filter center("maps") on its gradients.

    Example:
        >>> whitened()
        Algorithm(spectral=Whiten(share=0.1, center='maps', every=1, patches=64), aggregation=Uniform())

    References:
        Undrift, docs/evidence/findings/mean-part.md; the input side of K-FAC (Martens and Grosse 2015) without means.

    Note:
        Not published elsewhere. The factor of K-FAC is that of one batch here, as in FOOF (Benzing 2022), and its
        damping is relative to the energy. Choose the learning rate anew: it is one to eight times that of FedAvg.
        Convolutions with groups keep their gradients, as recurrent layers do.
    """
    host = uniform() if host is None else host
    if type(host.spectral) is not Spectral:
        raise ValueError(
            f"whitened: host must not change gradients or perturbations already, got spectral={host.spectral!r}; use "
            "that host as it is, or one without it"
        )
    return replace(host, spectral=Whiten(share, "maps", every, patches))
