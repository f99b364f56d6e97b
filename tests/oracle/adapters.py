"""The methods for adapters as slow loops over named tensors in double precision, from their formulas.

The model is y = head(relu((W + s B A) x + b)); A is (r, d_in), B is (d_out, r).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .methods import Settings

Tensors = dict[str, Tensor]


@dataclass
class Oracle:
    """One run: the global model, and what clients keep.

    Args:
        model: the tensors "W", "b", "A", "B", "head", "bias".
        scale: s.
        data: inputs and classes of each client.
        lr: the learning rate.
        steps: local steps, each on all data.
    """

    model: Tensors
    scale: float
    data: list[tuple[Tensor, Tensor]]
    lr: float
    steps: int
    round: int = 0
    kept: dict[int, Tensors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = torch.tensor([float(len(y)) for _, y in self.data], dtype=torch.float64)
        self.shares = (counts / counts.sum()).tolist()

    def scores(self, model: Tensors, x: Tensor) -> Tensor:
        weight = model["W"] + self.scale * model["B"] @ model["A"]
        return torch.relu(x @ weight.T + model["b"]) @ model["head"].T + model["bias"]

    def descend(self, start: Tensors, client: int, trained: tuple[str, ...]) -> Tensors:
        """Local steps on some of the tensors."""
        model = {name: x.clone() for name, x in start.items()}
        (x, y), move = self.data[client], Settings(self.lr).mover()
        for _ in range(self.steps):
            leaves = {name: model[name].clone().requires_grad_() for name in trained}
            loss = cross_entropy(self.scores(model | leaves, x), y)
            slopes = dict(zip(trained, torch.autograd.grad(loss, list(leaves.values())), strict=True))
            model |= move(self.lr, {name: model[name] for name in trained}, slopes)
        return model

    def all_trained(self, *trained: str) -> list[Tensors]:
        """Every client's model after its steps; heads train, too."""
        return [self.descend(self.model, client, (*trained, "head", "bias")) for client in range(len(self.data))]

    def mean(self, models: list[Tensors], name: str) -> Tensor:
        return torch.stack([p * model[name] for p, model in zip(self.shares, models, strict=True)]).sum(0)

    def mean_product(self, models: list[Tensors]) -> Tensor:
        return torch.stack([p * m["B"] @ m["A"] for p, m in zip(self.shares, models, strict=True)]).sum(0)

    def average(self, models: list[Tensors]) -> None:
        self.model = {name: self.mean(models, name) for name in self.model}

    def effective(self) -> Tensor:
        return self.model["W"] + self.scale * self.model["B"] @ self.model["A"]


def signed(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Column by column, the largest entry of u positive."""
    u, v = u.clone(), v.clone()
    for k in range(u.shape[1]):
        if u[u[:, k].abs().argmax(), k] < 0:
            u[:, k], v[k] = -u[:, k], -v[k]
    return u, v


def decomposed(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """U S and V^T of the largest singular values, from the dense matrix."""
    u, s, v = torch.linalg.svd(product, full_matrices=False)
    u, v = signed(u[:, :rank], v[:rank])
    return u * s[:rank], v


def fedit(run: Oracle) -> None:
    run.average(run.all_trained("A", "B"))


def ffa_lora(run: Oracle) -> None:
    run.average(run.all_trained("B"))


def rolora(run: Oracle) -> None:
    run.average(run.all_trained("B" if run.round % 2 == 0 else "A"))


def fedsvd(run: Oracle) -> None:
    ffa_lora(run)
    run.model["B"], run.model["A"] = decomposed(run.model["B"] @ run.model["A"], len(run.model["A"]))


def fedsa_lora(run: Oracle) -> None:
    own = ("B", "head", "bias")
    models = []
    for client in range(len(run.data)):
        start = run.model | run.kept.get(client, {})
        models.append(run.descend(start, client, ("A", *own)))
        run.kept[client] = {name: models[-1][name] for name in own}
    run.model["A"] = run.mean(models, "A")


def fedex_lora(run: Oracle) -> None:
    models = run.all_trained("A", "B")
    run.average(models)
    run.model["W"] = run.model["W"] + run.scale * (run.mean_product(models) - run.model["B"] @ run.model["A"])


def flora(run: Oracle) -> None:
    """Stacked factors; the new A is left to the caller."""
    models = run.all_trained("A", "B")
    run.average(models)
    b = torch.cat([model["B"] for model in models], dim=1)
    a = torch.cat([p * model["A"] for p, model in zip(run.shares, models, strict=True)])
    run.model["W"] = run.model["W"] + run.scale * b @ a
    run.model["B"] = torch.zeros_like(run.model["B"])


def flexlora(run: Oracle) -> None:
    models = run.all_trained("A", "B")
    run.average(models)
    run.model["B"], run.model["A"] = decomposed(run.mean_product(models), len(run.model["A"]))


def lora_fair(run: Oracle, lam: float = 0.01) -> None:
    models = run.all_trained("A", "B")
    run.average(models)
    a = run.model["A"]
    missing = run.mean_product(models) - run.model["B"] @ a
    run.model["B"] = run.model["B"] + missing @ a.T @ torch.linalg.inv(a @ a.T + lam * torch.eye(len(a)).double())


def fedrot_lora(run: Oracle, lam: float = 0.5) -> None:
    models = run.all_trained("A", "B")
    for model in models:
        turn = model["A"] @ run.model["A"].T if run.round % 2 == 0 else model["B"].T @ run.model["B"]
        q = polar((1 - lam) * torch.eye(len(turn)).double() + lam * polar(turn))
        model["A"], model["B"] = q.T @ model["A"], model["B"] @ q
    run.average(models)


def polar(matrix: Tensor) -> Tensor:
    """The nearest rotation."""
    u, _, v = torch.linalg.svd(matrix)
    if torch.linalg.det(u @ v) < 0:
        v[-1] *= -1
    out: Tensor = u @ v
    return out


METHODS: dict[str, Callable[[Oracle], None]] = {
    "fedavg": fedit,
    "ffa-lora": ffa_lora,
    "rolora": rolora,
    "fedsvd": fedsvd,
    "fedrot-lora": fedrot_lora,
    "fedex-lora": fedex_lora,
    "flora": flora,
    "flexlora": flexlora,
    "lora-fair": lora_fair,
    "fedsa-lora": fedsa_lora,
}


def run(name: str, start: Oracle, rounds: int) -> Oracle:
    """So many rounds of a method."""
    for start.round in range(rounds):
        METHODS[name](start)
    return start
