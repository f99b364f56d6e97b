"""The methods for adapters as slow loops over named tensors in double precision, from their formulas.

The model is y = head(relu((W + s B A) x + b)); A is (r, d_in), B is (d_out, r). With cores it is W + s B C A, C of one
block for each head on its diagonal, times the head's scale.
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
    ranks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        counts = torch.tensor([float(len(y)) for _, y in self.data], dtype=torch.float64)
        self.shares = (counts / counts.sum()).tolist()
        self.ranks = self.ranks or [len(self.model["A"])] * len(self.data)

    def scores(self, model: Tensors, x: Tensor) -> Tensor:
        b = model["B"] @ core(model) if "C" in model else model["B"]
        weight = model["W"] + self.scale * b @ model["A"]
        return torch.relu(x @ weight.T + model["b"]) @ model["head"].T + model["bias"]

    def descend(
        self,
        start: Tensors,
        client: int,
        trained: tuple[str, ...],
        term: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensors:
        """Local steps on some of the tensors, with a term of B and A in the loss."""
        model = {name: x.clone() for name, x in start.items()}
        (x, y), move = self.data[client], Settings(self.lr).mover()
        for _ in range(self.steps):
            leaves = {name: model[name].clone().requires_grad_() for name in trained}
            loss = cross_entropy(self.scores(model | leaves, x), y)
            loss = loss if term is None else loss + term(leaves["B"], leaves["A"])
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


def core(model: Tensors) -> Tensor:
    """The matrix between B and A."""
    out: Tensor = torch.block_diag(*(model["scales"][:, None, None] * model["C"]))
    return out


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


def cut(run: Oracle, client: int) -> Tensors:
    """The global model with the leading rows and columns of the factors, as many as the client's rank."""
    rank = run.ranks[client]
    return run.model | {"A": run.model["A"][:rank], "B": run.model["B"][:, :rank]}


def padded(run: Oracle, model: Tensors) -> Tensors:
    """Factors of any rank with zeros up to the global one."""
    b, a = torch.zeros_like(run.model["B"]), torch.zeros_like(run.model["A"])
    rank = len(model["A"])
    b[:, :rank], a[:rank] = model["B"], model["A"]
    return model | {"A": a, "B": b}


def hetlora(run: Oracle, lam: float = 0.001, gamma: float = 0.99) -> None:
    models, sizes = [], []
    for client in range(len(run.data)):
        start, rank = cut(run, client), run.ranks[client]
        k = int(gamma * rank)

        def term(b: Tensor, a: Tensor, k: int = k) -> Tensor:
            norms = b[:, k:].square().sum(), a[k:].square().sum()
            return lam * norms[0].sqrt() * norms[1].sqrt() if all(norms) else torch.zeros(())

        model = run.descend(start, client, ("A", "B", "head", "bias"), term)
        before, after = (float(x["B"][:, k:].norm() * x["A"][k:].norm()) for x in (start, model))
        if lam and after < before:
            run.ranks[client] = max(1, k)
        models.append(padded(run, model))
        sizes.append(float((model["B"] @ model["A"]).norm()))
    run.shares = [size / sum(sizes) for size in sizes]
    run.average(models)


def flexlora_of_ranks(run: Oracle, fixed_alpha: bool = True) -> None:
    """With a fixed alpha every client has the scale alpha / r_i, and the product that the server's factors have."""
    models, scale, full = [], run.scale, len(run.model["A"])
    product = torch.zeros_like(run.model["W"])
    for client in range(len(run.data)):
        start = cut(run, client)
        run.scale = scale * full / run.ranks[client] if fixed_alpha else scale
        start["B"] = start["B"] * scale / run.scale
        models.append(run.descend(start, client, ("A", "B", "head", "bias")))
        product += run.shares[client] * run.scale * models[-1]["B"] @ models[-1]["A"]
    run.scale = scale
    factors = decomposed(product / scale, full)
    run.average([padded(run, model) for model in models])
    run.model["B"], run.model["A"] = factors


def flora_of_ranks(run: Oracle, fixed_alpha: bool = False) -> None:
    """Clients stack factors of their own ranks; one side has p_i s_i. The new A is left to the caller."""
    scale, full, models, sides = run.scale, len(run.model["A"]), [], []
    for client, rank in enumerate(run.ranks):
        run.scale = scale * full / rank if fixed_alpha else scale
        models.append(run.descend(cut(run, client), client, ("A", "B", "head", "bias")))
        sides.append(run.shares[client] * run.scale * models[-1]["B"])
    run.scale = scale
    b, a = torch.cat(sides, dim=1), torch.cat([model["A"] for model in models])
    assert len(a) == b.shape[1] == sum(run.ranks)
    run.average([padded(run, model) for model in models])
    run.model["W"] = run.model["W"] + b @ a
    run.model["B"] = torch.zeros_like(run.model["B"])


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


def fed_sb(run: Oracle) -> None:
    """A model with "C", (1, r, r), between the factors; in round 0 "W" trains."""
    if run.round == 0:
        models = run.all_trained("W")
        moved = run.mean(models, "W") - run.model["W"]
        weight = run.model["W"]
        run.average(models)
        u, s, v = torch.linalg.svd(moved, full_matrices=False)
        rank = len(run.model["A"])
        b, a = signed(u[:, :rank], v[:rank])
        run.model |= {"W": weight, "B": b, "A": a, "C": torch.diag(s[:rank] / run.scale)[None]}
    else:
        run.average(run.all_trained("C"))


def ravan(run: Oracle) -> None:
    """A model with "C", (h, r, r), and "scales", (h)."""
    models = run.all_trained("C", "scales")
    for model in models:
        model["C"] = model["C"] * model["scales"][:, None, None]
        model["scales"] = torch.ones_like(model["scales"])
    run.average(models)


METHODS: dict[str, Callable[[Oracle], None]] = {
    "fedavg": fedit,
    "ffa-lora": ffa_lora,
    "rolora": rolora,
    "fedsvd": fedsvd,
    "fedrot-lora": fedrot_lora,
    "fedex-lora": fedex_lora,
    "flora": flora,
    "flexlora": flexlora,
    "hetlora": hetlora,
    "lora-fair": lora_fair,
    "fedsa-lora": fedsa_lora,
    "fed-sb": fed_sb,
    "ravan": ravan,
}


def run(name: str, start: Oracle, rounds: int) -> Oracle:
    """So many rounds of a method."""
    for start.round in range(rounds):
        METHODS[name](start)
    return start
