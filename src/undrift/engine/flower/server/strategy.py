"""The Flower server: a strategy for any ServerApp, with its own receive loop.

    strategy = UndriftStrategy(make("scaffold"), model, Local(lr=0.05), population=100, cohort=10)
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=50)

Every node gets one message with the numbers of its clients and replies with their partial sum, which passes the gate
and is added to the exact sum of the round. The result is bit-identical to that of one process.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from math import ceil, inf, isfinite
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from undrift.core.method.algorithm import Algorithm, check_rank
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import bind
from undrift.core.model.modules import plain_state
from undrift.core.model.random import cohort as draw
from undrift.core.records.rejection import Reason
from undrift.core.records.report import Reported
from undrift.core.records.types import Local, ServerState
from undrift.core.server import step as server
from undrift.core.tasks.participation import Participation
from undrift.core.tasks.task import Task
from undrift.engine.flower.holdings import Holdings
from undrift.engine.flower.records import check_name
from undrift.engine.flower.server.adaptive_bound import AdaptiveBound, RunningBound
from undrift.engine.flower.server.exchange import Exchange
from undrift.engine.flower.server.hosts import Hosting, Hosts, HostsFile
from undrift.engine.flower.server.mailbox import Mailbox, Reply, Watch, read_reply
from undrift.engine.flower.server.node_arrivals import NodeArrivals, NodeTasks
from undrift.engine.flower.server.orders import Orders
from undrift.engine.flower.server.receive import LATE, TooFewNodes, receive
from undrift.engine.flower.server.roster import Leaving, Roster
from undrift.engine.flower.server.tally import RoundRecord, Tally
from undrift.engine.flower.versions import find_newer
from undrift.engine.round.arguments import check_local, check_model, read_method
from undrift.engine.round.arrivals import collect_uploads
from undrift.engine.round.quarantine import Quarantine, QuarantineList
from undrift.engine.round.scheduler import Scheduler
from undrift.secure.settings import Secure, check_noise_shares, read_secure, why_not_secure
from undrift.util.overlay import Overlay

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
        adaptive: a bound that follows the accepted norms of the rounds before; with `bound`, the smaller one holds.
        deadline: seconds after which a round is closed; None takes the `timeout` of `start`. Under a schedule without a
            barrier the server then steps with the uploads that arrived.
        quorum: fraction of the sampled clients whose uploads must be accepted; with fewer the round is abandoned: the
            model is not changed and the run continues, until `patience` is over.
        grace: if given, a round is closed this many seconds after its quorum is reached.
        over_selection: factor on the cohort, to make up for clients that do not reply; all that do are counted.
        nodes: how many nodes to wait for; None waits until every client has a node.
        wait: the most seconds to wait for them; then `TooFewNodes` is raised, unless the run is resumed and there are
            enough for the quorum.
        poll: longest pause in seconds between two polls for replies; 1 to 3 for a SuperLink on SQLite.
        patience: after this many abandoned rounds in a row `TooFewNodes` is raised.
        rejoin: how many seconds a round, before its deadline, still waits for a node that left in it once all other
            replies are there. A node that is back in time gets its order again in the same round.
        hosts: which clients each node may host: the path of a file, which is read again before a round if it has
            changed, or clients by node ID; see `undrift.flower.Hosts`. None trusts what nodes claim, and of two claims
            to a client the first.
        quarantine: leaves out clients whose uploads are rejected again and again; None has no quarantine.
        share: the most of a round's weight that one node may have, as a fraction; a node with more is left out of the
            round, and a round in which no node is left is abandoned. Choose it so that no honest node has as much
            even if others claim little. Below 1 the server keeps a sum per node until a round is over.
        secure: add the nodes' sums by a protocol in which the server sees none of them: a `Secure`, or True for its
            defaults; each node is a party. A node that leaves is not ordered again in the same round.
        evaluate: whether the nodes' own evaluate functions are called after every round.
        run: the name under which nodes store their clients' states. Use the same name to resume a run, and a different
            one for every run that uses the same nodes at the same time.
        state: the state to resume from; None starts from the arrays given to `start`.
        on_round: called after every round with the state and the record, for example to write a checkpoint.
        head: returns the hash of the last event in the run's audit log; nodes keep it, see `undrift verify --anchor`.
        watch: sees which nodes are connected, which clients each was given, and whose replies are awaited.
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
        adaptive: AdaptiveBound | None = None,
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
        share: float = 1.0,
        secure: Secure | bool | None = None,
        evaluate: bool = False,
        run: str | None = None,
        state: ServerState | None = None,
        on_round: Callable[[ServerState, RoundRecord], None] | None = None,
        watch: Watch | None = None,
        head: Callable[[], str] | None = None,
    ) -> None:
        algorithm, local = read_method("UndriftStrategy", algorithm), Local() if local is None else local
        check_model("UndriftStrategy", model)
        check_local("UndriftStrategy", local)
        check_rank(algorithm, local)
        limits = (grace, over_selection, nodes, wait, poll, patience, rejoin, share)
        _check_options(population, cohort, seed, bound, deadline, quorum, *limits)
        local.check_population(population)
        _check_method(algorithm)
        self.algorithm, self.local, self.population = algorithm, local, population
        self.size = min(population, ceil((population if cohort is None else cohort) * over_selection))
        self.seed, self.bound, self.deadline, self.quorum, self.grace = seed, bound, deadline, quorum, grace
        self.nodes, self.wait, self.poll, self.patience, self.rejoin = nodes, wait, poll, patience, rejoin
        self.head = head
        self.share, self.evaluate, self.on_round, self.watch = share, evaluate, on_round, watch
        settings = repr((seed, algorithm, local, population))
        self.run = check_name(run or f"run-{sha256(settings.encode()).hexdigest()[:16]}")
        self.state = state
        self.records: list[RoundRecord] = []
        self._first = state
        self._model = bind(deepcopy(model))
        self.bounds = RunningBound(adaptive)
        self._holdings = Holdings(algorithm, self._model.layout)
        self.known: dict[str, int] = {}  # accepted displacements by digest, with the round from 1
        if algorithm.schedule.overlaps:
            given: dict[str, object] = {"adaptive": adaptive, "grace": grace, "secure": secure, "share": share < 1}
            _check_schedule(algorithm, {**given, "over_selection": over_selection > 1})
            algorithm.schedule.check(self.size)
        if algorithm.release.private:  # noise from a seed that all nodes know does not protect, shares are a node's own
            expected = self.size if algorithm.release.least else 0
            server.check_private(algorithm, local, self._model, expected)
        if local.example_noise:
            raise ValueError(
                "example_noise: noise from a run's seed, which all nodes know, protects in simulations only; train "
                "with undrift.Simulation or undrift run"
            )
        self.secure: Secure | None = read_secure(secure)
        if self.secure is not None:
            self._check_secure(adaptive)
        check_noise_shares(self.secure, algorithm)
        self.quarantined = QuarantineList(quarantine)
        listed = HostsFile(hosts, population) if isinstance(hosts, str | Path) else Hosts.of(hosts)
        if isinstance(listed, Hosts):
            listed.check(population)
        hides = self.secure is not None
        newer = lambda version: find_newer(version, algorithm, local, secure=hides)  # noqa: E731
        self._roster = Roster(population, hosts=listed, newer=newer)
        self._tally: Tally | None = None
        self._tasks: NodeTasks | None = None
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
        arrays, result, mailbox = self.arrays(), Result(), Mailbox(grid, self.watch)
        seconds = timeout if self.deadline is None else self.deadline
        _evaluate(evaluate_fn, self.state.round, arrays, result)
        if self.algorithm.schedule.overlaps:
            flight = self.state.flight
            self._tasks = NodeTasks(mailbox, self._roster, flight, self.poll, self.rejoin, train_config)
        for round in range(self.state.round + 1, self.state.round + num_rounds + 1):
            arrays, result.train_metrics_clientapp[round] = self._train(mailbox, train_config, seconds)
            result.arrays = arrays
            messages = list(self.configure_evaluate(round, arrays, evaluate_config or ConfigRecord(), grid))
            replies = [r.message for r in receive(mailbox, messages, seconds, poll=self.poll) if r.message is not None]
            metrics = self.aggregate_evaluate(round, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[round] = metrics
            _evaluate(evaluate_fn, round, arrays, result)
        if self._tasks is not None:
            self._tasks.stop()
        return result

    def withdraw(self, clients: Iterable[int], forgotten: Callable[[int, list[int]], object] | None = None) -> None:
        """Never select these clients again; their nodes delete their states when they are queried next.

        Args:
            clients: their numbers.
            forgotten: called with a node and its clients whose states it has deleted.
        """
        self.quarantined.withdrawn |= set(clients)
        self._roster.leaving = Leaving(self.run, sorted(self.quarantined.withdrawn), forgotten)

    def note_hosts(self, note: Callable[..., object]) -> None:
        """Report the operator's list of hosts now, and every change of its file.

        Args:
            note: called with the facts, by name: `nodes` at first, then `added`, `removed` and `changed`, or `error`.
        """
        self._roster.note_hosts(note)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the next round, one per node; `arrays` are used only before the first round."""
        if self.secure is not None or self.algorithm.schedule.overlaps:
            what = (
                "a secure sum takes several exchanges" if self.secure else "a schedule without a barrier has no rounds"
            )
            raise RuntimeError(f"configure_train: {what}; call start")
        if self.state is None:
            self.state = self._open(arrays)
        return self._begin(Mailbox(grid, self.watch), config, self.deadline or 3600.0).messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """End the round that `configure_train` began, with the replies that arrived."""
        if self._tally is None:
            raise RuntimeError("aggregate_train: no round has begun; call configure_train first")
        sent = {message.metadata.message_id: message for message in self._tally.messages}
        for message in replies:
            question = sent.pop(message.metadata.reply_to_message_id, None)
            if question is None:
                _log.warning("ignored a reply that answers no message of this round, or answers one twice")
            else:
                self._tally.take(read_reply(question, message))
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
        return _weighted_means(replies)

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

    def _train(self, mailbox: Mailbox, config: ConfigRecord | None, seconds: float) -> tuple[ArrayRecord, MetricRecord]:
        """One round, from its first message to the server step."""
        if self._tasks is not None:
            return self._step(self._tasks, mailbox, seconds)
        tally = self._begin(mailbox, config, seconds)
        assert self.state is not None
        if self.secure is not None:
            from undrift.engine.flower.server.secure_exchange import SecureExchange

            SecureExchange(mailbox, tally, self.secure, self.run, seconds, self.poll).collect()
            return self._close()
        limits = (seconds, self.poll, self.rejoin)
        exchange = Exchange(mailbox, self._roster, self._orders, tally, self.state.accepted, config, *limits)
        exchange.collect(self._need, self.grace)
        return self._close()

    def _step(self, tasks: NodeTasks, mailbox: Mailbox, seconds: float) -> tuple[ArrayRecord, MetricRecord]:
        """One step of the server under a schedule without a barrier, from the uploads that arrive first."""
        assert self.state is not None
        state, began = self.state, monotonic()
        waits = (1, self.nodes, self.wait, self.poll)
        homeless = self._roster.find(mailbox, range(self.population), *waits, resumed=state.round > 0)[1]
        broadcast, orders = server.send(self.algorithm, state, self._setting), self._orders
        source = NodeArrivals(tasks, state, broadcast, orders, monotonic() + seconds)
        away = {*homeless, *self.quarantined.out(state.round)}
        plan = self._scheduler.plan(state.round, state.flight, away=away, source=source)
        visits = self.algorithm.schedule.visits(self.size)
        found = collect_uploads(plan, state, broadcast, self.algorithm, self.local, visits, source.collect)
        partial, reported, kept = found.partial, Reported(), bool(source.keys)
        partial.rejections += [*source.rejections, *plan.late(state.round)]
        partial.absent |= source.lost
        after = server.close(
            self.algorithm,
            state,
            self._setting,
            found.versions,
            reported=reported,
            bound=orders.bound,
            whole=partial.total,
        )
        accepted = Overlay.of(after.accepted).updated(found.accepted)
        self.state = replace(after, accepted=accepted, flight=plan.flight(found.sent))
        record = RoundRecord.of(
            state.round,
            partial,
            reported,
            abandoned=not kept,
            seconds=monotonic() - began,
            bound=orders.bound,
            uploads=source.uploads,
            nodes=source.nodes,
            quarantined=self.quarantined.take(
                state.round, partial.rejections, source.lost.keys() & source.nodes.keys()
            ),
            plan=plan,
            outcomes={**found.tasks, **source.ended},
        )
        return self._note(record)

    def _check_secure(self, adaptive: AdaptiveBound | None) -> None:
        """Raise if the uploads of the nodes cannot be summed securely."""
        why = why_not_secure(self.algorithm, self.local, self._model)
        if adaptive is not None:
            why = "an adaptive bound follows the norms of single clients, which a secure sum hides; set bound"
        elif self.share < 1:
            why = f"share = {self.share:g} compares the weights of nodes, which a secure sum hides; leave share out"
        if why:
            raise ValueError(f"secure: {why}")

    def _begin(self, mailbox: Mailbox, config: ConfigRecord | None, seconds: float) -> Tally:
        """Sample the clients of a round and write a message for every node that hosts some."""
        assert self.state is not None
        state = self.state
        drawn = draw(self.seed, state.round, self.population, self.size)
        out = self.quarantined.out(state.round)
        self._out = {client: str(out[client]) for client in drawn if client in out}
        clients = [client for client in drawn if client not in out]
        groups, lost = dict[int, list[int]](), list[int]()
        if clients:
            waits = (self._need, self.nodes, self.wait, self.poll)
            groups, lost = self._roster.find(mailbox, clients, *waits, resumed=state.round > 0)
        if self._roster.evaluates and not self.evaluate and not self.records:
            _log.warning("the nodes' evaluate function is not called: give UndriftStrategy evaluate=True to call it")
        broadcast = server.send(self.algorithm, state, self._setting)
        self._tally = self._orders.write(broadcast, groups, state.accepted, seconds, config, lost)
        self._tally.mark_absent(lost, "no node hosts it")
        self._tally.absent |= self._out
        return self._tally

    @cached_property
    def _scheduler(self) -> Scheduler:
        """Decides who begins, and when the server steps, under a schedule without a barrier."""
        clients = cast(Task, SimpleNamespace(population=self.population))  # drawn alike, so nothing else is read
        participation = Participation(clients, self.size)
        return Scheduler(self.algorithm.schedule, participation, None, self.seed)

    @property
    def _setting(self) -> Setting:
        """What all rounds have in common, for the blocks' hooks."""
        expected = self.size if self.algorithm.release.private else 0
        return Setting(self.population, self.local, self._model.layout, self.seed, expected)

    @property
    def _orders(self) -> Orders:
        """Writes the messages to the nodes."""
        examples = {} if self._roster.hosts is None else self._roster.hosts.examples
        head = None if self.head is None else self.head()
        given = (self.algorithm, self.local, self.seed, self._bound, examples, self.share, self.known, head)
        return Orders(self.run, *given, self._roster.versions, self._holdings)

    @property
    def _bound(self) -> float | None:
        """The largest norm of a client's displacement in this round."""
        assert self.state is not None
        given = (self.bound, self.bounds.value(self.state.params))
        return min((bound for bound in given if bound is not None), default=None)

    @property
    def _need(self) -> int:
        """How many uploads a round needs."""
        return max(1, ceil(self.quorum * (self.size - len(self._out))))

    def _close(self) -> tuple[ArrayRecord, MetricRecord]:
        """End the round: one server step, or none if too few uploads were accepted."""
        assert self.state is not None and self._tally is not None
        tally, self._tally = self._tally, None
        tally.limit_shares()
        kept = tally.has_uploads(self._need)
        total = tally.total if kept else tally.empty()
        reported: Reported = {}
        self.state = server.close(
            self.algorithm,
            self.state,
            self._setting,
            [(tally.broadcast, total)],
            reported=reported,
            bound=tally.bound,
        )
        typical = self.bounds.take([visit.norm for visit in tally.visits])
        begun = self.quarantined.take(tally.broadcast.round, tally.rejections, tally.absent.keys() & tally.nodes.keys())
        return self._note(tally.record(reported, begun, abandoned=not kept, typical_norm=typical))

    def _note(self, record: RoundRecord) -> tuple[ArrayRecord, MetricRecord]:
        """Keep the record of a round, and end the run if too many in a row were abandoned."""
        assert self.state is not None
        kept = not record.abandoned
        self.records.append(record)
        self.known |= dict.fromkeys(record.uploads, self.state.round)
        _log.log(logging.INFO if kept else logging.WARNING, "%s", record)
        self._idle = 0 if kept else self._idle + 1
        if self.on_round is not None:
            self.on_round(self.state, record)
        if self._idle >= self.patience:
            failed = any(rejection.reason is Reason.FAILED for rejection in record.rejections)
            remedy = "see the nodes' logs" if failed else "start more nodes, or lower it"
            raise TooFewNodes(f"{self._idle} rounds in a row below quorum; {remedy}; {record}")
        return self.arrays(), MetricRecord({**record.metrics()})


def _evaluate(
    evaluate: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    round: int,
    arrays: ArrayRecord,
    result: Result,
) -> None:
    """Evaluate the global model on the server, into a result.

    Args:
        evaluate: a function of the round and the model's arrays; None does nothing.
        round: the round, from 1; 0 before the first.
        arrays: the model's.
        result: the result that gets the metrics.
    """
    metrics = evaluate(round, arrays) if evaluate is not None else None
    if metrics is not None:
        _log.info("round %d, evaluated here: %s", round, metrics)
        result.evaluate_metrics_serverapp[round] = metrics


def _weighted_means(replies: Iterable[Message]) -> MetricRecord | None:
    """The means of the nodes' metrics, weighted by their `num-examples`; None if there are none."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for message in replies:
        for record in message.content.metric_records.values() if message.has_content() else ():
            values = {k: float(v) for k, v in record.items() if isinstance(v, int | float) and isfinite(v)}
            weight = values.pop("num-examples", 1.0)
            for name, value in values.items() if 0 < weight < 2**31 else ():
                sums[name] = sums.get(name, 0.0) + weight * value
                weights[name] = weights.get(name, 0.0) + weight
    return MetricRecord({name: total / weights[name] for name, total in sums.items()}) if sums else None


def _check_options(
    population: int,
    cohort: int | None,
    seed: int,
    bound: float | None,
    deadline: float | None,
    quorum: float,
    grace: float | None,
    over_selection: float,
    nodes: int | None,
    wait: float,
    poll: float,
    patience: int,
    rejoin: float,
    share: float,
) -> None:
    """Raise if an option of `UndriftStrategy` is out of its range."""
    size = f"between 1 and the population of {population}"
    every = "None waits until every client has a node"
    for valid, name, value, rule, none in (
        (population >= 1, "population", population, "1 or more, the number of all clients", ""),
        (cohort is None or 1 <= cohort <= population, "cohort", cohort, size, "None takes all clients"),
        (0 <= quorum <= 1, "quorum", quorum, "a fraction of the sampled clients from 0 to 1", ""),
        (1 <= over_selection < inf, "over_selection", over_selection, "1 or more", ""),
        (0 < share <= 1, "share", share, "a fraction above 0, at most 1", "1 has no limit"),
        (0 <= rejoin < inf, "rejoin", rejoin, "a number of seconds, 0 or more", ""),
        (-(2**63) <= seed < 2**63, "seed", seed, "a whole number of 64 bits", ""),
        (bound is None or bound > 0, "bound", bound, "a positive norm", "None allows any"),
        (
            deadline is None or 0 < deadline < inf,
            "deadline",
            deadline,
            "a positive number of seconds",
            "None takes the timeout of start",
        ),
        (grace is None or grace >= 0, "grace", grace, "0 or more seconds", "None waits until the deadline"),
        (nodes is None or nodes >= 1, "nodes", nodes, "1 or more", every),
        (wait >= 0, "wait", wait, "0 or more seconds", ""),
        (0 < poll < inf, "poll", poll, "a positive number of seconds", ""),
        (patience >= 1, "patience", patience, "1 or more rounds", ""),
    ):
        if not valid:
            raise ValueError(f"{name} must be {rule}, got {value}{none and f'; {none}'}")


def _check_method(algorithm: Algorithm) -> None:
    """Raise if a method needs what the server of real nodes does not have."""
    if algorithm.needs.proxy:
        raise TypeError(
            f"aggregation={type(algorithm.aggregation).__name__} needs proxy data at the server, and "
            f"a Flower strategy has none: use undrift.Simulation, or another aggregation"
        )
    if algorithm.fills("selection"):
        raise TypeError(
            f"selection={algorithm.selection!r} evaluates candidates before a round, which a Flower strategy on "
            f"real nodes does not support: leave it out here, or use undrift.Simulation, on any backend"
        )
    if algorithm.fills("schedule") and not algorithm.schedule.overlaps:
        raise TypeError(
            f"schedule={algorithm.schedule!r} cancels the slowest clients by a virtual clock, which real nodes do not "
            "have: leave it out here, and give over_selection= with grace="
        )


def _check_schedule(algorithm: Algorithm, options: Mapping[str, object]) -> None:
    """Raise if an option is about rounds of a whole cohort, which a schedule without a barrier does not have."""
    for name, value in options.items():
        if value:
            raise ValueError(f"{name}: schedule={algorithm.schedule!r} has no rounds of a cohort; leave {name} out")
