"""The server's own data, for aggregation rules that judge models on them."""

from functools import cached_property, partial

from undrift.core.modules import to_train
from undrift.core.oracle import Oracle
from undrift.core.place import Place
from undrift.core.random import generator
from undrift.core.samples import Samples
from undrift.core.task import HasProxy
from undrift.core.types import Broadcast
from undrift.core.vector import Bound, bind
from undrift.engine.job import Job


class Proxy:
    """Losses and gradients on the task's proxy data, with a model of the server's own.

    Args:
        job: the method, the task and the seed.
        place: where the model is evaluated.
    """

    def __init__(self, job: Job, place: Place) -> None:
        self.job, self.place = job, place

    def samples(self, broadcast: Broadcast) -> Samples:
        """The data, judged with the running statistics that were broadcast.

        Args:
            broadcast: what was sent in the round.
        """
        job, task, place = self.job, self.job.task, self.place
        if not isinstance(task, HasProxy):
            raise TypeError(
                f"aggregation={type(job.algorithm.aggregation).__name__} needs proxy data at the server: "
                f"give the task a method proxy(); {type(task).__name__} has none"
            )
        model, random = self._model, partial(generator, job.seed, broadcast.round, -1)
        model.restore(broadcast.buffers, broadcast.counts)
        oracle = Oracle(model, partial(job.task.loss, model.module), random)
        return Samples(random=random, _oracle=oracle, _epoch=lambda _: place.ahead(task.proxy()))

    @cached_property
    def _model(self) -> Bound:
        """The server's own model."""
        return bind(self.place.to(to_train(self.job.task.model())))
