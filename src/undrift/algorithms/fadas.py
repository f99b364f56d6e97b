"""FADAS."""

from undrift.blocks import AMSGrad, Buffered, Uniform
from undrift.core.method.algorithm import Algorithm


def fadas(
    size: int = 5,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
    delay: int | None = 1,
    max_age: int | None = None,
) -> Algorithm:
    """FADAS: FedBuff with adaptive steps of the server, which are shorter if an upload in the buffer is old.

    Use it where FedBuff needs adaptive steps, as for transformers and embeddings. Not where fast and slow clients have
    different data: like FedBuff it follows the mean weighted by speed.

    Uploads are not weighted by age; the rate of the whole step falls with the age of the oldest one.

        server:  after K arrivals  d = 1/K sum_i delta_i
                 m <- beta1 m + (1 - beta1) d;   v <- beta2 v + (1 - beta2) d^2;   peak <- max(peak, v)
                 w <- w + lr_t m / (sqrt(peak) + eps);   lr_t = lr if age <= delay, else lr / age

    Args:
        size: K, arrivals per step. The cohort of the run is the number of clients in flight.
        lr: server learning rate, about the largest step of a coordinate.
        beta1: momentum; 0 switches it off.
        beta2: memory of the squares.
        eps: keeps the root away from zero.
        delay: the age of the oldest upload up to which the rate is lr; None does not adapt it.
        max_age: uploads older than so many steps are rejected; None takes all.

    Limits:
        With delay = None it is FedBuff without weights by age and with AMSGrad on the server: by-age('constant') +
        ams-grad(delay=None) + buffered(5).
        With beta1 = beta2 = 0 and one step each coordinate moves by lr.

    Example:
        >>> fadas().server_optimizer
        AMSGrad(lr=0.001, beta1=0.9, beta2=0.99, eps=1e-08, delay=1)

    References:
        Wang et al., FADAS: Towards federated adaptive asynchronous optimization, ICML 2024.

    Note:
        As in the paper's algorithm there is no bias correction; the authors' code has both of Adam's. In that code
        clients train from the previous model while their displacement is taken to the current one, and ages start one
        step late; here a displacement is that from the model that the client started from.
    """
    return Algorithm(
        aggregation=Uniform(),
        server_optimizer=AMSGrad(lr, beta1, beta2, eps, delay),
        schedule=Buffered(size, max_age=max_age),
    )
