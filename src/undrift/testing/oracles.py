"""What the papers compute, on NumPy arrays, one client and one step at a time: for tests of any library, without torch.

An oracle takes a `Federation`, in which every random choice is made, and returns the global model after each round, one
per row. Compare a library's models with these. Symbols: x is the local model, w the received one, D_i = x_i - w what
client i moved, S the cohort, m its size, N the number of clients, p_i = n_i / sum_S n, K the local steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Federation",
    "Regression",
    "ditto",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "feddyn",
    "fedprox",
    "fedyogi",
    "scaffold",
]

Vector: TypeAlias = NDArray[np.float64]
"""A model, flat."""

Step: TypeAlias = Callable[[float, Vector, Vector], Vector]
"""(rate, x, direction) -> the next x."""


@dataclass(frozen=True)
class Federation:
    """Clients, their gradients and their work, with every random choice made in advance.

    Args:
        start: the first model.
        gradient: (client, round, step, x) -> the gradient of the mean loss of this step's batch, at x.
        examples: how many each client has.
        cohorts: the clients of each round; an oracle computes as many rounds.
        steps: (client, round) -> how many local steps.
        rate: (round) -> the local learning rate.
        weight_decay: d in the step x <- x - rate (direction + d x). It does not enter variates.
        clip: the largest norm of a gradient, which acts before any correction; None does not clip.
        optimizer: makes the local optimizer of one visit; None is SGD with the weight decay above.
    """

    start: Vector
    gradient: Callable[[int, int, int, Vector], Vector]
    examples: Sequence[int]
    cohorts: Sequence[Sequence[int]]
    steps: Callable[[int, int], int]
    rate: Callable[[int], float]
    weight_decay: float = 0.0
    clip: float | None = None
    optimizer: Callable[[], Step] | None = None

    def clipped(self, client: int, round: int, step: int, x: Vector) -> Vector:
        """The gradient of a step, not longer than `clip`.

        Args:
            client: its number.
            round: counted from 0.
            step: counted from 0.
            x: the local model.
        """
        g = self.gradient(client, round, step, x)
        length = float(np.linalg.norm(g))
        return g if self.clip is None or length <= self.clip else g * (self.clip / length)

    def sgd(self, rate: float, x: Vector, direction: Vector) -> Vector:
        """The local model after a step: x - rate (direction + weight_decay x).

        Args:
            rate: the learning rate.
            x: the local model.
            direction: the corrected gradient.
        """
        return x - rate * (direction + self.weight_decay * x)

    def visit(
        self, client: int, round: int, w: Vector, shift: Vector | float = 0.0, mu: float = 0.0
    ) -> tuple[Vector, Vector]:
        """The local model after steps along g + shift + mu (x - w), and the mean of the gradients g.

        Args:
            client: its number.
            round: counted from 0.
            w: where it starts.
            shift: a constant correction.
            mu: the pull to w.
        """
        move, x, found = self.optimizer() if self.optimizer else self.sgd, w, []
        for step in range(self.steps(client, round)):
            found.append(self.clipped(client, round, step, x))
            x = move(self.rate(round), x, found[-1] + shift + mu * (x - w))
        return x, np.mean(found, axis=0)

    def weights(self, round: int, weighted: bool = True) -> Vector:
        """p_i of a cohort: n_i / sum_S n, or 1/m.

        Args:
            round: counted from 0.
            weighted: whether clients count by their examples.
        """
        sizes = np.array([self.examples[i] if weighted else 1 for i in self.cohorts[round]], dtype=np.float64)
        return np.asarray(sizes / sizes.sum())


@dataclass(frozen=True)
class Regression:
    """Softmax regression, a problem that every library can compute: logits = W a + b, cross entropy, whole batches.

    The flat model is W (classes x features, row by row) and then b, as `torch.nn.Linear` lists its parameters.

    Args:
        inputs: of every client, examples x features.
        targets: of every client, the classes of its examples.
        classes: how many classes there are.
    """

    inputs: Sequence[Vector]
    targets: Sequence[NDArray[np.int64]]
    classes: int

    @classmethod
    def random(cls, sizes: Sequence[int] = (5, 12, 7, 9, 3), features: int = 4, seed: int = 0) -> "Regression":
        """Three classes in every client, in different places.

        Args:
            sizes: how many examples each client has.
            features: of an example.
            seed: of the draws.
        """
        draw = np.random.default_rng(seed)
        targets = [draw.integers(3, size=n) for n in sizes]
        shift = [draw.normal(size=features) for _ in sizes]
        inputs = [draw.normal(size=(len(y), features)) + s + y[:, None] for y, s in zip(targets, shift, strict=True)]
        return cls(inputs, targets, 3)

    def gradient(self, client: int, round: int, step: int, x: Vector) -> Vector:
        """The gradient of the mean cross entropy of all examples of a client.

        Args:
            client: its number.
            round: not used: every batch is whole.
            step: not used.
            x: the flat model.
        """
        a, y = self.inputs[client], self.targets[client]
        size = self.classes * a.shape[1]
        logits = a @ x[:size].reshape(self.classes, -1).T + x[size:]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = powers / powers.sum(axis=1, keepdims=True) - np.eye(self.classes)[y]
        return np.concatenate([(error.T @ a).reshape(-1), error.sum(axis=0)]) / len(y)

    def federation(self, cohorts: Sequence[Sequence[int]], steps: int = 3, lr: float = 0.2) -> Federation:
        """These clients as a federation, from a first model of small alternating numbers.

        Args:
            cohorts: the clients of each round.
            steps: local steps, each on all examples.
            lr: the local learning rate.
        """
        size = self.classes * (self.inputs[0].shape[1] + 1)
        start = 0.1 * np.cos(np.arange(size))
        examples = [len(y) for y in self.targets]
        return Federation(start, self.gradient, examples, cohorts, lambda *_: steps, lambda _: lr)


def fedavg(federation: Federation, weighted: bool = True) -> Vector:
    """Local SGD: x <- x - lr g(x);  w <- sum_S p_i x_i.  McMahan et al. 2017, https://arxiv.org/abs/1602.05629.

    Args:
        federation: the clients.
        weighted: whether clients count by their examples; False takes the plain mean.
    """
    return fedprox(federation, 0.0, weighted)


def fedprox(federation: Federation, mu: float, weighted: bool = True) -> Vector:
    """A pull to the received model.  Li et al. 2020, https://arxiv.org/abs/1812.06127.

    x <- x - lr (g(x) + mu (x - w));  w <- sum_S p_i x_i.

    Args:
        federation: the clients.
        mu: the pull; 0 gives FedAvg.
        weighted: whether clients count by their examples; False takes the plain mean.
    """
    w, path = federation.start, []
    for t in range(len(federation.cohorts)):
        w = _mean(federation, t, w, mu, weighted)
        path.append(w)
    return np.stack(path)


def scaffold(federation: Federation) -> Vector:
    """Option II.  Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378.

    x <- x - lr (g(x) - c_i + c);  c_i+ = c_i - c + (w - x) / (K lr), which is the mean of g without weight decay;
    w <- mean_S x_i;  c <- c + 1/N sum_S (c_i+ - c_i).

    Args:
        federation: the clients.
    """
    w, c, path = federation.start, np.zeros_like(federation.start), []
    own = [np.zeros_like(w) for _ in federation.examples]
    for t, cohort in enumerate(federation.cohorts):
        ends, changes = [], []
        for i in cohort:
            x, slope = federation.visit(i, t, w, c - own[i])
            ends.append(x)
            changes.append(slope - own[i])
            own[i] = slope
        w, c = np.mean(ends, axis=0), c + np.sum(changes, axis=0) / len(own)
        path.append(w)
    return np.stack(path)


def feddyn(federation: Federation, mu: float) -> Vector:
    """Acar et al. 2021, https://arxiv.org/abs/2111.04263, algorithm 1; its alpha is mu.

    x <- x - lr (g(x) - l_i + mu (x - w));  l_i <- l_i - mu (x - w);
    h <- h - mu/N sum_S (x_i - w);  w <- mean_S x_i - h/mu.

    Args:
        federation: the clients.
        mu: alpha of the paper.
    """
    w, h, path = federation.start, np.zeros_like(federation.start), []
    own = [np.zeros_like(w) for _ in federation.examples]
    for t, cohort in enumerate(federation.cohorts):
        ends = []
        for i in cohort:
            x, _ = federation.visit(i, t, w, -own[i], mu)
            ends.append(x)
            own[i] = own[i] - mu * (x - w)
        h = h - mu / len(own) * np.sum(np.stack(ends) - w, axis=0)
        w = np.mean(ends, axis=0) - h / mu
        path.append(w)
    return np.stack(path)


def fedavgm(
    federation: Federation, beta: float, lr: float = 1.0, nesterov: bool = False, weighted: bool = True
) -> Vector:
    """Server momentum.  Hsu et al. 2019, https://arxiv.org/abs/1909.06335.

    d = w - sum_S p_i x_i;  v <- beta v + d;  w <- w - lr v, or with nesterov w <- w - lr (d + beta v).

    Args:
        federation: the clients.
        beta: the momentum; 0 gives FedAvg.
        lr: the server's rate.
        nesterov: whether the step is ahead of the momentum.
        weighted: whether clients count by their examples; False takes the plain mean.
    """
    w, v, path = federation.start, np.zeros_like(federation.start), []
    for t in range(len(federation.cohorts)):
        d = w - _mean(federation, t, w, weighted=weighted)
        v = beta * v + d
        w = w - lr * (d + beta * v if nesterov else v)
        path.append(w)
    return np.stack(path)


def fedadam(federation: Federation, lr: float, beta1: float, beta2: float, tau: float, weighted: bool = True) -> Vector:
    """Reddi et al. 2021, https://arxiv.org/abs/2003.00295, algorithm 2: no bias correction, v starts at tau^2.

    D = sum_S p_i x_i - w;  m <- beta1 m + (1 - beta1) D;  v <- beta2 v + (1 - beta2) D^2;
    w <- w + lr m / (sqrt(v) + tau).

    Args:
        federation: the clients.
        lr: the server's rate.
        beta1: the momentum.
        beta2: of the second moment.
        tau: the adaptivity.
        weighted: whether clients count by their examples; False takes the plain mean.
    """
    return _adaptive(federation, "adam", lr, beta1, tau, beta2, weighted)


def fedyogi(federation: Federation, lr: float, beta1: float, beta2: float, tau: float, weighted: bool = True) -> Vector:
    """As FedAdam with v <- v - (1 - beta2) D^2 sign(v - D^2).  Reddi et al. 2021, algorithm 2.

    Args:
        federation: the clients.
        lr: the server's rate.
        beta1: the momentum.
        beta2: of the second moment.
        tau: the adaptivity.
        weighted: whether clients count by their examples; False takes the plain mean.
    """
    return _adaptive(federation, "yogi", lr, beta1, tau, beta2, weighted)


def fedadagrad(federation: Federation, lr: float, beta1: float, tau: float, weighted: bool = True) -> Vector:
    """As FedAdam with v <- v + D^2.  Reddi et al. 2021, algorithm 2.

    Args:
        federation: the clients.
        lr: the server's rate.
        beta1: the momentum.
        tau: the adaptivity.
        weighted: whether clients count by their examples; False takes the plain mean.
    """
    return _adaptive(federation, "adagrad", lr, beta1, tau, 0.0, weighted)


def ditto(
    federation: Federation, lam: float, lr: float | None = None, weighted: bool = True, first: bool = False
) -> tuple[Vector, Vector]:
    """FedAvg's models, and the personal ones after the last round.  Li et al. 2021, https://arxiv.org/abs/2012.04221.

    v_i <- v_i - lr (g(v_i) + lam (v_i - w)), for as many steps as the global model takes. The paper leaves open where
    v_i begins: at the first w that its client receives, or with `first` at the start of all. A client that never took
    part has the global model, or with `first` the start.

    Args:
        federation: the clients.
        lam: the pull of the personal models.
        lr: their rate; None takes the local one.
        weighted: whether clients count by their examples; False takes the plain mean.
        first: whether personal models begin at the start of all.
    """
    w, path = federation.start, []
    own = {i: w for i in range(len(federation.examples)) if first}
    for t, cohort in enumerate(federation.cohorts):
        for i in cohort:
            v = own.get(i, w)
            for step in range(federation.steps(i, t)):
                pull = federation.clipped(i, t, step, v) + federation.weight_decay * v + lam * (v - w)
                v = v - (lr or federation.rate(t)) * pull
            own[i] = v
        w = _mean(federation, t, w, weighted=weighted)
        path.append(w)
    return np.stack(path), np.stack([own.get(i, w) for i in range(len(federation.examples))])


def _mean(federation: Federation, round: int, w: Vector, mu: float = 0.0, weighted: bool = True) -> Vector:
    """sum_S p_i x_i."""
    ends = [federation.visit(i, round, w, mu=mu)[0] for i in federation.cohorts[round]]
    return np.asarray(federation.weights(round, weighted) @ np.stack(ends))


def _adaptive(
    federation: Federation,
    kind: Literal["adam", "yogi", "adagrad"],
    lr: float,
    beta1: float,
    tau: float,
    beta2: float,
    weighted: bool,
) -> Vector:
    """FedAdam, FedYogi and FedAdagrad."""
    w, m, v, path = federation.start, np.zeros_like(federation.start), np.full_like(federation.start, tau**2), []
    for t in range(len(federation.cohorts)):
        d = _mean(federation, t, w, weighted=weighted) - w
        m = beta1 * m + (1 - beta1) * d
        new = {
            "adam": beta2 * v + (1 - beta2) * d**2,
            "yogi": v - (1 - beta2) * d**2 * np.sign(v - d**2),
            "adagrad": v + d**2,
        }
        v = new[kind]
        w = w + lr * m / (np.sqrt(v) + tau)
        path.append(w)
    return np.stack(path)
