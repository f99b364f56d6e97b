"""The node's half of the app."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fashion import task
from undrift import make
from undrift.flower import host, open_visit

app = ClientApp()
host(app)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the server's model on the data of this node."""
    config, node = message.content["config"], context.node_config
    loader = task.load_data(int(node["partition-id"]), int(node["num-partitions"]), config["batch-size"])
    model = task.Net()
    return open_visit(message, context, make("fedfft-d")).train(model, task.loss, lambda _: loader, len(loader.dataset))
