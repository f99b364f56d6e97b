"""FedPAC of 2023."""

from undrift.blocks import CombinedHeads, HeadFirst, TowardsPrototypes
from undrift.core.method.algorithm import Algorithm


def fedpac(lam: float = 1.0, head_epochs: int = 1, body_epochs: int = 5) -> Algorithm:
    """FedPAC (2023): features are pulled to shared class means, and each client combines the heads that fit it.

    Use it for personal classifiers under label skew where the server may see every client's head and the means of its
    features. Not where uploads are confidential: it gathers them and sends all heads to every client of a round.

    Features of a class that agree between clients make their heads comparable. A client then gains from the heads of
    clients with similar data, by weights that balance bias against variance.

        client:  begin from (B, sum_j a_j H_j);   h_ic = pi_ic mu_ic,  v_i = 1/n_i (mean_x ||z(x)||^2 - ||h_i||^2) at B
                 E_h epochs of the head, then E_b of the body with  loss <- loss + lam mean_x,j (z_j(x) - c_yj)^2
                 a = argmin a^T (diag(v) + D) a, a >= 0, sum_j a_j = 1,   D_jk = sum_c <h_ic - h_jc, h_ic - h_kc>
        server:  B <- B + sum_i n_i/n delta_i;   c_y <- the mean of z(x) over all x of class y
        evaluation:  (B, H_i), H_i the head it last trained

    mu_ic are the mean features of client i's class c, pi_ic its frequency; features c_y are those after training.

    Args:
        lam: strength of the pull towards the class means; 0 switches it off.
        head_epochs: E_h; 0 never trains the head.
        body_epochs: E_b; 0 never trains the body.

    Limits:
        Clients with equal features weigh heads by one over their variances.
        lam=0 and one client in a round give FedRep whose head stays with the model.

    Example:
        >>> fedpac().personalization
        HeadFirst(names='last', tuned=0, head_epochs=1, body_epochs=5)

    References:
        Xu, Tong and Huang, Personalized federated learning with feature alignment and classifier collaboration, ICLR
        2023.

    Note:
        Train with E_h + E_b local epochs; with another number the steps are divided in the same proportion, the
        boundary rounded down. Both phases have one rate and no momentum; the code has 0.1 for the head, 0.01 for the
        body and momentum 0.5. The server of the code computes the weights and sends each client its own head; here it
        sends the heads of the last cohort with h_j and v_j, and a client computes the weights with h_i and v_i of its
        last round, which gives the same with all clients in every round. One that was not in the last cohort adds its
        own head. The code sets weights below 0.001 to zero and cuts eigenvalues; the solution here is exact. For a
        class without c_y it takes the client's own mean; here such a class is not pulled. The global model's head is
        the mean by examples. FedPAC of 2026, a preconditioner method, is `fedpac-muon` or `fedpac-soap`.
    """
    return Algorithm(
        objective=TowardsPrototypes(lam),
        aggregation=CombinedHeads(),
        personalization=HeadFirst("last", 0, head_epochs, body_epochs),
    )
