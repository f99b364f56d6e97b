"""The Flower server: a strategy for any ServerApp, with its own receive loop.

    strategy = UndriftStrategy(make("scaffold"), model, Local(lr=0.05), population=100, cohort=10)
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=50)

Every node gets one message with the numbers of its clients and replies with their partial sum, which passes the gate
and is added to the exact sum of the round. The result is bit-identical to that of one process.
"""

import logging
from collections.abc import Callable, Iterable
from copy import deepcopy
from hashlib import sha256
from math import ceil

import torch
from torch import nn

from undrift.core import server
from undrift.core.algorithm import Algorithm
from undrift.core.modules import plain_state
from undrift.core.random import cohort as draw
from undrift.core.report import Reported
from undrift.core.types import Local, ServerState
from undrift.core.vector import bind
from undrift.engine.arguments import check_local, check_model, read_method
from undrift.engine.failures import check_failures
from undrift.engine.flower.asking import Asking
from undrift.engine.flower.evaluation import assess, weighted_means
from undrift.engine.flower.hosts import Hosting, Hosts
from undrift.engine.flower.orders import Orders
from undrift.engine.flower.receive import LATE, Reply, TooFewNodes, receive, settle
from undrift.engine.flower.records import check_name
from undrift.engine.flower.roster import Roster
from undrift.engine.flower.settings import check_limits, check_settings
from undrift.engine.flower.tally import RoundRecord, Tally
from undrift.engine.quarantine import Quarantine, QuarantineList

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result, Strategy
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error

_log = logging.getLogger("flwr")  # Flower shows what is logged here


class UndriftStrategy(Strategy):
    """Federated training with any algorithm, on any Flower runtime.

    Args:
        algorithm: the method, or its name or composition; the nodes must use the same.
        model: the model, which defines the layout of the vector. It is not changed.
        local: the settings all clients share; the nodes receive them from here.
        population: how many clients there are in all, numbered from 0.
        cohort: how many clients take part in a round; None takes all.
        seed: fixes everything random.
        bound: largest norm of a client's displacement, and of their mean in a round, which the server's corrections and
            optimizer follow; None allows any that can be summed exactly.
        deadline: seconds after which a round is closed; None takes the `timeout` of `start`.
        quorum: fraction of the sampled clients whose uploads must be accepted; with fewer the round is abandoned: the
            model is not changed and the run continues, until `patience` is over.
        grace: if given, a round is closed this many seconds after its quorum is reached.
        over_selection: factor on the cohort, to make up for clients that do not reply; all that do are counted.
        nodes: how many nodes to wait for; None waits until every client has a node.
        wait: the most seconds to wait for them; then `TooFewNodes` is raised.
        poll: longest pause in seconds between two polls for replies; 1 to 3 for a SuperLink on SQLite.
        patience: after this many abandoned rounds in a row `TooFewNodes` is raised.
        rejoin: how many seconds a round, before its deadline, still waits for a node that left in it once all other
            replies are there. A node that is back in time is asked again in the same round.
        hosts: which clients each node may host: the path of a file, or clients by node ID; see `undrift.flower.Hosts`.
            None trusts what nodes claim, and of two claims to a client the first.
        quarantine: leaves out clients whose uploads are rejected again and again; None leaves out nobody.
        evaluate: whether the nodes' own evaluate functions are called after every round.
        run: the name under which nodes store their clients' states. Use the same name to resume a run, and a different
            one for every run that uses the same nodes at the same time.
        state: the state to resume from; None starts from the arrays given to `start`.
        on_round: called after every round with the state and the record, for example to write a checkpoint.
    """

    def __init__(
        self,
        algorithm: Algorithm | str,
        model: nn.Module,
        local: Local | None = None,
        *,
        population: int,
        cohort: int | None = None,
        seed: int = 0,
        bound: float | None = None,
        deadline: float | None = None,
        quorum: float = 0.5,
        grace: float | None = None,
        over_selection: float = 1.0,
        nodes: int | None = None,
        wait: float = 300.0,
        poll: float = 1.0,
        patience: int = 3,
        rejoin: float = 30.0,
        hosts: Hosting = None,
        quarantine: Quarantine | None = None,
        evaluate: bool = False,
        run: str | None = None,
        state: ServerState | None = None,
        on_round: Callable[[ServerState, RoundRecord], None] | None = None,
    ) -> None:
        algorithm, local = read_method("UndriftStrategy", algorithm), Local() if local is None else local
        check_model("UndriftStrategy", model)
        check_local("UndriftStrategy", local)
        check_settings(algorithm, local, population, cohort, seed, quorum, over_selection, rejoin)
        check_limits(bound, deadline, grace, nodes, wait, poll, patience)
        self.algorithm, self.local, self.population = algorithm, local, population
        self.size = min(population, ceil((population if cohort is None else cohort) * over_selection))
        self.seed, self.bound, self.deadline, self.quorum, self.grace = seed, bound, deadline, quorum, grace
        self.nodes, self.wait, self.poll, self.patience, self.rejoin = nodes, wait, poll, patience, rejoin
        self.evaluate, self.on_round = evaluate, on_round
        settings = repr((seed, algorithm, local, population))
        self.run = check_name(run or f"run-{sha256(settings.encode()).hexdigest()[:16]}")
        self.state = state
        self.records: list[RoundRecord] = []
        self._first = state
        self._model = bind(deepcopy(model))
        self.quarantined = QuarantineList(quarantine)
        listed = Hosts.of(hosts)
        if listed is not None:
            listed.check(population)
        self._roster = Roster(population, hosts=listed)
        self._tally: Tally | None = None
        self._out: dict[int, str] = {}
        self._idle = 0

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train for some rounds, from the arrays or the state given; rounds are counted from 1, as in Flower.

        Args:
            grid: the grid.
            initial_arrays: the model's state as `ArrayRecord(model.state_dict())`; the result has the same form.
            num_rounds: how many rounds to add.
            timeout: seconds after which a round is closed, if there is no deadline.
            train_config: sent to the nodes, for custom train functions.
            evaluate_config: sent to the nodes' evaluate functions.
            evaluate_fn: evaluates the global model on the server, before the first round and after each.
        """
        self.summary()
        self.state = self._first or self._open(initial_arrays)
        self.local.check_rates(self.state.round, num_rounds)
        self._load(initial_arrays)  # entries that are neither trained nor sent keep the values given
        arrays, result = self.arrays(), Result()
        seconds = timeout if self.deadline is None else self.deadline
        assess(evaluate_fn, self.state.round, arrays, result)
        for round in range(self.state.round + 1, self.state.round + num_rounds + 1):
            arrays, result.train_metrics_clientapp[round] = self._train(grid, train_config, seconds)
            result.arrays = arrays
            asked = list(self.configure_evaluate(round, arrays, evaluate_config or ConfigRecord(), grid))
            replies = [r.message for r in receive(grid, asked, seconds, poll=self.poll) if r.message is not None]
            metrics = self.aggregate_evaluate(round, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[round] = metrics
            assess(evaluate_fn, round, arrays, result)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the next round, one per node; `arrays` are used only before the first round."""
        if self.state is None:
            self.state = self._open(arrays)
        return self._begin(grid, config, self.deadline or 3600.0).asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """End the round that `configure_train` began, with the replies that arrived."""
        if self._tally is None:
            raise RuntimeError("aggregate_train: no round has begun; call configure_train first")
        sent = {message.metadata.message_id: message for message in self._tally.asked}
        for message in replies:
            question = sent.pop(message.metadata.reply_to_message_id, None)
            if question is None:
                _log.warning("ignored a reply that answers no message of this round, or answers one twice")
            else:
                self._tally.take(settle(question, message))
        for question in sent.values():
            self._tally.take(Reply(question, None, LATE))
        return self._close()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message with the model's state to every node, if nodes evaluate."""
        if not self.evaluate:
            return []
        config["server-round"] = server_round
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, node, MessageType.EVALUATE) for node in sorted(grid.get_node_ids())]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The means of the nodes' metrics, weighted by their `num-examples`."""
        return weighted_means(replies)

    def summary(self) -> None:
        """Log the settings of the run."""
        _log.info("undrift run %s: %r, %r", self.run, self.algorithm, self.local)
        _log.info("%d of %d clients per round, quorum %g, seed %d", self.size, self.population, self.quorum, self.seed)

    def arrays(self) -> ArrayRecord:
        """The current model's state, as `ArrayRecord(model.state_dict())`, with the names of the plain module.

        Flower's arrays are NumPy's, which has no bfloat16: such tensors are float32 here.
        """
        assert self.state is not None
        self._model.load(self.state.params, self.state.buffers, self.state.counts)
        state = plain_state(self._model.module)
        return ArrayRecord({name: x.float() if x.dtype == torch.bfloat16 else x for name, x in state.items()})

    def _open(self, arrays: ArrayRecord) -> ServerState:
        """The state before round 0."""
        self._load(arrays)
        return server.open_run(self.algorithm, self._model)

    def _load(self, arrays: ArrayRecord) -> None:
        """Load a model's state."""
        self._model.load_state(arrays.to_torch_state_dict())

    def _train(self, grid: Grid, config: ConfigRecord | None, seconds: float) -> tuple[ArrayRecord, MetricRecord]:
        """One round, from its first message to the server step."""
        tally = self._begin(grid, config, seconds)
        assert self.state is not None
        limits = (seconds, self.poll, self.rejoin)
        asking = Asking(grid, self._roster, self._orders, tally, self.state.accepted, config, *limits)
        asking.collect(self._need, self.grace)
        return self._close()

    def _begin(self, grid: Grid, config: ConfigRecord | None, seconds: float) -> Tally:
        """Sample the clients of a round and write a message for every node that hosts some."""
        assert self.state is not None
        state = self.state
        drawn = draw(self.seed, state.round, self.population, self.size)
        out = self.quarantined.out(state.round)
        self._out = {client: str(out[client]) for client in drawn if client in out}
        clients = [client for client in drawn if client not in out]
        groups, lost = dict[int, list[int]](), list[int]()
        if clients:
            groups, lost = self._roster.find(grid, clients, self._need, self.nodes, self.wait, self.poll)
        broadcast = server.send(self.algorithm, state)
        self._tally = self._orders.write(broadcast, groups, state.accepted, seconds, config, lost)
        self._tally.leave(lost, "no node hosts it")
        self._tally.absent |= self._out
        return self._tally

    @property
    def _orders(self) -> Orders:
        """Writes the messages to the nodes."""
        return Orders(self.run, self.algorithm, self.local, self.seed, self.bound)

    @property
    def _need(self) -> int:
        """How many uploads a round needs."""
        return max(1, ceil(self.quorum * (self.size - len(self._out))))

    def _close(self) -> tuple[ArrayRecord, MetricRecord]:
        """End the round: one server step, or none if too few uploads were accepted."""
        assert self.state is not None and self._tally is not None
        tally, self._tally = self._tally, None
        kept = tally.reached(self._need)
        total = tally.total if kept else tally.empty()
        reported: Reported = {}
        self.state = server.close(
            self.algorithm,
            self.state,
            tally.broadcast,
            total,
            self.population,
            self.local,
            self._model.layout,
            reported=reported,
            bound=self.bound,
        )
        begun = self.quarantined.take(tally.broadcast.round, tally.rejections)
        record = tally.record(reported, begun, abandoned=not kept)
        self.records.append(record)
        _log.log(logging.INFO if kept else logging.WARNING, "%s", record)
        self._idle = 0 if kept else self._idle + 1
        if self.on_round is not None:
            self.on_round(self.state, record)
        if self._out.keys() >= dict(record.absent).keys():  # absent nodes may come back
            check_failures(len(record.visits), record.rejections, {})
        if self._idle >= self.patience:
            raise TooFewNodes(f"{self._idle} rounds in a row below quorum; start more nodes, or lower it; {record}")
        return self.arrays(), MetricRecord({**record.metrics()})
