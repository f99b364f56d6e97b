"""Flower: its strategies, with clients as its examples write them; no processes and no network."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx
from flwr.supercore.task_identity import TaskIdentity

from task import COHORTS, FEDERATION, HYPER, LR, AbsentError

PACKAGE = "flwr"


class Clients(Grid):
    """A grid whose nodes are the cohort of the round, and reply at once."""

    def __init__(self) -> None:
        self.round = 0

    def set_run(self, run: Any) -> None:
        """Nothing.

        Args:
            run: not used.
        """

    @property
    def run(self) -> Any:
        """Nothing."""

    def create_message(self, *_: Any, **__: Any) -> Any:
        """Nothing."""

    def push_messages(self, messages: Iterable[Message]) -> Any:
        """Nothing.

        Args:
            messages: not used.
        """

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        """Nothing.

        Args:
            message_ids: not used.
        """

    def get_node_ids(self) -> list[int]:
        """The nodes of this round."""
        return [client + 1 for client in COHORTS[min(self.round, len(COHORTS) - 1)]]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """The trained models of this round.

        Args:
            messages: to the nodes.
            timeout: not used.
        """
        replies = [train(message, self.round) for message in messages]
        self.round += bool(replies)
        return replies


def train(message: Message, round: int) -> Message:
    """A node's reply; the term of FedProx is the client's part, as Flower's documentation of FedProx asks for.

    Args:
        message: with the global model.
        round: counted from 0.
    """
    client = message.metadata.dst_node_id - 1
    config = message.content["config"]
    w = message.content["arrays"]["model"].numpy()
    x, _ = FEDERATION.visit(client, round, w, mu=float(config.get("proximal-mu", 0.0)))
    content = {
        "arrays": ArrayRecord({"model": Array(np.asarray(x))}),
        "metrics": MetricRecord({"num-examples": FEDERATION.examples[client]}),
    }
    return Message(RecordDict(content), reply_to=message)


def run(method: str) -> list[list[float]]:
    """The models of a method.

    Args:
        method: one of the task's.
    """
    hyper = HYPER[method]
    common = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}
    kinds = {
        "FedAvg": lambda: FedAvg(**common),
        "FedProx": lambda: FedProx(**common, proximal_mu=hyper["mu"]),
        "FedAvgM": lambda: FedAvgM(**common, server_momentum=hyper["beta"]),
        "FedAdam": lambda: FedAdam(
            **common, eta=hyper["lr"], eta_l=LR, beta_1=hyper["beta1"], beta_2=hyper["beta2"], tau=hyper["tau"]
        ),
    }
    if method not in kinds:
        raise AbsentError
    rows: list[list[float]] = []
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as the process of a ServerApp does

    def keep(round: int, arrays: ArrayRecord) -> None:
        if round:
            rows.append(arrays["model"].numpy().tolist())

    first = ArrayRecord({"model": Array(FEDERATION.start)})
    kinds[method]().start(Clients(), first, num_rounds=len(COHORTS), train_config=ConfigRecord(), evaluate_fn=keep)
    return rows
