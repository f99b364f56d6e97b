"""Adapters on a small language model: does an exact mean of the products help, and do corrections and filters?

A transformer of two layers learns four topics of a made-up language, all together, for a while; then 20 clients train
it further on four other topics, whose shares differ by Dirichlet 0.1. A topic determines which four words may follow a
word. Eight clients in each of 12 rounds of five steps of plain SGD; late accuracy is that of the next word over all
topics, on text that no client has. Every row's rate is tuned on other text and other seeds. Each trial and each run is
a line of results/fine-tuning.jsonl; those that are there are skipped. docs/evidence/findings/fine-tuning.md has the
tables.

    python benchmarks/studies/fine_tuning.py
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from beside import gap_text
from shared import add_line, measured, read_arguments, read_lines, round_off, svg
from undrift import Local, Simulation, TensorTask, parse
from undrift.core import bind
from undrift.core.method.algorithm import Algorithm, vectors_sent
from undrift.core.method.part_vector import mean_share
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.model.pairs import find_pairs
from undrift.data.partitions.draw import partition
from undrift.engine.round.backend import InProcess
from undrift.engine.worker.partial_sum import TrainedClient
from undrift.engine.worker.worker import Worker
from undrift.models import AdaptedLinear, open_base
from undrift.models.start import hash_weights
from undrift.studies.statistics import LATE, Difference, corrected_level, late_mean, paired_difference
from undrift.studies.tune import search

LINES = Path(__file__).parent / "results" / "fine-tuning.jsonl"
WORDS, TOPICS, LENGTH = 32, 4, 16
CHANCES = (0.55, 0.25, 0.15, 0.05)
WIDTH, HEADS, LAYERS = 64, 4, 2
RANK, SCALE = 4, 2.0
PRETRAINING = 500
CLIENTS, COHORT, ROUNDS, SIZE, TESTED = 20, 8, 12, 80, 400
LOCAL = Local(steps=5, batch_size=8)
SKEW = "dirichlet-client:0.1"
SEEDS, TUNING = tuple(range(5)), (100, 101)
EVALUATED = tuple(x for x in range(1, ROUNDS + 1) if x % 4 == 0 or x > ROUNDS - LATE)
FULL, ADAPTERS, OPEN = "full", "adapters", "open"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Args:
        method: the composition.
        model: all weights train, only adapters do, or adapters do and the weights under them travel.
        first: the smallest of its first rates: see `first_rates`.
        personal: whether it is judged by the clients' own models, on their own topics.
    """

    method: str
    model: str = ADAPTERS
    first: float = 0.707107
    personal: bool = False


BASE = "FedIT"
ROWS = {
    BASE: Row("fedavg"),
    "full": Row("fedavg", FULL, 0.4),
    "FFA-LoRA": Row("ffa-lora", first=2.0),
    "FedEx-LoRA": Row(f"fedex-lora({SCALE})", OPEN),
    "FLoRA": Row(f"flora({SCALE})", OPEN, 1.0),
    "FlexLoRA": Row("flexlora"),
    "LoRA-FAIR": Row("lora-fair"),
    "FedRot-LoRA": Row("fedrot-lora"),
    "RoLoRA": Row("rolora", first=1.0),
    "full + SCAFFOLD": Row("scaffold", FULL, 0.4),
    "FedIT + SCAFFOLD": Row("scaffold"),
    "FFA-LoRA + SCAFFOLD": Row("ffa-lora + scaffold", first=2.0),
    "full + filter": Row("fedavg + high-pass(0.05)", FULL, 0.4),
    "FedIT + filter": Row("fedavg + high-pass(0.05)"),
    "FFA-LoRA + filter": Row("ffa-lora + high-pass(0.05)", first=2.0),
    "FedSA-LoRA": Row("fedsa-lora", personal=True),
    "FedIT, own last model": Row("fedavg + latest", personal=True),
}
"""The row -> what it is. Clients have equally many sequences, so that weights by size are equal weights."""

PAIRS = {
    "full + SCAFFOLD": "full",
    "FFA-LoRA + SCAFFOLD": "FFA-LoRA",
    "full + filter": "full",
    "FFA-LoRA + filter": "FFA-LoRA",
}
"""Rows whose difference from another row than FedIT is stated, too."""


class Attention(nn.Module):
    """Causal attention of linear layers, which can have adapters."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the positions of (sequences, length, width)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """Attention, then a perceptron, each of the normalised inputs and added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.before, self.between = Attention(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """The next representation of every position."""
        x = x + self.attention(self.before(x))
        out: Tensor = x + self.down(gelu(self.up(self.between(x))))
        return out


class Transformer(nn.Module):
    """The scores of the next word at every position, (sequences, words, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Read tokens (sequences, length)."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(self.norm(x)).transpose(1, 2)
        return out


@dataclass(frozen=True)
class Text:
    """Sequences with the word that follows each word, and the topic of each sequence."""

    inputs: Tensor
    targets: Tensor
    topics: Tensor


@cache
def followers() -> Tensor:
    """The words that may follow a word of a topic, (2 * topics, words, 4), those of pre-training first.

    A later topic is an earlier one with other followers of half of the words.
    """
    draw = Generator().manual_seed(0)
    table = torch.rand(2 * TOPICS, WORDS, WORDS, generator=draw).argsort(dim=2)[:, :, : len(CHANCES)]
    table[TOPICS:, ::2] = table[:TOPICS, ::2]
    return table


def write(topics: Tensor, seed: int) -> Text:
    """A sequence of each of these topics.

    Args:
        topics: the topic of every sequence.
        seed: of the draw.
    """
    draw, table = Generator().manual_seed(seed), followers()
    words = [torch.randint(WORDS, (len(topics),), generator=draw)]
    for _ in range(LENGTH):
        chosen = torch.multinomial(torch.tensor(CHANCES), len(topics), replacement=True, generator=draw)
        words.append(table[topics, words[-1], chosen])
    tokens = torch.stack(words, dim=1)
    return Text(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), topics)


def evenly(count: int) -> Tensor:
    """The topics that clients have, as often as each other."""
    return TOPICS + torch.arange(count) % TOPICS


@cache
def pretrained() -> dict[str, Tensor]:
    """The weights after pre-training on the first topics."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        net = Transformer()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=PRETRAINING)
    for step in range(PRETRAINING):
        text = write(torch.arange(64) % TOPICS, 10_000 + step)
        optimizer.zero_grad()
        cross_entropy(net(text.inputs), text.targets).backward()
        optimizer.step()
        plan.step()
    return net.state_dict()


def build(model: str) -> nn.Module:
    """The pre-trained transformer.

    Args:
        model: see `Row`.
    """
    net = Transformer()
    net.load_state_dict(pretrained())
    if model == FULL:
        return net
    net.requires_grad_(False)
    for part in list(net.layers.modules()):
        for name, layer in list(part.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(part, name, AdaptedLinear(layer, RANK, RANK * SCALE))
    return open_base(net) if model == OPEN else net


def right(net: nn.Module, text: Text) -> tuple[Tensor, float]:
    """The share of next words that a model finds in each topic, and its mean loss.

    Args:
        net: the model.
        text: evenly many sequences of each topic.
    """
    with torch.inference_mode():
        scores = net.eval()(text.inputs)
        hits = (scores.argmax(dim=1) == text.targets).double().mean(dim=1)
        loss = float(cross_entropy(scores, text.targets))
    return torch.stack([hits[text.topics == TOPICS + topic].mean() for topic in range(TOPICS)]), loss


class Noting(Worker):
    """Keeps what clients upload."""

    moves: list[Vector]

    def _train_all(self, *arguments: Any) -> Iterator[TrainedClient]:
        self.moves = []
        for one in super()._train_all(*arguments):
            self.moves.append(one.upload.delta.clone())
            yield one


class Watched(InProcess):
    """Trains in this process; `moves` are the displacements of the last round."""

    @property
    def worker(self) -> Worker:
        """The only worker."""
        if self._worker is None:
            assert self._job is not None
            self._worker = Noting(self._job)
        return self._worker

    @property
    def moves(self) -> list[Vector]:
        """One for each client of the round."""
        assert isinstance(self.worker, Noting)
        return self.worker.moves


def product_error(layout: Layout, before: Vector, after: Vector, moves: Sequence[Vector]) -> float:
    """How far the server's new products are from the mean of the clients', relative to that.

    || mean_i s B_i A_i - (W' - W + s B' A') || / || mean_i s B_i A_i ||, over all layers together

    Args:
        layout: of the model.
        before: the model that clients received.
        after: the server's next one.
        moves: what they uploaded; all count alike.
    """
    old, new = (layout.split(x.double()) for x in (before, after))
    clients = [layout.split(before.double() + move.double()) for move in moves]
    error = whole = 0.0
    for pair in find_pairs(layout):
        mean = torch.stack([b @ a for b, a in map(pair.factors, clients)]).mean(dim=0)
        b, a = pair.factors(new)
        folded = 0.0 if pair.base is None else (new[pair.base] - old[pair.base]) / SCALE
        error += float((mean - b @ a - folded).square().sum())
        whole += float(mean.square().sum())
    return (error / whole) ** 0.5 if whole else 0.0


def bytes_sent(algorithm: Algorithm, layout: Layout) -> dict[str, int]:
    """What a client receives and uploads in a round, in the mean of two.

    Args:
        algorithm: the method.
        layout: of the model.
    """
    vectors = dict(zip(("down", "up"), vectors_sent(algorithm), strict=True))
    return {
        way: round(4 * count * layout.size * mean_share(algorithm.personalization, layout, way == "up"))
        for way, count in vectors.items()
    }


def train(label: str, lr: float, seed: int, text: Text) -> dict[str, Any]:
    """One training: accuracy, loss and accuracy on the clients' own topics where it is evaluated, and product errors.

    Args:
        label: of `ROWS`.
        lr: the rate.
        seed: of the clients' text and of the run.
        text: what models are evaluated on.
    """
    begun, row = time.process_time(), ROWS[label]
    own = write(evenly(CLIENTS * SIZE), 1000 + seed)
    split = partition(SKEW, own.topics.numpy() - TOPICS, clients=CLIENTS, seed=seed)
    shares = torch.from_numpy(split.histogram).double() / SIZE
    task = TensorTask(partial(build, row.model), own.inputs, own.targets, split.clients, seed=seed)
    algorithm, watched = parse(row.method), Watched()
    local = Local(lr=lr, steps=LOCAL.steps, batch_size=LOCAL.batch_size)
    simulation = Simulation(algorithm, task, local, cohort=COHORT, seed=seed, backend=watched)
    layout, state, curve, errors = bind(task.model()).layout, simulation.start(), [], list[float]()
    for number in range(1, ROUNDS + 1):
        before = state.params
        state, record = simulation.round(state)
        if record.rejections:
            break
        if row.model != FULL and row.method != "fedsa-lora":  # there a factor stays with the clients
            errors.append(product_error(layout, before, state.params, watched.moves))
        if number in EVALUATED:
            found, loss = right(simulation.module(state), text)
            if not isfinite(loss):
                break
            each = found.expand(CLIENTS, -1)
            if row.personal and number > ROUNDS - LATE:
                each = torch.stack([right(simulation.personal(state, i), text)[0] for i in range(CLIENTS)])
            curve.append([number, *map(round_off, (float(found.mean()), loss, float((each * shares).sum() / CLIENTS)))])
    about = {"label": label, "lr": lr, "seed": seed, "curve": curve}
    noted = [round_off(x, 6) for x in errors]
    seconds = round_off(time.process_time() - begun, 1)
    return {**about, "product_error": noted, **bytes_sent(algorithm, layout), "seconds": seconds}


ACCURACY, LOSS, OWN = 1, 2, 3
"""Where an evaluation has them."""


def late(line: Mapping[str, Any], kind: int) -> float:
    """The mean of the last evaluations; nan if the training diverged and ended before.

    Args:
        line: of the results.
        kind: `ACCURACY`, `LOSS` or `OWN`.
    """
    return late_mean([x[kind] for x in line["curve"]]) if len(line["curve"]) == len(EVALUATED) else nan


def judge(label: str) -> int:
    """By what a row is tuned and judged.

    Args:
        label: of `ROWS`.
    """
    return OWN if ROWS[label].personal else ACCURACY


def first_rates(label: str) -> list[float]:
    """Three rates, each the root of two times the one before.

    Args:
        label: of `ROWS`.
    """
    return [float(f"{ROWS[label].first * 2 ** (i / 2):.6g}") for i in range(3)]


class Lines:
    """The lines that are there, and the texts that models are evaluated on.

    Args:
        path: the file.
    """

    def __init__(self, path: Path = LINES) -> None:
        self.path = path
        self.known = {(x["kind"], x.get("label"), x.get("lr"), x.get("seed")): x for x in read_lines(path)}
        self.texts = {kind: write(evenly(TESTED), seed) for kind, seed in (("trial", 1), ("run", 2))}

    def add(self, line: dict[str, Any]) -> dict[str, Any]:
        """Write a line."""
        self.known[line["kind"], line.get("label"), line.get("lr"), line.get("seed")] = line
        return add_line(self.path, line)

    def check_base(self) -> None:
        """Note the pre-trained model, or raise if these lines are of another one."""
        found = self.known.get(("base", None, None, None))
        weights = hash_weights(pretrained())
        if found is None:
            accuracy, loss = right(build(FULL), self.texts["run"])
            measured = {"accuracy": round_off(float(accuracy.mean())), "loss": round_off(loss)}
            self.add({"kind": "base", "sha256": weights, **measured})
        elif found["sha256"] != weights:
            raise SystemExit(f"{self.path}: its runs began with other weights; pre-training rounds otherwise here")

    def training(self, kind: str, label: str, lr: float, seed: int) -> dict[str, Any]:
        """A trial or a run, from its line if there is one.

        Args:
            kind: "trial" or "run".
            label: of `ROWS`.
            lr: the rate.
            seed: of the clients' text and of the run.
        """
        known = self.known.get((kind, label, lr, seed))
        return known or self.add({"kind": kind, **train(label, lr, seed, self.texts[kind])})

    def tuned(self, label: str) -> float:
        """The best rate of a row; trials that are missing are made.

        Args:
            label: of `ROWS`.
        """

        def score(point: tuple[float, ...]) -> float:
            return fmean(late(self.training("trial", label, point[0], seed), judge(label)) for seed in TUNING)

        found = search({"lr": first_rates(label)}, score, widenings=12)
        if found.edges != {"lr": "inside"}:
            raise SystemExit(f"{label}: the best rate, {found.best[0]:g}, is at an edge: begin with other rates")
        return found.best[0]


Seeds = dict[int, dict[str, Any]]


def runs(path: Path = LINES) -> dict[str, Seeds]:
    """Row -> seed -> its run.

    Args:
        path: the file of the lines.
    """
    out: dict[str, Seeds] = {}
    for line in read_lines(path):
        if line["kind"] == "run":
            out.setdefault(line["label"], {})[line["seed"]] = line
    return out


def claims() -> int:
    """How many differences the page states: from FedIT, from the row without the part, and of personal models."""
    return len(ROWS) - 1 + len(PAIRS) + 1


def difference(ours: Seeds, theirs: Seeds, kind: int = ACCURACY) -> Difference | None:
    """The paired difference in points; all intervals of the page hold together.

    Args:
        ours: the runs of a row.
        theirs: those of another.
        kind: what is compared.
    """
    own, other = ({seed: 100 * late(line, kind) for seed, line in row.items()} for row in (ours, theirs))
    return paired_difference(own, other, corrected_level(claims()))


def error_text(row: Seeds) -> str:
    """The mean product error of the last rounds in percent.

    Args:
        row: the runs of a row.
    """
    found = [x for line in row.values() for x in line["product_error"][-LATE:]]
    return f"{100 * fmean(found):.1f}" if found else ""


def tables() -> str:
    """The table of global models, of what parts add, and of the clients' own models, in Markdown."""
    made, lines = runs(), read_lines(LINES)
    count, planned = sum(map(len, made.values())), len(ROWS) * len(SEEDS)
    trials = sum(x["kind"] == "trial" for x in lines)
    found = {label: row for label, row in made.items() if len(row) == len(SEEDS)}
    left = ", ".join(label for label in ROWS if label not in found)
    missing = f" Rows without all runs are left out, and counted in the correction: {left}." if left else ""
    parts = [f"{count} of {planned} runs are there, and {trials} trials of their rates.{missing}"]
    base = found.get(BASE, {})
    heads = ["row", "rate", "accuracy", "minus FedIT", "loss", "kB down", "kB up", "product error, %"]
    texts = [_row(label, found.get(label, {}), base) for label, row in ROWS.items() if not row.personal]
    parts.append(measured("Global models:", heads, texts))
    pairs = [[f"{x} minus {y}", gap_text(difference(found.get(x, {}), found.get(y, {})))] for x, y in PAIRS.items()]
    parts.append(measured("What corrections and filters add:", ["rows", "points"], pairs))
    own = [x for x, row in ROWS.items() if row.personal]
    compared = [(x, BASE) for x in own] + [(own[0], own[1])]
    points = [[f"{x} minus {y}", gap_text(difference(found.get(x, {}), found.get(y, {}), OWN))] for x, y in compared]
    levels = [[x, _mean(found.get(x, {}), OWN)] for x in (BASE, *own) if set(own) & found.keys()]
    parts.append(
        measured("Accuracy on the clients' own topics, of the models they would use:", ["row", "accuracy"], levels)
    )
    parts.append(measured("Differences of these:", ["rows", "points"], points))
    return "\n\n".join(filter(None, parts))


def _row(label: str, row: Seeds, base: Seeds) -> list[str]:
    if not row:
        return [label]
    one = next(iter(row.values()))
    gap = "" if label == BASE else gap_text(difference(row, base))
    loss = f"{fmean(late(x, LOSS) for x in row.values()):.3f}"
    traffic = [f"{one[way] / 1000:.1f}" for way in ("down", "up")]
    return [label, f"{one['lr']:.3g}", _mean(row), gap, loss, *traffic, error_text(row)]


def _mean(row: Seeds, kind: int = ACCURACY) -> str:
    return f"{fmean(100 * late(x, kind) for x in row.values()):.1f}" if row else ""


def figure() -> str:
    """The product error over rounds, the mean of all seeds, of the rows that have one, as SVG."""
    with rc_context({"svg.hashsalt": "undrift", "font.size": 9}):
        drawn = Figure(figsize=(7, 3.6), layout="constrained")
        axes = drawn.add_subplot()
        for label, row in runs().items():
            if len(row) < len(SEEDS):
                continue
            errors = [line["product_error"] for line in row.values()]
            means = [100 * fmean(x) for x in zip(*errors, strict=True)]
            if means and max(means) > 0.1 and not ROWS[label].personal:
                axes.plot(range(1, len(means) + 1), means, label=label)
        axes.set_xlabel("round")
        axes.set_ylabel("product error, %")
        axes.set_yscale("log")
        axes.legend(fontsize=8)
        return svg(drawn)


def main() -> None:
    """Tune and run what is missing."""
    rows = {"rows": {"nargs": "*", "help": "tune and run these rows only"}}
    arguments = read_arguments(__doc__, tables, rows)
    lines = Lines()
    lines.check_base()
    for label in arguments.rows or ROWS:
        lr = lines.tuned(label)
        for seed in SEEDS:
            lines.training("run", label, lr, seed)


if __name__ == "__main__":
    main()
