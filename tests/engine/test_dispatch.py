"""Chunks of clients on workers that die, hang and come back, with a stand-in for Ray in this process."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("ray")
from ray.exceptions import ActorUnavailableError, ObjectLostError, OutOfMemoryError, RayActorError, RayTaskError

from undrift.engine.ray_backend import dispatch
from undrift.engine.ray_backend.dispatch import Crew, Dispatch, WorkerError

ALIVE, RESTARTING, DEAD = 2, 3, 4
Outcome = Callable[[], Any]


class Worker:
    """An actor: `script` has the outcome of each of its calls, None for one that is never answered."""

    def __init__(self, *script: Outcome | None, state: int = ALIVE) -> None:
        self.script, self.state, self.given = list(script), state, list[list[int]]()
        self.pid = self

    def remote(self) -> Any:
        """A ping; answered as soon as the worker runs."""
        return Reply(lambda: 1, self)

    def _get_local_state(self) -> int:
        return self.state

    def train(self, chunk: list[int]) -> Any:
        self.given.append(chunk)
        return Reply(self.script.pop(0) if self.script else (lambda: chunk), None)


class Reply:
    """A reference: ready once its outcome is known and its worker runs."""

    def __init__(self, outcome: Outcome | None, after: Worker | None) -> None:
        self.outcome, self.after = outcome, after

    def ready(self) -> bool:
        return self.outcome is not None and (self.after is None or self.after.state == ALIVE)


class Ray:
    """The three calls that are used; a wait without a reply moves the clock instead of sleeping."""

    def __init__(self) -> None:
        self.now, self.cancelled = 0.0, list[Reply]()

    def wait(self, references: list[Reply], *, num_returns: int = 1, timeout: float) -> Any:
        done = [reference for reference in references if reference.ready()][:num_returns]
        if not done:
            self.now += timeout
        return done, [reference for reference in references if reference not in done]

    def get(self, reply: Reply) -> Any:
        assert reply.outcome is not None
        return reply.outcome()

    def cancel(self, reply: Reply) -> None:
        self.cancelled.append(reply)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Ray:
    fake = Ray()
    monkeypatch.setattr(dispatch, "ray", fake)
    monkeypatch.setattr(dispatch, "monotonic", lambda: fake.now)
    monkeypatch.setattr(dispatch, "sleep", lambda seconds: setattr(fake, "now", fake.now + seconds))
    return fake


def trained(workers: list[Worker], chunks: list[list[int]], **options: Any) -> list[Any]:
    crew = Crew(workers)
    given = {"retries": 3, "wait": 60.0, **options}
    return sorted(Dispatch(crew, chunks, lambda number, chunk: workers[number].train(chunk), **given).replies())


def dies(worker: Worker, error: Exception | None = None) -> Outcome:
    def outcome() -> Any:
        worker.state = RESTARTING
        raise error or RayActorError(error_msg="the node was lost")

    return outcome


def test_the_clients_of_a_lost_worker_go_to_the_others_and_it_gets_none(clock: Ray, caplog: Any) -> None:
    workers = [Worker(), Worker()]
    workers[0].script = [dies(workers[0])]
    assert trained(workers, [[1, 2], [3], [4], [5]]) == [[1, 2], [3], [4], [5]]
    assert workers[0].given == [[1, 2]] and clock.now < 5
    (line,) = caplog.messages
    assert line == "a Ray worker was lost (the node was lost); its clients 1, 2 go to another one"


def test_a_lost_worker_that_answers_gets_work_again(clock: Ray) -> None:
    (worker,) = workers = [Worker()]
    worker.script = [dies(worker, ActorUnavailableError("gone", None))]
    plain = clock.wait

    def wait(references: list[Reply], **options: Any) -> Any:
        if clock.now > 20:
            worker.state = ALIVE
        return plain(references, **options)

    clock.wait = wait  # type: ignore[method-assign]
    assert trained(workers, [[1], [2]]) == [[1], [2]] and worker.given == [[1], [1], [2]]


@pytest.mark.quick
def test_nobody_is_waited_for_longer_than_asked(clock: Ray, caplog: Any) -> None:
    workers = [Worker(), Worker()]
    for worker in workers:
        worker.script = [dies(worker)]
    said = r"none of 2 Ray workers was running for 100 s; clients 1, 2, 3, 4 of this round .* RayBackend\(wait=\.\.\.\)"
    with pytest.raises(WorkerError, match=said):
        trained(workers, [[1, 2], [3], [4]], wait=100.0)
    assert 100 < clock.now < 110 and caplog.messages[-1] == "no Ray worker is running; waiting 100 s for one"


def test_workers_that_will_never_start_are_not_waited_for(clock: Ray) -> None:
    workers = [Worker()]

    def ends() -> Any:
        workers[0].state = DEAD
        raise RayActorError(error_msg="its constructor raised an error")

    workers[0].script = [ends]
    with pytest.raises(WorkerError, match="none of 1 Ray workers will be started again; clients 1 of this round"):
        trained(workers, [[1]])
    assert clock.now < 5


def test_work_that_was_given_to_a_worker_that_does_not_run_is_taken_back(clock: Ray, caplog: Any) -> None:
    workers = [Worker(None, state=RESTARTING), Worker()]
    assert trained(workers, [[1], [2]]) == [[1], [2]]
    assert workers[1].given == [[2], [1]] and len(clock.cancelled) == 1
    assert caplog.messages == ["a Ray worker has not started; its clients 1 go to another one"]


def test_clients_that_end_every_worker_are_named(clock: Ray) -> None:
    workers = [Worker(), Worker()]

    def deadly(number: int, chunk: list[int]) -> Any:
        return Reply(dies(Worker()) if 7 in chunk else (lambda: chunk), None)

    with pytest.raises(
        WorkerError, match=r"clients 7, 8: their Ray worker died 3 times \(the node was lost\)\. One"
    ) as seen:
        list(Dispatch(Crew(workers), [[1], [7, 8]], deadly, retries=2, wait=60.0).replies())
    assert isinstance(seen.value, RayActorError)


def test_a_reply_that_was_lost_with_its_node_is_requested_again(clock: Ray) -> None:
    workers = [Worker(), Worker()]
    workers[1].script = [dies(workers[1], ObjectLostError("00", None, ""))]
    assert trained(workers, [[1], [2]]) == [[1], [2]]


def test_a_worker_that_ray_ended_for_its_memory_is_lost_like_others(clock: Ray) -> None:
    def killed() -> Any:
        raise OutOfMemoryError("Task was killed due to the node running low on memory")

    workers = [Worker(killed), Worker()]
    found = Dispatch(Crew(workers), [[1], [2]], lambda n, chunk: workers[n].train(chunk), retries=1, wait=9.0).replies()
    assert sorted(found) == [[1], [2]]
    alone = [Worker(killed, killed)]
    lost = Dispatch(Crew(alone), [[1]], lambda n, c: alone[n].train(c), retries=1, wait=9.0, work="evaluated")
    with pytest.raises(WorkerError, match=r"clients 1: their Ray worker died 2 times .* when it is evaluated: do"):
        list(lost.replies())


def test_what_a_task_raises_arrives_as_in_one_process(clock: Ray) -> None:
    def wrong() -> Any:
        raise RayTaskError("scores", "Traceback ...", ValueError("client 3 has no test"))

    workers = [Worker(wrong)]
    with pytest.raises(ValueError, match=r"^client 3 has no test$"):
        list(Dispatch(Crew(workers), [[3]], lambda n, c: workers[n].train(c), retries=1, wait=9.0).replies())
