"""One node of three shows another behaviour in every round: a ClientApp around an honest one, also copied into an app.

The first round is honest. Every behaviour changes the reply that the honest app gives: an upload if the node trains one
client, or else the sum of several.
"""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import sleep
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.packed_sum import PackedSum
from undrift.engine.flower.records import Order, decode, encode, refusal

BAD = 2  # the partition of the hostile node
CLIENTS = 12
MOST = 10_000  # examples that the list of hosts allows
LATE = 5.0  # seconds after the deadline


@dataclass
class Turn:
    """One order and the honest reply to it, which a behaviour changes.

    Args:
        message: the order.
        context: of the node; its state has what was sent in the first round.
        honest: the honest app.
    """

    message: Message
    context: Context
    honest: ClientApp

    def __post_init__(self) -> None:
        self.order = Order.read(self.message.content)
        self.content = self.honest(self.message, self.context).content

    @property
    def single(self) -> bool:
        """Whether the reply is one client's upload."""
        return "delta" in self.content["arrays"]

    @property
    def main(self) -> str:
        """The name of the displacement, or of the sum of several."""
        return "delta" if self.single else "delta/sum"

    def read(self, name: str) -> Tensor:
        """A tensor of the reply."""
        return decode(ArrayRecord({name: self.content["arrays"][name]}))[name]

    def put(self, name: str, x: Tensor) -> None:
        """Replace a tensor of the reply, or add one."""
        self.content["arrays"][name] = encode({name: x})[name]  # type: ignore[assignment]

    def delta(self) -> Tensor:
        """The displacement, or the sum of the weighted ones."""
        return self.read("delta") if self.single else PackedSum(self.read("delta/sum")).value()

    def put_delta(self, x: Tensor) -> None:
        """Replace it."""
        if not self.single:
            total = ExactSum(len(x))
            total.add(x.double())
            x = total.pack().data
        self.put(self.main, x)

    def describe(self, change: Callable[[list[Any]], None]) -> None:
        """Change what the reply's summary says of every client: number, examples, gradients, loss, seconds, weight."""
        facts = json.loads(self.content["undrift"]["summary"])  # type: ignore[arg-type]
        for visit in facts["visits"]:
            change(visit)
        self.content["undrift"]["summary"] = json.dumps(facts)  # type: ignore[assignment]

    def set_fact(self, name: str, place: int, value: float) -> None:
        """State another number, in the upload or of every client in the sum."""
        if self.single:
            self.put(name, torch.tensor([value], dtype=self.read(name).dtype))
        self.describe(lambda visit: visit.__setitem__(place, value))

    def pose(self, clients: list[int]) -> None:
        """Say that the reply is about other clients."""
        self.put("client" if self.single else "clients", torch.tensor(clients))
        own = iter(clients)
        self.describe(lambda visit: visit.__setitem__(0, next(own, clients[0])))

    def head(self, **values: Any) -> None:
        """Change the reply's numbers."""
        for name, value in values.items():
            self.content["undrift"][name] = value


class Trap:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('unpickled')",)


def bad_value(turn: Turn, value: float) -> None:
    """In an upload one element; a packed sum cannot have it, so there it is a client's norm in the summary."""
    if turn.single:
        x = turn.delta()
        x[3] = value
        turn.put_delta(x)
    else:
        turn.describe(lambda visit: visit.__setitem__(6, value))


def at_bound(turn: Turn, factor: float = -0.999) -> None:
    """The displacement in the opposite direction, as long as the bound allows."""
    allowed = turn.order.bound or 1.0
    if not turn.single:
        allowed *= sum(visit[5] for visit in json.loads(turn.content["undrift"]["summary"])["visits"])  # type: ignore[arg-type]
    x = turn.delta().double()
    turn.put_delta((x * (factor * allowed / x.norm())).to(turn.delta().dtype))


def heavy(turn: Turn) -> None:
    """As many examples as the list allows, with the steps, the weight and the sum that belong to them."""
    clients = json.loads(turn.content["undrift"]["summary"])["visits"]  # type: ignore[arg-type]
    turn.set_fact("examples", 1, MOST)
    if turn.single:
        steps = turn.order.local.step_count(MOST, turn.order.clients[0], turn.order.round, turn.order.seed)
        turn.put("steps", torch.tensor([steps]))
    else:
        turn.describe(lambda visit: visit.__setitem__(5, float(MOST)))
        factor = len(clients) * MOST / sum(visit[5] for visit in clients)
        turn.put_delta(turn.delta() * factor)
        total = ExactSum(1)
        total.add(torch.tensor([float(len(clients) * MOST)], dtype=torch.float64))
        turn.put("weight/sum", total.pack().data)


def heavy_at_bound(turn: Turn) -> None:
    """The worst that is well-formed: the most weight, in the opposite direction, at the bound."""
    heavy(turn)
    at_bound(turn)


def replay(turn: Turn, *, flipped: bool = False) -> None:
    """What was sent in the first round, under this round's number."""
    turn.content["arrays"][turn.main] = turn.context.state["kept"]["x"]  # type: ignore[assignment]
    if flipped:
        x = turn.delta()
        place = x.abs().argmax()
        x[place] = x[place] * (1 + 2.0**-20)
        turn.put_delta(x)


def twice(turn: Turn) -> None:
    """One client twice: in a sum, or as a list beside the upload."""
    if turn.single:
        turn.put("clients", torch.tensor(2 * turn.order.clients))
    else:
        turn.pose([turn.order.clients[0], *turn.order.clients[:-1]])


def other_run(turn: Turn) -> None:
    """The reply to an order of a run with another seed."""
    record = replace(turn.order, seed=turn.order.seed + 1, run="other").record()
    order = RecordDict({**turn.message.content, "undrift": record})
    turn.message.content["undrift"] = order["undrift"]
    turn.content = turn.honest(turn.message, turn.context).content


def rename(turn: Turn) -> None:
    """The displacement under another name."""
    turn.content["arrays"]["other"] = turn.content["arrays"].pop(turn.main)  # type: ignore[assignment]


def pickled(turn: Turn) -> None:
    """A pickle, said to be an array of NumPy's."""
    turn.content["arrays"][turn.main] = Array("object", (1,), "numpy.ndarray", pickle.dumps(Trap()))  # type: ignore[assignment]


def oversize(turn: Turn) -> None:
    """40 MB where a few KB are expected."""
    turn.content["more"] = ArrayRecord({"x": Array("uint8", (40_000_000,), "undrift.raw", bytes(40_000_000))})


def litter(turn: Turn) -> None:
    """Five hundred small objects."""
    for number in range(500):
        turn.content[f"more{number}"] = ConfigRecord({"x": number})


def fail(turn: Turn) -> None:
    """An exception of the app, which Flower replies with."""
    raise ValueError("the node does as it likes")


def give(content: Callable[[Turn], RecordDict]) -> Callable[[Turn], None]:
    """A behaviour: another reply."""

    def change(turn: Turn) -> None:
        turn.content = content(turn)

    return change


def foreign(turn: Turn) -> None:
    """The numbers of clients that other nodes host."""
    turn.pose([client + 1 for client in turn.order.clients])


BEHAVIOURS: dict[str, Callable[[Turn], None]] = {
    "wrong shape": lambda turn: turn.put(turn.main, turn.read(turn.main).reshape(1, -1)),
    "wrong dtype": lambda turn: turn.put(turn.main, turn.read(turn.main).half()),
    "missing tensor": rename,
    "extra tensor": lambda turn: turn.put("more", torch.zeros(3)),
    "NaN": lambda turn: bad_value(turn, float("nan")),
    "infinity": lambda turn: bad_value(turn, float("inf")),
    "displacement times 1e6": lambda turn: turn.put_delta(turn.delta() * 1e6),
    "2^20 examples": lambda turn: turn.set_fact("examples", 1, 1 << 20),
    "negative examples": lambda turn: turn.set_fact("examples", 1, -5),
    "another client's number": foreign,
    "a client twice": twice,
    "wrong round": lambda turn: turn.head(round=turn.order.round + 7),
    "wrong version": lambda turn: turn.head(version=0),
    "replay": replay,
    "FAILED": give(lambda turn: refusal("I will not", turn.message.content)),
    "no records": give(lambda turn: RecordDict()),
    "pickle": pickled,
    "40 MB": oversize,
    "500 objects": litter,
    "exception": fail,
    "after the deadline": lambda turn: None,
    "loss -1e9": lambda turn: turn.set_fact("loss", 3, -1e9),
    "another run's upload": other_run,
    "replay, a bit changed": lambda turn: replay(turn, flipped=True),
    "reversed, at the bound": at_bound,
    "10,000 examples": heavy,
    "10,000 examples, reversed, at the bound": heavy_at_bound,
}
"""What the node does, in the order of the rounds after the first."""


class Hostile(ClientApp):
    """An app that is honest in the first round and then shows one behaviour after another; on other nodes it is honest.

    Args:
        honest: the app whose replies are changed.
        wait: how it waits until after the deadline.
    """

    def __init__(self, honest: ClientApp, wait: Callable[[float], None] = sleep) -> None:
        super().__init__()
        self.honest, self.wait = honest, wait

    def __call__(self, message: Message, context: Context) -> Message:
        """Reply to an order with the behaviour of its round, to everything else as the honest app."""
        if context.node_config["partition-id"] != BAD or message.metadata.message_type != "train":
            return self.honest(message, context)
        turn, names = Turn(message, context, self.honest), list(BEHAVIOURS)
        if turn.order.round == 0:
            context.state["kept"] = ArrayRecord({"x": turn.content["arrays"][turn.main]})
        elif turn.order.round <= len(names):
            name = names[turn.order.round - 1]
            BEHAVIOURS[name](turn)
            if name == "after the deadline":
                self.wait(float(context.run_config["deadline"]) + LATE)
        return Message(turn.content, reply_to=message)


def own(context: Context) -> list[int]:
    """The clients of a node: every third, or a single one of the hostile node in the run "uploads"."""
    first = int(context.node_config["partition-id"])
    return [first] if first == BAD and context.run_config["run"] == "uploads" else list(range(first, CLIENTS, 3))


def claimed(context: Context) -> list[int]:
    """The clients that a node claims: the hostile one claims one of another node too."""
    return [0, *own(context)] if context.node_config["partition-id"] == BAD else own(context)
