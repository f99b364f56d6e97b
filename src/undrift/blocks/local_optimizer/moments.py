"""Where the moments of a local optimizer are between a client's rounds."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from undrift.core import End, LocalOptimizer, ServerView, Start, Vector

MomentsT = TypeVar("MomentsT", bound=tuple[Any, ...])

UNUSED = {"reset": ("Server", "Client", "Sent", "Up"), "keep": ("Server", "Sent", "Up"), "average": ("Client",)}
"""What happens to the moments between rounds, and which trees are then left out."""


@dataclass(eq=False)
class Held(Generic[MomentsT]):
    """The moments as they change in a visit."""

    moments: MomentsT


class WithMoments(LocalOptimizer[MomentsT, MomentsT, MomentsT, MomentsT, Held[MomentsT]]):
    """An optimizer whose moments are zero when a round begins, kept by the client, or averaged by the server.

    The server averages without weights, as all that blocks upload.
    """

    moments: str

    def __post_init__(self) -> None:
        if self.moments not in UNUSED:
            raise ValueError(f"{type(self).__name__}: moments must be one of {', '.join(UNUSED)}, got {self.moments!r}")
        self._leave_out(*UNUSED[self.moments])

    def zero(self, w: Vector) -> MomentsT:
        """The moments before the first step."""
        raise NotImplementedError

    def init_server(self, w: Vector) -> MomentsT:
        """None yet."""
        return self.zero(w)

    def init_client(self, w: Vector) -> MomentsT:
        """None yet."""
        return self.zero(w)

    def begin(self, sent: MomentsT | None, kept: MomentsT | None, start: Start) -> Held[MomentsT]:
        """A copy of the moments to continue from."""
        last = kept if sent is None else sent
        return Held(self.zero(start.w0) if last is None else _copy(last))

    def finish(self, state: Held[MomentsT], end: End) -> tuple[MomentsT, MomentsT]:
        """The moments, uploaded or kept; what is not declared is ignored."""
        return state.moments, state.moments

    def receive(self, delta: Vector, up: MomentsT, view: ServerView[MomentsT]) -> tuple[Vector, MomentsT]:
        """The mean of the clients' moments, if they are averaged."""
        return delta, view.state if self.Up is None else type(up)(*(x / view.cohort for x in up))


def _copy(moments: MomentsT) -> MomentsT:
    """Moments that may be changed."""
    return type(moments)(*(x.clone() if isinstance(x, Tensor) else x for x in moments))
