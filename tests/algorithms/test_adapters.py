"""The methods for adapters against slow loops, and what must hold of their products, bases and compositions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from oracle.adapters import METHODS, Oracle, cut, fedex_lora, flexlora_of_ranks, flora_of_ranks, hetlora, run
from undrift import Local, Simulation
from undrift.algorithms import make
from undrift.compose.grammar import parse
from undrift.core.method.algorithm import Algorithm, cost, vectors_sent
from undrift.core.method.part_vector import travelling
from undrift.core.model.flat_model import Layout, bind
from undrift.core.model.pairs import find_pairs, mask_of
from undrift.core.records.types import ServerState
from undrift.lens import client_vectors, product_errors
from undrift.models import AdaptedLinear, add_cores, fold_cores, open_base
from undrift.planning.round_cost import method_size

SCALE = 1.5
SIZES = (5, 9, 3)
LOCAL = Local(lr=0.3, epochs=3, batch_size=64)
NAMES = {
    "layer.base_layer.weight": "W",
    "layer.base_layer.bias": "b",
    "layer.lora_A": "A",
    "layer.lora_B": "B",
    "layer.parametrizations.lora_B.0.frame": "B",
    "layer.parametrizations.lora_B.original0": "C",
    "layer.parametrizations.lora_B.original1": "scales",
    "head.weight": "head",
    "head.bias": "bias",
}
OPEN = ("fedex-lora", "flora")
SCALED = (*OPEN, "fed-sb")
HEADS = {"fed-sb": 1, "ravan": 2}


class Net(nn.Module):
    """A layer of 4 inputs and 6 outputs with an adapter, and a head."""

    def __init__(self, base: bool, rank: int = 2, heads: int = 0, width: int = 6, scale: float = SCALE) -> None:
        super().__init__()
        self.layer = AdaptedLinear(nn.Linear(4, width), rank, rank * scale)
        self.head = nn.Linear(width, 3)
        if heads:
            add_cores(self, heads)
        if base:
            open_base(self)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.layer(x)))
        return out


@dataclass(frozen=True)
class Task:
    """Clients of several sizes that take whole-batch steps, in double precision."""

    base: bool = False
    sizes: tuple[int, ...] = SIZES
    same: bool = False
    rank: int = 2
    heads: int = 0
    width: int = 6
    scale: float = SCALE

    @property
    def population(self) -> int:
        return len(self.sizes)

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            return Net(self.base, self.rank, self.heads, self.width, self.scale).double()

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        draw = Generator().manual_seed(0 if self.same else client)
        count = self.sizes[client]
        return torch.randn(count, 4, generator=draw, dtype=torch.float64), torch.randint(3, (count,), generator=draw)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    def examples(self, client: int) -> int:
        return self.sizes[client]

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        yield self.data(client)


def method(name: str, **arguments: Any) -> Algorithm:
    return make(name, **(arguments | {"scale": SCALE} if name in SCALED else arguments))


def task_for(name: str, **changes: Any) -> Task:
    """A task whose model fits a method."""
    return Task(**{"base": name in SCALED, "heads": HEADS.get(name, 0), "rank": 4 if name == "ravan" else 2} | changes)


def simulate(algorithm: Algorithm, task: Task, rounds: int, local: Local = LOCAL) -> tuple[Simulation, ServerState]:
    simulation = Simulation(algorithm, task, local, failures="raise")
    state = simulation.start()
    for _ in range(rounds):
        state, _ = simulation.round(state)
    return simulation, state


def named(task: Task, v: Tensor) -> dict[str, Tensor]:
    """The tensors of a vector by the oracle's names."""
    found = bind(task.model()).layout.named(v)
    return {NAMES[name]: x for name, x in found.items()}


def oracle(task: Task, local: Local = LOCAL, ranks: tuple[int, ...] = ()) -> Oracle:
    start = {NAMES[name]: p.detach().clone() for name, p in task.model().named_parameters()}
    data = [task.data(i) for i in range(task.population)]
    return Oracle(start, SCALE, data, local.lr, int(local.epochs), ranks=list(ranks))  # type: ignore[arg-type]


@pytest.mark.quick
@pytest.mark.parametrize("name", METHODS)
def test_equals_its_oracle(name: str) -> None:
    task, rounds = task_for(name), 1 if name == "flora" else 3
    simulation, state = simulate(method(name), task, rounds)
    expected = run(name, oracle(task), rounds)
    for key, x in named(task, state.params).items():
        if (name, key) == ("flora", "A"):
            assert not torch.allclose(x, expected.model["A"])
            assert x.abs().max() <= 0.5
            continue
        if name == "fedsa-lora" and key != "A":
            continue
        torch.testing.assert_close(x, expected.model[key], rtol=1e-10, atol=1e-12, msg=key)
    if name == "fedsa-lora":
        for client, own in expected.kept.items():
            kept = simulation.worker.store.load(client, rounds - 1)
            personal = named(task, simulation.job.algorithm.personal(state.params, kept, bind(task.model()).layout))
            for key, x in own.items():
                torch.testing.assert_close(personal[key], x, rtol=1e-10, atol=1e-12)


def test_fedex_is_flora_in_the_weight_after_one_round() -> None:
    task = Task(base=True)
    weights = []
    for name in OPEN:
        got = named(task, simulate(method(name), task, 1)[1].params)
        weights.append(got["W"] + SCALE * got["B"] @ got["A"])
    torch.testing.assert_close(*weights, rtol=1e-12, atol=1e-13)


def test_fedex_is_the_mean_of_the_clients_weights() -> None:
    task = Task(base=True)
    _, before = simulate(method("fedex-lora"), task, 1)
    start = oracle(task)
    start.model |= {key: x.clone() for key, x in named(task, before.params).items()}
    models = start.all_trained("A", "B")
    mean = start.model["W"] + SCALE * start.mean_product(models)
    fedex_lora(start)
    torch.testing.assert_close(start.effective(), mean, rtol=1e-12, atol=1e-13)
    got = named(task, simulate(method("fedex-lora"), task, 2)[1].params)
    torch.testing.assert_close(got["W"] + SCALE * got["B"] @ got["A"], mean, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["fedex-lora", "lora-fair"])
def test_one_client_is_fedavg(name: str) -> None:
    """FedEx(m=1) = FedIT: the base stays; there is nothing to correct."""
    task = Task(base=name in OPEN, sizes=(5,))
    got = named(task, simulate(method(name), task, 3)[1].params)
    plain = named(Task(sizes=(5,)), simulate(make("fedavg"), Task(sizes=(5,)), 3)[1].params)
    for key, x in plain.items():
        torch.testing.assert_close(got[key], x, rtol=1e-10, atol=1e-13)
    if "W" in got:
        torch.testing.assert_close(got["W"], oracle(task).model["W"], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("limit", "host"),
    [
        (make("fedrot-lora", lam=0.0), "fedavg"),
        (make("lora-fair", lam=float("inf")), "fedavg"),
        (make("fedsvd", period=0), "ffa-lora"),
    ],
    ids=["fedrot", "fair", "fedsvd"],
)
def test_limits(limit: Algorithm, host: str) -> None:
    got, expected = (simulate(algorithm, Task(), 3)[1].params for algorithm in (limit, make(host)))
    if host == "fedavg":
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-13)
    else:
        assert torch.equal(got, expected)


@pytest.mark.parametrize("name", ["ffa-lora", "rolora"])
def test_the_frozen_factor_keeps_its_bits(name: str) -> None:
    """Also under weight decay, momentum on the server for FFA-LoRA, and an optimizer with decoupled decay."""
    text = f"{name} + local-adamw" + (" + server-optimizer:heavy-ball(0.5)" if name == "ffa-lora" else "")
    local = replace(LOCAL, weight_decay=0.1)
    simulation = Simulation(parse(text), Task(), local, failures="raise")
    state = simulation.start()
    for round in range(4):
        before = named(Task(), state.params)
        state, _ = simulation.round(state)
        after = named(Task(), state.params)
        frozen = "B" if name == "rolora" and round % 2 else "A"
        assert torch.equal(before[frozen], after[frozen])
        assert not torch.equal(before["A" if frozen == "B" else "B"], after["A" if frozen == "B" else "B"])
        assert not torch.equal(before["head"], after["head"])


def test_fedsvd_leaves_the_model_as_it_was() -> None:
    """A has orthonormal rows, and the product is that of FFA-LoRA after the first round."""
    got = named(Task(), simulate(make("fedsvd"), Task(), 1)[1].params)
    plain = named(Task(), simulate(make("ffa-lora"), Task(), 1)[1].params)
    torch.testing.assert_close(got["A"] @ got["A"].T, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(got["B"] @ got["A"], plain["B"] @ plain["A"], rtol=1e-12, atol=1e-14)


def test_fedrot_keeps_products_and_undoes_rotations() -> None:
    from undrift.blocks.release.rotated import rotation

    draw = Generator().manual_seed(0)
    a, b = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((3, 7), (5, 3)))
    q = torch.linalg.qr(torch.randn(3, 3, generator=draw, dtype=torch.float64))[0]
    q = q if torch.linalg.det(q) > 0 else q * torch.tensor([1.0, 1.0, -1.0])
    turned = rotation((q.T @ a) @ a.T, 1.0)
    torch.testing.assert_close(turned.T @ (q.T @ a), a)
    torch.testing.assert_close((b @ q) @ turned, b)
    for lam in (0.0, 0.4, 1.0):
        half = rotation((q.T @ a) @ a.T, lam)
        torch.testing.assert_close(half @ half.T, torch.eye(3, dtype=torch.float64))
    assert torch.equal(rotation(torch.zeros(3, 3), 0.5), torch.eye(3))


@pytest.mark.parametrize("host", ["ffa-lora", "fedsa-lora", "fedex-lora"])
@pytest.mark.parametrize("drift", ["scaffold", "feddyn", "proximal(0.1)", "server-momentum(0.3)"])
def test_corrections_fit_where_coordinates_stay(host: str, drift: str) -> None:
    text = f"{host}(scale={SCALE}) + {drift}" if host in OPEN else f"{host} + {drift}"
    task = Task(base=host in OPEN)
    _, state = simulate(parse(text), task, 4)
    assert state.params.isfinite().all()
    if host == "ffa-lora":
        assert torch.equal(named(task, state.params)["A"], oracle(task).model["A"])


def test_scaffold_on_ffa_is_scaffold_on_a_linear_layer() -> None:
    """FFA-LoRA is FedAvg of a layer with weight B on the inputs A x, so every correction and filter is itself."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole: Any = Task().model()
            self.fixed = whole.layer.requires_grad_(False)
            self.B, self.head = nn.Parameter(self.fixed.lora_B.clone()), whole.head

        def forward(self, x: Tensor) -> Tensor:
            inner = SCALE * (x @ self.fixed.lora_A.T @ self.B.T)
            out: Tensor = self.head(torch.relu(self.fixed.base_layer(x) + inner))
            return out

    class Small(Task):
        def model(self) -> nn.Module:
            return Inner()

    for drift in ("scaffold", "feddyn", "specgrad", "fedsam"):
        got = named(Task(), simulate(parse(f"ffa-lora + {drift}"), Task(), 4)[1].params)
        plain = bind(Inner()).layout.named(simulate(parse(drift), Small(), 4)[1].params)
        torch.testing.assert_close(got["B"], plain["B"], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(got["head"], plain["head.weight"], rtol=1e-12, atol=1e-13)


REFUSED = {
    "rolora + scaffold": "freezes a factor in every other round, and drift=Scaffold remembers a direction",
    "rolora + server-optimizer:heavy-ball(0.5)": "and server_optimizer=HeavyBall remembers",
    "rolora + buffered(2)": "uploads start from several models",
    "fedsvd + feddyn": "changes the coordinates of the factors, and drift=FedDyn",
    "fedrot-lora + scaffold": "turns the factors after training, and drift=Scaffold reads",
    "fedrot-lora + fedcm": "turns the factors after training, and momentum=ServerMomentum reads",
    "fedrot-lora + personalization:one-factor": "computes with both factors of every client",
    "flora + fedavgm": "begins with new factors in every round, and server_optimizer=HeavyBall",
    "flora + scaffold": "begins with new factors in every round, and drift=Scaffold",
    "fedex-lora + aggregation:coordinate-median": "needs a weighted mean",
    "cross-products + fedavg": "writes where no client may train",
    "fedex-lora + buffered(2)": "uploads start from several models",
    "norm-clip(1.0) + personalization:folded": "needs release=CrossProducts",
    "flexlora + fedadam": "gives the factors other coordinates, and server_optimizer=Adam",
    "flexlora + scaffold": "gives the factors other coordinates, and drift=Scaffold",
    "lora-fair + personalization:one-factor": "computes with both factors of every client",
    "ffa-lora + objective:common-representation": "no model fits all blocks",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(TypeError, match=REFUSED[text].replace("(", r"\(")):
        parse(text)


def test_a_private_factor_is_found_out() -> None:
    for name in ("flexlora", "lora-fair", "fedrot-lora"):
        with pytest.raises(Exception, match="a factor of an adapter is private"):
            simulate(parse(f"{name} + private(('*lora_B',))"), Task(), 1)


def test_a_wrong_scale_is_found_out() -> None:
    with pytest.raises(Exception, match=r"layer has alpha / r = 1.5: give the method scale=1.5"):
        simulate(make("fedex-lora"), Task(base=True), 1)
    with pytest.raises(Exception, match=r"the weight under layer does not travel; call undrift\.models\.open_base"):
        simulate(method("fedex-lora"), Task(), 1)


@pytest.mark.parametrize("name", ["rolora", "fedex-lora", "flora", "fedsvd", "fedsa-lora", "fed-sb", "ravan"])
def test_resumed_in_the_middle(name: str) -> None:
    """The parity of RoLoRA and the versions of the base follow from the state alone."""
    from undrift.core.server.wire import fingerprint, from_bytes, to_bytes

    task = task_for(name)
    _, whole = simulate(method(name), task, 5)
    simulation, state = simulate(method(name), task, 3)
    state = from_bytes(ServerState, simulation.job.algorithm, to_bytes(state), len(state.params))
    for _ in range(2):
        state, _ = simulation.round(state)
    assert fingerprint(state) == fingerprint(whole)


def test_absent_clients_have_the_newest_base() -> None:
    """With a cohort of one of three, every client starts from the version that all others made."""
    task = Task(base=True)
    simulation = Simulation(method("fedex-lora"), task, LOCAL, cohort=2, seed=4, failures="raise")
    state = simulation.start()
    expected = oracle(task)
    for _ in range(4):
        before = state
        state, record = simulation.round(state)
        chosen = [visit.client for visit in record.visits]
        start = oracle(task)
        start.model |= {key: x.clone() for key, x in named(task, before.params).items()}
        start.data = [task.data(client) for client in chosen]
        start.__post_init__()
        fedex_lora(start)
        expected = start
        for key, x in named(task, state.params).items():
            torch.testing.assert_close(x, expected.model[key], rtol=1e-10, atol=1e-12)


def test_flexlora_leaves_out_the_tail() -> None:
    task = Task()
    _, before = simulate(make("flexlora"), task, 1)
    start = oracle(task)
    start.model |= {key: x.clone() for key, x in named(task, before.params).items()}
    product = start.mean_product(start.all_trained("A", "B"))
    got = named(task, simulate(make("flexlora"), task, 2)[1].params)
    tail = torch.linalg.svdvals(product)[2:].square().sum().sqrt()
    torch.testing.assert_close(torch.linalg.matrix_norm(product - got["B"] @ got["A"]), tail, rtol=1e-9, atol=1e-12)


def test_pairs_and_masks() -> None:
    layout = bind(Task(base=True).model()).layout
    (pair,) = find_pairs(layout)
    assert (layout.names[pair.a], layout.names[pair.b]) == ("layer.lora_A", "layer.lora_B")
    assert pair.zero == pair.b and pair.other == pair.a and not pair.transposed
    assert pair.base is not None and layout.names[pair.base] == "layer.base_layer.weight"
    assert [int(mask_of(layout, role).sum()) for role in ("a", "b", "zero", "other", "base")] == [8, 12, 12, 8, 24]


@pytest.mark.quick
def test_product_errors() -> None:
    """A pair of scalars, B = (1, 3) and A = (2, 4): the mean of products is 7, the product of means 6."""
    layout = Layout(("x.lora_A", "x.lora_B"), ((1, 1), (1, 1)))
    (found,) = product_errors(layout, torch.zeros(2), torch.tensor([[2.0, 1.0], [4.0, 3.0]]))
    assert (found.layer, found.error) == ("x", pytest.approx(1.0)) and found.relative == pytest.approx(1 / 7)  # type: ignore[comparison-overlap]
    with pytest.raises(ValueError, match="one weight of 0 or more for each of 2 clients"):
        product_errors(layout, torch.zeros(2), torch.ones(2, 2), [1.0])


@pytest.mark.parametrize(("name", "exact"), [("fedavg", False), ("ffa-lora", True), ("rolora", True), ("fedsvd", True)])
def test_product_errors_of_methods(name: str, exact: bool) -> None:
    """The covariance identity, its rank, and zero where all clients have one factor in common."""
    task = Task(sizes=(5, 9))
    simulation, state = simulate(make(name), task, 2)
    moves = client_vectors(simulation, state, range(2), "update")
    layout = bind(task.model()).layout
    (found,) = product_errors(layout, state.params, moves, task.sizes)
    assert (found.relative < 1e-12) == exact
    (pair,) = find_pairs(layout)
    each = [pair.factors(layout.split(state.params + move)) for move in moves]
    p = [5 / 14, 9 / 14]
    dense = sum(share * b @ a for share, (b, a) in zip(p, each, strict=True))
    means = [sum(share * x[k] for share, x in zip(p, each, strict=True)) for k in (0, 1)]
    error = dense - means[0] @ means[1]  # type: ignore[operator]
    assert found.error == pytest.approx(float(torch.linalg.matrix_norm(error)), abs=1e-12)
    assert torch.linalg.matrix_rank(error, atol=1e-12) <= (len(p) - 1) * 2


def test_the_mean_of_cores_has_the_mean_of_the_products() -> None:
    """Fed-SB: B and A are common, so that nothing is lost."""
    task = task_for("fed-sb")
    simulation, state = simulate(method("fed-sb"), task, 2)
    each = [named(task, state.params + move) for move in client_vectors(simulation, state, range(3), "update")]
    dense = sum(n / sum(SIZES) * x["B"] @ x["C"][0] @ x["A"] for n, x in zip(SIZES, each, strict=True))
    got = named(task, simulation.round(state)[0].params)
    torch.testing.assert_close(got["B"] @ got["C"][0] @ got["A"], dense, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_clients_changes_no_bit(name: str) -> None:
    """Sums are exact, also those that singular vectors are taken of."""
    task, states = task_for(name), []
    for order in ([0, 1, 2], [2, 0, 1]):
        simulation = Simulation(method(name), task, LOCAL, failures="raise")
        state = simulation.start()
        for _ in range(2):
            state, _ = simulation.round(state, order)
        states.append(state.params)
    assert torch.equal(*states)


def test_the_first_step_from_zero_has_no_product_error() -> None:
    """At B = 0 the gradient of A is zero, so that all A_i agree after one step."""
    simulation = Simulation(make("fedavg"), Task(), replace(LOCAL, epochs=1), failures="raise")
    state = simulation.start()
    moves = client_vectors(simulation, state, range(3), "update")
    (found,) = product_errors(bind(Task().model()).layout, state.params, moves, SIZES)
    assert found.relative < 1e-12


def test_folding_reports_the_same_error() -> None:
    """FedEx-LoRA knows it from its sums; the instrument sees the clients."""
    task = Task(base=True)
    simulation, state = simulate(method("fedex-lora"), task, 2)
    layout = bind(task.model()).layout
    moves = client_vectors(simulation, state, range(3), "update").masked_fill(mask_of(layout, "base"), 0.0)
    (found,) = product_errors(layout, state.params, moves, SIZES)
    _, record = simulation.round(state)
    assert record.reports["personalization.product_error"] == pytest.approx(found.relative)


SENT = {  # what a client receives and uploads of q = r (d_in + d_out) in the first rounds; the last two go on
    "fedavg": (("q", "q"), ("q", "q")),
    "ffa-lora": (("b", "b"), ("b", "b")),
    "rolora": (("b", "b", "a", "b"), ("b", "a", "b", "a")),
    "fedsvd": (("q", "q"), ("b", "b")),
    "fedsa-lora(head=False)": (("a", "a"), ("a", "a")),
    "fedrot-lora": (("q", "q"), ("q", "q")),
    "lora-fair": (("q", "q"), ("q", "q")),
    "flexlora": (("q", "q"), ("q", "q")),
    "ffa-lora + scaffold": (("b", "b"), ("b", "b")),
}


@pytest.mark.parametrize("text", SENT)
def test_numbers_sent_are_those_of_the_formulas(text: str) -> None:
    """r = 2, d_in = 4 and d_out = 6; a head of 21 travels beside the adapter."""
    algorithm, layout = parse(text), bind(Task().model()).layout
    lengths = {"a": 8, "b": 12, "q": 20}
    for up, factors in zip((False, True), SENT[text], strict=True):
        for round, factor in enumerate(factors):
            assert travelling(algorithm.personalization, layout, round, up) == lengths[factor] + 21, (up, round)
    found, counts = cost(algorithm, layout), vectors_sent(algorithm)
    for got, vectors, factors in zip((found.down, found.up), counts, SENT[text], strict=True):
        assert got == pytest.approx(vectors * sum(lengths[x] + 21 for x in factors[-2:]) / 2 / layout.size)
    square = {"a": 0.5, "b": 0.5, "q": 1.0}
    short = cost(algorithm)
    assert (short.down, short.up) == tuple(
        count * sum(square[x] for x in factors[-2:]) / 2 for count, factors in zip(counts, SENT[text], strict=True)
    )
    size = method_size(algorithm, layout=layout)
    assert (size.down * size.received, size.sent) == pytest.approx((found.down, found.up))


# Ranks of clients

RANKS = replace(LOCAL, rank=(4, 1, 2))
MIXED = Task(rank=4)


def assert_model(task: Task, state: ServerState, expected: Oracle) -> None:
    for key, x in named(task, state.params).items():
        torch.testing.assert_close(x, expected.model[key], rtol=1e-10, atol=1e-12, msg=key)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_hetlora_of_several_ranks_equals_its_oracle(lam: float) -> None:
    algorithm, expected = make("hetlora", lam=lam, gamma=0.7), oracle(MIXED, RANKS, (4, 1, 2))
    simulation, state = simulate(algorithm, MIXED, 5, RANKS)
    for _ in range(5):
        hetlora(expected, lam, 0.7)
    assert_model(MIXED, state, expected)
    if not lam:
        assert algorithm.stateless and expected.ranks == [4, 1, 2]
        return
    states: list[Any] = [simulation.worker.store.load(client, 4).parts["personalization"] for client in range(3)]
    kept = [state.ranks.tolist() for state in states]
    assert kept == [[rank] for rank in expected.ranks]
    assert expected.ranks < [4, 1, 2] and all(map(int.__le__, expected.ranks, (4, 1, 2)))


def test_hetlora_of_equal_clients_is_fedavg_with_equal_weights() -> None:
    """One rank, products of one norm, no term."""
    task = Task(sizes=(5, 5), same=True)
    got, plain = (simulate(x, task, 3)[1].params for x in (make("hetlora", lam=0.0), parse("fedavg + uniform")))
    torch.testing.assert_close(got, plain, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("fixed", [True, False])
def test_flexlora_of_several_ranks_equals_its_oracle(fixed: bool) -> None:
    """With a fixed alpha every client's product has a scale of its own, and leaving it out is off by up to 4."""
    algorithm = parse(f"flexlora + leading-ranks(fixed_alpha={fixed})")
    _, state = simulate(algorithm, MIXED, 3, RANKS)
    expected, other = oracle(MIXED, RANKS, (4, 1, 2)), oracle(MIXED, RANKS, (4, 1, 2))
    for _ in range(3):
        flexlora_of_ranks(expected, fixed)
        flexlora_of_ranks(other, not fixed)
    assert_model(MIXED, state, expected)
    assert not torch.allclose(named(MIXED, state.params)["B"], other.model["B"], rtol=1e-3)


def test_ranks_up_to_the_sum_of_the_clients_are_exact() -> None:
    """With ranks 1, 2 and 1 in a model of rank 4 nothing is left out."""
    local, expected = replace(LOCAL, rank=(1, 2, 1)), oracle(MIXED, LOCAL, (1, 2, 1))
    _, before = simulate(parse("flexlora + leading-ranks"), MIXED, 1, local)
    flexlora_of_ranks(expected, fixed_alpha=False)
    models = [expected.descend(cut(expected, i), i, ("A", "B", "head", "bias")) for i in range(3)]
    _, after = simulate(parse("flexlora + leading-ranks"), MIXED, 2, local)
    got = named(MIXED, after.params)
    torch.testing.assert_close(got["B"] @ got["A"], expected.mean_product(models), rtol=1e-10, atol=1e-12)
    assert not torch.equal(before.params, after.params)


@pytest.mark.parametrize("fixed", [True, False])
def test_flora_of_several_ranks_equals_its_oracle(fixed: bool) -> None:
    """Ranks 4, 1 and 2 stack to 7; the second round starts from new factors, and the oracle from the same ones."""
    task = Task(base=True, rank=4)
    simulation = Simulation(method("flora", fixed_alpha=fixed), task, RANKS, failures="raise")
    state, expected = simulation.start(), oracle(task, RANKS, (4, 1, 2))
    for _ in range(3):
        state, _ = simulation.round(state)
        flora_of_ranks(expected, fixed)
        got = named(task, state.params)
        for key in ("W", "B", "head", "bias"):
            torch.testing.assert_close(got[key], expected.model[key], rtol=1e-10, atol=1e-12, msg=key)
        expected.model["A"] = got["A"].clone()


def test_flora_of_the_models_rank_is_flora() -> None:
    task = Task(base=True, rank=4)
    plain = simulate(method("flora"), task, 2)[1].params
    for local in (replace(LOCAL, rank=4), replace(LOCAL, rank=9)):
        for fixed in (True, False):
            assert torch.equal(simulate(method("flora", fixed_alpha=fixed), task, 2, local)[1].params, plain)


def test_ranks_of_clients_cut_the_model_and_nothing_else() -> None:
    """A client of rank 1 moves one row and one column; without ranks, or with the model's, nothing is cut."""
    algorithm = parse("flexlora + leading-ranks")
    simulation, state = simulate(algorithm, MIXED, 1, RANKS)
    moves = client_vectors(simulation, state, range(3), "update")
    layout = bind(MIXED.model()).layout
    (pair,) = find_pairs(layout)
    for client, rank in enumerate((4, 1, 2)):
        b, a = pair.factors(layout.split(state.params + moves[client]))
        assert torch.linalg.matrix_rank(b @ a) <= rank and not b[:, rank:].any() and not a[rank:].any()
    plain = simulate(make("flexlora"), MIXED, 2)[1].params
    for local in (LOCAL, replace(LOCAL, rank=4), replace(LOCAL, rank=9)):
        assert torch.equal(simulate(algorithm, MIXED, 2, local)[1].params, plain)


def test_what_ranks_cannot_do_is_refused() -> None:
    with pytest.raises(TypeError, match="cuts the factors to each client's rank, and drift=Scaffold remembers"):
        parse("hetlora + scaffold")
    with pytest.raises(TypeError, match="with fixed_alpha a rank changes the rate of a factor"):
        parse("flexlora + leading-ranks(fixed_alpha=True) + local-adam")
    with pytest.raises(TypeError, match="with fixed_alpha a rank changes the rate of a factor"):
        parse("flora(fixed_alpha=True) + local-adam")
    with pytest.raises(Exception, match=r"Local.rank must give every client a whole number of 1 or more, got 0"):
        simulate(make("hetlora"), MIXED, 1, replace(LOCAL, rank=(0, 1, 2)))
    with pytest.raises(ValueError, match="must be a whole number"):
        Local(rank=(1.5, 2))


@pytest.mark.parametrize("name", sorted({*METHODS, "fedavg + scaffold"} - {"hetlora", "flora"}))
def test_a_rank_that_no_block_reads_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"local\.rank gives every client a rank of its own, which no block of"):
        Simulation(parse(name), task_for(name), replace(LOCAL, rank=(4, 1, 2)))


@pytest.mark.quick
def test_public_attributes_are_read_only() -> None:
    local = Local(rank="uniform(2, 8, once=True)", speed=(1, 2), deadline=3.0)
    found = local.attributes(1, 5, 0)
    assert found == local.attributes(1, 9, 0) and found["speed"] == 2 and 2 <= found["rank"] <= 8
    with pytest.raises(TypeError):
        found["rank"] = 3  # type: ignore[index]
    assert Local().attributes(0, 0, 0) == {}


# Cores between the factors


def test_fed_sb_of_full_rank_is_full_fine_tuning() -> None:
    """B and A are orthogonal and s = 1: a step of the core is one of W."""
    task = task_for("fed-sb", rank=4, width=4, scale=1.0)
    got = named(task, simulate(make("fed-sb"), task, 4)[1].params)

    class Whole(Task):
        def model(self) -> nn.Module:
            model: Any = task.model()
            model.layer = nn.utils.skip_init(nn.Linear, 4, 4).double()
            with torch.no_grad():
                plain: Any = task.model()
                model.layer.load_state_dict(plain.layer.base_layer.state_dict())
            model.layer.bias.requires_grad_(False)
            return model  # type: ignore[no-any-return]

    plain = bind(Whole().model()).layout.named(simulate(make("fedavg"), Whole(), 4)[1].params)
    torch.testing.assert_close(
        got["W"] + got["B"] @ got["C"][0] @ got["A"], plain["layer.weight"], rtol=1e-9, atol=1e-11
    )
    torch.testing.assert_close(got["head"], plain["head.weight"], rtol=1e-9, atol=1e-11)


def test_the_first_round_of_fed_sb_leaves_out_the_tail() -> None:
    task = task_for("fed-sb")
    start = oracle(task)
    moved = start.mean(start.all_trained("W"), "W") - start.model["W"]
    got = named(task, simulate(method("fed-sb"), task, 1)[1].params)
    tail = torch.linalg.svdvals(moved)[2:].square().sum().sqrt()
    error = torch.linalg.matrix_norm(moved - SCALE * got["B"] @ got["C"][0] @ got["A"])
    torch.testing.assert_close(error, tail, rtol=1e-9, atol=1e-12)
    assert torch.equal(got["W"], start.model["W"])


def test_a_rank_above_the_layers_width_is_padded() -> None:
    task = task_for("fed-sb", rank=7)
    start = oracle(task)
    moved = start.mean(start.all_trained("W"), "W") - start.model["W"]
    _, state = simulate(method("fed-sb"), task, 1)
    got = named(task, state.params)
    torch.testing.assert_close(SCALE * got["B"] @ got["C"][0] @ got["A"], moved, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(
    "more", ["", " + server-momentum(0.3)", " + proximal(0.1)", " + server-optimizer:heavy-ball(0.5)"]
)
def test_factors_under_cores_keep_their_bits(name: str, more: str) -> None:
    """Also under weight decay and what moves the whole vector; FedCM reads steps, which Ravan's uploads are not."""
    text = f"{name}(scale={SCALE})" if name == "fed-sb" else name
    if name == "ravan" and "momentum" in more:
        with pytest.raises(TypeError, match="multiplies the cores by their scales after training, and momentum="):
            parse(text + more)
        return
    task, local = task_for(name), replace(LOCAL, weight_decay=0.1)
    _, first = simulate(parse(text + more), task, 1, local)
    _, state = simulate(parse(text + more), task, 4, local)
    before, after = named(task, first.params), named(task, state.params)
    assert all(
        torch.equal(before[key], after[key]) for key in ("A", "B", "scales") + (("W",) if name == "fed-sb" else ())
    )
    assert not torch.equal(before["C"], after["C"]) and (after["scales"] == 1).all()


@pytest.mark.parametrize("drift", ["scaffold", "feddyn"])
def test_corrections_fit_a_core(drift: str) -> None:
    """After round 0 SCAFFOLD on Fed-SB is SCAFFOLD on the core, whose variates begin at zero in round 1."""
    task = task_for("fed-sb")
    _, state = simulate(parse(f"fed-sb(scale={SCALE}) + {drift}"), task, 5)
    assert state.params.isfinite().all()


def test_heads_of_a_random_start_are_orthonormal() -> None:
    got = named(task_for("ravan"), bind(task_for("ravan").model()).w)
    eye = torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(got["A"] @ got["A"].T, eye, rtol=0, atol=1e-6)  # drawn in single precision
    torch.testing.assert_close(got["B"].T @ got["B"], eye, rtol=0, atol=1e-6)
    assert not got["C"].any() and (got["scales"] == 1).all()


@pytest.mark.parametrize("name", HEADS)
def test_folded_cores_compute_the_same(name: str) -> None:
    task = task_for(name)
    simulation, state = simulate(method(name), task, 2)
    model = simulation.module(state)
    x = torch.randn(7, 4, generator=Generator().manual_seed(0), dtype=torch.float64)
    expected = model(x)
    names = {key for key, _ in fold_cores(model).named_parameters()}
    assert {"layer.lora_A", "layer.lora_B"} <= names and not any("parametrizations" in key for key in names)
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-13)


CORE_NUMBERS = {  # r = 2 in one head, or 4 in two; d_in = 4, d_out = 6; a head of 21 beside it
    "fed-sb": ((4, 4 + 20, 4, 4), (24, 4, 4, 4)),
    "ravan": ((8, 8, 8, 8), (8, 8, 8, 8)),
}


@pytest.mark.parametrize("name", HEADS)
def test_numbers_of_cores_are_those_of_the_formulas(name: str) -> None:
    """r^2 of a layer, h r_h^2 with heads; Fed-SB uploads d_in d_out once and receives the factors once."""
    algorithm, layout = method(name), bind(task_for(name).model()).layout
    for up, counts in zip((False, True), CORE_NUMBERS[name], strict=True):
        for round, count in enumerate(counts):
            assert travelling(algorithm.personalization, layout, round, up) == count + 21, (up, round)
    found = cost(algorithm, layout)
    assert (found.down, found.up) == pytest.approx(((CORE_NUMBERS[name][0][2] + 21) / layout.size,) * 2)


def test_what_cores_cannot_do_is_refused() -> None:
    for text, why in {
        "ravan + scaffold": "multiplies the cores by their scales after training, and drift=Scaffold reads",
        "fedavg + scaled-cores": r"needs personalization=Cores\(\), found",
        "fedavg + cores": r"needs release=ScaledCores\(\), found",
        "fed-sb + buffered(2)": "uploads start from several models",
        "ravan + flexlora": "computes with both factors of every client",
    }.items():
        with pytest.raises((TypeError, ValueError), match=why):
            parse(text)
    for name, task, why in (
        ("fed-sb", Task(base=True), "layer has no core between its factors; call undrift.models.add_cores"),
        ("fed-sb", Task(heads=1), "the weight under layer does not travel"),
        ("ffa-lora", Task(heads=1), "layer has a core between its factors: use fed-sb, ravan or fedavg"),
    ):
        with pytest.raises(Exception, match=why):
            simulate(method(name), task, 1)
    with pytest.raises(Exception, match=r"layer has alpha / r = 1.5: give the method scale=1.5"):
        simulate(make("fed-sb"), task_for("fed-sb"), 1)
    with pytest.raises(ValueError, match="has rank 2, which 3 heads do not divide"):
        add_cores(Net(False), 3)
    with pytest.raises(ValueError, match="a linear layer must have an adapter"):
        add_cores(nn.Linear(2, 2))
