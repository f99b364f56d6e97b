"""FedFSA."""

from undrift.blocks import FSA, Latest, ServerMomentum, Tuned, Uniform
from undrift.core.method.algorithm import Algorithm


def fedfsa(
    rho: float = 0.1, larger: float = 0.2, count: int = 2, a: float = 0.1, measure: str = "normalized", tuned: int = 0
) -> Algorithm:
    """FedFSA: MoFedSAM with a larger radius in the layers that each client's training changes most.

    Use it for personal models where each client takes part often: it keeps its last model and its choice of layers. Not
    for cross-device settings or slow clients: clients have state, download two models and take two gradients per step.

    Layers differ in how much local training changes them; a larger radius flattens these, and the others keep a
    small one that does not disturb them. Every client chooses its own layers and is evaluated with its own model.

        client:  offset_k = rho_k g1_k / ||g1||, rho_k = larger for the tensors k in Top_i, else rho
                 g <- a g(w + offset) + (1 - a) m
                 at the end Top_i <- the count tensors with the largest s_k, w_i <- w
                 s_k = mean_j (mm(w_k) - mm(w0_k))_j^2, mm(u) = (u - min u)/(max u - min u)
        server:  m <- mean_i -delta_i / (steps_i lr);   w <- w + mean_i delta_i

    ||g1|| is the norm over the whole model, so ||offset||^2 = rho^2 + (larger^2 - rho^2) f, with f the share of the
    squared gradient in Top_i. The radii as a plug-in: "fedspeed + fsa(larger=0.9)"; that method keeps its rho, and
    only the tensors in Top_i get the larger radius.

    Args:
        rho: the radius of most tensors.
        larger: the radius of the tensors in Top_i; rho gives MoFedSAM.
        count: how many tensors are in Top_i; 0 gives MoFedSAM.
        a: share of the client's own gradient; 1 switches the momentum off.
        measure: "normalized" is s_k above; "raw" leaves mm out; "sum" is ||w_k - w0_k||^2.
        tuned: epochs in which a client tunes the head of the global model before it is evaluated, and no w_i is kept;
            0 evaluates w_i.

    Limits:
        larger = rho, or count = 0, gives MoFedSAM.
        larger = rho and a = 1 gives FedSAM.
        rho = larger = 0 gives FedCM.
        A client's first round has the radius rho everywhere.

    Example:
        >>> fedfsa().perturbation
        FSA(rho=0.1, larger=0.2, count=2, choice='largest', measure='normalized', blend=1.0)

    References:
        Xing et al., Flexible sharpness-aware personalized federated learning, AAAI 2025.

    Note:
        The radii are those of Fashion-MNIST and CIFAR-10; for CIFAR-100 and Tiny-ImageNet the paper has 0.05 and 0.9,
        for ResNet-18 on CIFAR-100 0.05 and 1 with count = 5. The published pseudo-code gives the momentum the sign that
        ascends; here, as in the released code, it descends. Paper and code choose layers differently. In equations 8 to
        11 the gradient and the perturbation of a layer are multiplied as vectors, which gives its squared length
        ("sum") and prefers large layers. The code takes the mean over the weights of a layer after scaling them to [0,
        1] ("normalized"): the change in parts of the layer's range, whatever its size and scale; its results come from
        that. "raw" is neither, the mean without the scaling. Of the three, "normalized" and "raw" chose the same two
        layers in 18.5 % of the visits in the small CNN on Fashion-MNIST, "normalized" and "sum" in 54.5 %, "raw" and
        "sum" in none; the clients' accuracies of 86.4, 86.3 and 86.2 % over three seeds do not tell them apart. Chosen
        are weights of convolutions and linear maps, as in the code: no bias, no normalisation, no embedding, nothing
        named downsample or shortcut; if fewer than count are left, all of them, where the code would pick excluded
        ones. The rate decays per round and enters m as it was in the round; the code decays it per epoch and client.
        The FSA of the released FedALA+FSA also switches the momentum on; the plug-in here does not. A client is
        evaluated with the model it last trained and its own running statistics, and keeps one model for that: these are
        the paper's curves over rounds. Its tables also count one more round, in which all clients tune the head of the
        final global model with plain SGD: tuned=10, for every method there. On small data it starts slowly, as MoFedSAM
        does: in the smoke benchmark 10 % after 10 rounds; rho = 0.01 with larger = 0.02 gives 62 %.
    """
    return Algorithm(
        perturbation=FSA(rho, larger, count, measure=measure),
        momentum=ServerMomentum(a),
        aggregation=Uniform(),
        personalization=Tuned(tuned) if tuned else Latest(),
    )
