"""Ravan."""

from undrift.blocks import Cores, ScaledCores
from undrift.core.method.algorithm import Algorithm


def ravan() -> Algorithm:
    """Ravan: every adapter has several heads, whose small cores train between fixed random factors.

    Use it where traffic must be small and the change of the model of a high rank: h heads of rank r send h r^2 numbers.
    Not where a few directions suffice that the fixed factors may lack: see RoLoRA and Fed-SB.

    The mean of products with fixed factors is exact, and the scales of a client weigh its heads.

        client:  W + s sum_h s_h B_h C_h A_h;   C_h <- C_h - lr g_C,  s_h <- s_h - lr g_s, from s_h = 1;   heads of the
                 model too;   upload s_h C_h
        server:  C_h <- sum_i p_i s_ih C_ih

    Limits:
        With scales that do not move it is FedAvg of the cores.

    Example:
        >>> ravan()
        Algorithm(release=ScaledCores(), personalization=Cores())

    References:
        Raje et al., Ravan: multi-head low-rank adaptation for federated fine-tuning, NeurIPS 2025.

    Note:
        The factors of all heads are orthonormal together where the layer is wide enough, and C_h is zero at first
        (undrift.models.add_cores). Every client trains all heads; in the paper weak ones train a part of them.
    """
    return Algorithm(release=ScaledCores(), personalization=Cores())
