"""The node's half: it trains the clients that this node hosts, one or many."""

from time import sleep

from flwr.app import Context

from app.task import CLIENTS, task
from undrift import make
from undrift.flower import Job, client_app


def job(context: Context) -> Job:
    """The method of the run and the data of this node; learning rate, epochs and seed come from the server.

    The server keeps two checkpoints, so clients' states are kept for two rounds: depth=2.
    """
    sleep(float(context.run_config["pause"]))
    first, step = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    return Job(make(str(context.run_config["algorithm"])), task(range(first, CLIENTS, step)), depth=2)


app = client_app(job)
