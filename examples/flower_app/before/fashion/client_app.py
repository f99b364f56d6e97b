"""The node's half of the app."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fashion import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the server's model on the data of this node."""
    config, node = message.content["config"], context.node_config
    loader = task.load_data(int(node["partition-id"]), int(node["num-partitions"]), config["batch-size"])
    model = task.Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = task.train(model, loader, config["epochs"], config["lr"])
    metrics = MetricRecord({"loss": loss, "num-examples": len(loader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
