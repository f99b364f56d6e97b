"""pFedFDA."""

from undrift.blocks import GaussianHead
from undrift.core.method.algorithm import Algorithm


def pfedfda(beta: float | None = None, ridge: float = 1.0) -> Algorithm:
    """pFedFDA: every head is the discriminant of Gaussian features, the client's own mixed with those of all clients.

    Use it for personal classifiers where clients differ in features and labels and some have few examples: a head costs
    no training. Not for wide features: their covariance, d^2 numbers, travels both ways.

    Features of a class are taken for a Gaussian around its mean, with one covariance for all classes. The best head
    then follows from means, covariance and class frequencies; a client with few examples leans on those of all clients,
    as its own examples tell.

        client:  w <- w - lr g on the body, under the fixed head of the global mu, S with its own pi_i
                 mu_i, S_i of its features;   (mu_i, S_i) <- beta (mu_i, S_i) + (1 - beta) (mu, S)
                 beta: least cross entropy of each half of its examples under the head from the other half
        server:  B <- B + sum_i n_i/n delta_i on the body;   (mu, S) <- sum_i n_i/n (mu_i, S_i)
        evaluation:  (B, head of (mu_i, S_i) and pi_i)
        head:  A = S^-1 mu,   b_c = log pi_c - mu_c^T A_c / 2

    mu_c are the mean features of class c, S the covariance around them, pi_i the client's class frequencies.

    Args:
        beta: a client's share of its own Gaussians; None lets each client choose from 0, 0.05, ..., 1.
        ridge: what is added to the diagonal of S_i, in units of squared features; 1e-4 in the paper, 1 in its code.

    Limits:
        beta = 1 gives every client the head of its own features.
        beta = 0 leaves the first, random head, with the client's own frequencies.

    Example:
        >>> pfedfda()
        Algorithm(personalization=GaussianHead(beta=None, ridge=1.0))

    References:
        McLaughlin and Su, Personalized federated learning via feature distribution adaptation, NeurIPS 2024.

    Note:
        Features are measured once more after training, in evaluation mode; the code collects those that pass in
        training. One beta serves means and covariance; it is the best of a grid where the code takes ten steps of
        L-BFGS. The halves are every class's examples in turn. The code measures statistics and beta again with the
        newest body before a client is evaluated; here a client is evaluated with the head of its last round. A client
        without a round has the server's head, of equal frequencies. The paper adds 1e-4 I to a covariance. Its code,
        with which its numbers were made, adds the whole of I, and 1e-4 to every entry, which is left out here: with
        1e-4 I heads become large where a client has fewer examples than features: on the digits, at the learning rate
        0.1 without clipping, personal accuracy fell again from round to round.
    """
    return Algorithm(personalization=GaussianHead(beta, ridge))
