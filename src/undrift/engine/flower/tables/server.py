"""The server's half of preparing tables: it gets sums from every node, and sends what follows to all."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from undrift.core.server.wire import WireError
from undrift.data.arrays.preprocess import Preprocess
from undrift.data.own.columns import Reading
from undrift.data.own.files import read_prepared
from undrift.data.own.sites import SiteReply, prepare_sites
from undrift.engine.flower.records import check_name, one_line
from undrift.engine.flower.server.mailbox import Mailbox
from undrift.engine.flower.server.receive import SKEW, TooFewNodes, receive
from undrift.engine.flower.server.roster import wait_for_nodes
from undrift.engine.flower.tables.records import TABLE, read_reply, write_question, write_result
from undrift.util.storage.files import write

_log = logging.getLogger("flwr")  # Flower shows what is logged here


def prepare_tables(
    grid: Grid,
    run: str,
    target: str,
    inputs: str,
    *,
    file: str | Path,
    nodes: int,
    wait: float = 300.0,
    deadline: float = 120.0,
    poll: float = 1.0,
    **reading: Any,
) -> Preprocess:
    """Find one way to prepare the tables of all nodes, and send it to them; call it before `deploy`.

    Categories, classes, fill values, means and deviations are those of the training rows of all nodes, as if they were
    one table; only sums, counts and different texts leave a node. The apps of the nodes call `host_table`.

    Args:
        grid: the grid of the ServerApp.
        run: the name under which nodes keep the result, as they give it to `prepared_file`.
        target: the column to predict.
        inputs: the columns that models receive, joined by ";".
        file: where the server keeps the result; if it is there, no node gets a question, and it is sent to all again.
        nodes: how many nodes there are.
        wait: seconds to wait for them.
        deadline: seconds that the nodes have for each answer.
        poll: longest pause between two polls.
        reading: other arguments of a table: missing, categories, scale, classes, owner, test.
    """
    check_name(run)
    wanted, path = Reading(target=target, inputs=inputs, **reading), Path(file)
    mailbox = Mailbox.of(grid)
    members = wait_for_nodes(mailbox, nodes, wait, poll)

    def send(content: Callable[[], RecordDict]) -> list[SiteReply]:
        return _exchange(mailbox, members, content, deadline, poll)

    if path.is_file():
        made = read_prepared(str(path))
    else:
        made = prepare_sites(lambda question: send(lambda: write_question(question)), wanted)
        write(path, json.dumps(made.record(), indent=1))
        _log.info("the tables of %d nodes are prepared alike: %s", len(members), path)
    send(lambda: write_result(run, made))
    return made


def _exchange(
    mailbox: Mailbox, nodes: Sequence[int], content: Callable[[], RecordDict], seconds: float, poll: float
) -> list[SiteReply]:
    """The replies of all nodes to one message each; raises if one has none."""
    kind = f"{MessageType.QUERY}.{TABLE}"
    messages = [Message(content(), node, kind, ttl=seconds + SKEW) for node in nodes]
    found: dict[int, SiteReply] = {}
    for reply in receive(mailbox, messages, seconds, poll=poll):
        node = reply.sent.metadata.dst_node_id
        try:
            if reply.message is None:
                raise WireError(reply.why)
            found[node] = read_reply(reply.message.content)
        except (ValueError, TypeError) as error:
            raise TooFewNodes(f"node {node} gave no answer about its table: {one_line(error)}{_hint(error)}") from None
    return [found[node] for node in nodes]


def _hint(error: Exception) -> str:
    """What to do about an answer that did not come."""
    return "; its ClientApp has no table: call host_table(app, ...) there" if "No query function" in str(error) else ""
