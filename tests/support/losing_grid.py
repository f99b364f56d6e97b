"""A grid that loses the messages of some steps of a secure sum."""

from flwr.app import Message

from support.flower_grid import StandInGrid

WORKING = [0, 2, 3, 4, 5, 6, 7]
"""The clients with examples: the node of client 1 has no upload and drops out."""


class Losing(StandInGrid):
    """A grid that loses the messages of some steps to some partitions, and keeps a copy of all replies."""

    lost: dict[str, set[int]]
    seen: list[Message]

    def _pull(self, key: str) -> list[Message]:
        if key not in self.pushed:
            return []
        message, _ = self.pushed[key]
        context = self.nodes.get(message.metadata.dst_node_id)
        if context is not None and context.node_config["partition-id"] in self.lost.get(step_of(message), set()):
            return []
        found = super()._pull(key)
        self.seen += found
        return found


def step_of(message: Message) -> str:
    if message.metadata.message_type == "train":
        return "masked"
    return str(message.content.config_records["undrift"].get("step", ""))
