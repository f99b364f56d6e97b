"""A tree of sums on Ray: replies stay where they were made, and workers merge them before the server sees any.

Sums are exact, so their order and grouping do not change a bit. The server merges `fan_in` replies at most, whatever
the number of workers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from undrift.engine.ray_backend.dispatch import Call, Chunk

Dispatching = Callable[[Call, Sequence[Chunk], str], Iterable[Any]]
"""Sends chunks to workers by a call and yields the replies; the last argument is the participle of the work."""


class StoredReply(NamedTuple):
    """A reply that stays in Ray's object store.

    Args:
        clients: whose uploads it adds up.
        reply: Ray's reference to it.
    """

    clients: Chunk
    reply: Any


@dataclass(frozen=True)
class Tree:
    """The work of one step of the server as a tree.

    Args:
        fan_in: how many replies are merged into one, 2 or more.
        actors: the workers.
        prepare: gives the arguments of an actor's method for a chunk of clients.
        dispatch: sends chunks to workers.
    """

    fan_in: int
    actors: Sequence[Any]
    prepare: Callable[[Chunk], tuple[Any, ...]]
    dispatch: Dispatching

    def train(self, chunks: Sequence[Chunk]) -> list[StoredReply]:
        """Train chunks of clients; a reply each."""
        return list(self._request("serve", {chunk[0]: () for chunk in chunks}, chunks, "trained"))

    def merge(self, replies: list[StoredReply]) -> list[StoredReply]:
        """Merge replies that started from one model, level by level, until there are no more than `fan_in`."""
        while len(replies) > self.fan_in:
            groups = [replies[i : i + self.fan_in] for i in range(0, len(replies), self.fan_in)]
            several = [group for group in groups if len(group) > 1]
            chunks = [[client for held in group for client in held.clients] for group in several]
            inputs = {chunk[0]: group for chunk, group in zip(chunks, several, strict=True)}
            replies = [group[0] for group in groups if len(group) == 1]
            replies += self._request("merge", inputs, chunks, "merged")
        return replies

    def _request(
        self, method: str, inputs: Mapping[int, Sequence[StoredReply]], chunks: Sequence[Chunk], work: str
    ) -> Iterator[StoredReply]:
        """Replies of an actor's method, which returns its clients for this process and a reply that is not fetched."""
        kept: dict[int, Any] = {}

        def call(number: int, chunk: Chunk) -> Any:
            given = (held.reply for held in inputs[chunk[0]])
            request = getattr(self.actors[number], method).options(num_returns=2)
            clients, kept[chunk[0]] = request.remote(*self.prepare(chunk), *given)
            return clients

        for clients in self.dispatch(call, chunks, work):
            yield StoredReply(clients, kept.pop(clients[0]))
