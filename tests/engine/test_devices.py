"""Devices from files: speeds and times at which clients are there, and what runs by them may never do."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
import torch

from undrift.core.local.devices import COLUMNS, file_digests, read_devices
from undrift.core.local.presence import Intervals, Presence, PresentNow
from undrift.core.records.types import Local
from undrift.core.server.wire import fingerprint
from undrift.core.tasks.durations import SECOND, Clock, DeviceFiles, portable_durations, read_durations
from undrift.engine.round.record import Record
from undrift.engine.round.scheduler import StepPlan
from undrift.engine.round.simulation import Simulation
from undrift.runs import replay, start
from undrift.runs.folder.provenance import find_references
from undrift.runs.settings.config import Config
from undrift.testing.projected import blobs
from undrift.testing.rounds import LOCAL

Row = tuple[float, float, Sequence[tuple[float, float]], float]
"""Seconds of an example and of a message, intervals and their period."""


def write(path: Path, rows: Sequence[Row], factor: int = 1) -> str:
    """The text of durations from a file with these rows."""
    lines = [",".join(COLUMNS)]
    for client, (example, message, intervals, period) in enumerate(rows):
        pairs = " ".join(f"{begin * factor}-{end * factor}" for begin, end in intervals)
        lines.append(f"{client},{example * factor},{message * factor},{pairs},{period * factor or ''}")
    path.write_text("\n".join(lines) + "\n")
    return f"devices({str(path)!r})"


def draw_rows(seed: int, count: int) -> list[Row]:
    """Random devices; the first never leaves."""
    random = Random(seed)
    rows: list[Row] = [(1, 1, (), 0)]
    for _ in range(count - 1):
        times = sorted(random.sample(range(60), 4))
        pairs = [(times[0], times[1]), (times[2], times[3])]
        rows.append((random.randint(1, 3) / 4, random.randint(1, 6) / 2, pairs, 64))
    return rows


def run(text: str, schedule: str = "buffered(2)", steps: int = 12, clients: int = 6, **others: object) -> list[Record]:
    """The records of a small run."""
    task = blobs(range(3, 3 + clients))
    given = {"cohort": 3, "seed": 5, "durations": text, **others}
    simulation = Simulation(f"scaffold + {schedule}" if schedule else "scaffold", task, LOCAL, **given)  # type: ignore[arg-type]
    return [record for _, record in simulation.rounds(steps)]


def plans(records: Sequence[Record]) -> list[StepPlan]:
    """What happened up to each step."""
    return [record.plan for record in records if record.plan is not None]


def test_a_small_trace_by_hand(tmp_path: Path) -> None:
    """Two clients of which one trains: client 1 is there from 4 to 6 s of every 10 and needs 3 s, so never ends."""
    one = LOCAL.step_count(3, 0, 0, 5) and sum(LOCAL.batch_sizes(3, LOCAL.step_count(3, 0, 0, 5)))
    four = sum(LOCAL.batch_sizes(4, LOCAL.step_count(4, 1, 0, 5)))
    text = write(tmp_path / "x.csv", [(0, 1, [(0, 5), (7, 20)], 20), (1 / four, 1, [(4, 6)], 10)])
    assert one and Clock(text, 5, blobs([3, 4]), LOCAL).nanoseconds(0, 1, 0) == 3 * SECOND
    found = plans(run(text, "asynchronous", 4, clients=2, cohort=2))
    # Client 0 begins at 0 and 2, leaves at 5 during its third task and joins at 7; client 1 joins at 4, leaves at 6.
    assert [[(task.client, task.begun // SECOND, task.end // SECOND) for task in plan.arrived] for plan in found] == [
        [(0, 0, 2)],
        [(0, 2, 4)],
        [(0, 7, 9)],
        [(0, 9, 11)],
    ]
    dropped = [[(task.client, task.begun // SECOND, task.end // SECOND) for task in plan.dropped] for plan in found]
    assert dropped == [[], [], [(0, 4, 5), (1, 4, 6)], []]
    assert [plan.time // SECOND for plan in found] == [2, 4, 9, 11]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("schedule", ["buffered(2)", "asynchronous", "buffered(3, restart='flush')", ""])
@pytest.mark.parametrize("seed", range(3))
def test_no_task_is_outside_its_clients_time_and_each_ends_once(tmp_path: Path, schedule: str, seed: int) -> None:
    rows = draw_rows(seed, 6)
    records = run(write(tmp_path / "x.csv", rows), schedule, 25)
    ended = [task for plan in plans(records) for task in (*plan.arrived, *plan.stale, *plan.dropped)]
    assert len({task.number for task in ended}) == len(ended) and any(plan.dropped for plan in plans(records))
    for plan in plans(records):
        for task, ends in [(x, True) for x in plan.arrived] + [(x, False) for x in plan.dropped]:
            _, _, pairs, period = rows[task.client]
            begun, end = (Fraction(x, SECOND) for x in (task.begun, task.end))
            turn = begun // Fraction(period or 1) * Fraction(period)
            inside = [y for x, y in pairs if x <= begun - turn < y]
            assert not pairs or inside, "it begins while its client is there"
            assert not pairs or (end - turn <= inside[0] if ends else end - turn == inside[0])
        assert all(a.end <= plan.time for a in (*plan.arrived, *plan.dropped))
    for record in records:
        left = {client for client, why in record.absent if "left before" in why}
        assert record.plan is not None and left == {task.client for task in record.plan.dropped}
    if "flush" not in schedule and schedule:
        assert {len(record.visits) for record in records} == {2 if "2" in schedule else 1}


def test_scaled_devices_give_the_same_run(tmp_path: Path) -> None:
    rows, found = draw_rows(1, 6), []
    for factor in (1, 1000):
        text = write(tmp_path / f"{factor}.csv", rows, factor)
        simulation = Simulation("scaffold + buffered(2)", blobs(range(3, 9)), LOCAL, cohort=3, durations=text)
        found.append(simulation.run(10))
    first, second = found
    assert torch.equal(first.params, second.params) and first.flight is not None and second.flight is not None
    assert second.flight.time == 1000 * first.flight.time
    assert fingerprint(replace(first, flight=None)) == fingerprint(replace(second, flight=None))


def test_a_run_resumes_from_any_step_with_clients_that_will_leave(tmp_path: Path) -> None:
    text, state = write(tmp_path / "x.csv", draw_rows(2, 6)), None

    def simulation() -> Simulation:
        return Simulation("fedavg + buffered(2)", blobs(range(3, 9)), LOCAL, cohort=3, durations=text)

    whole = [state for state, _ in simulation().rounds(10)]
    for expected in whole:
        state, _ = next(iter(simulation().rounds(1, state)))
        assert fingerprint(state) == fingerprint(expected)


def test_weights_and_other_availability_hold_besides(tmp_path: Path) -> None:
    text, away = write(tmp_path / "x.csv", draw_rows(0, 6)), {"1": [[100, 200]]}
    for others in ({"sampling": [1.0, 0, 1, 1, 1, 1]}, {"availability": away}):
        for schedule in ("buffered(2)", ""):
            begun = [task.client for plan in plans(run(text, schedule, 15, **others)) for task in plan.arrived]
            assert 1 not in begun and {0, 2, 3} <= set(begun)


def test_nobody_is_there_any_more(tmp_path: Path) -> None:
    records = run(write(tmp_path / "x.csv", [(0, 0.5, [(3, 5)], 0)] * 6), "buffered(3)", 4)
    assert [len(record.visits) for record in records] == [3, 3, 0, 0]
    assert [plan.time // SECOND for plan in plans(records)] == [4, 5, 5, 5]


def test_a_run_of_devices_is_pinned_recorded_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "phones.csv"
    text = write(path, draw_rows(3, 8))
    whole = start(
        task="undrift.testing.projected:blobs",
        folder=tmp_path / "run",
        method="fedbuff(2)",
        rounds=8,
        cohort=3,
        durations=text,
    )
    config = Config.read(tmp_path / "run")
    assert config.durations == f"devices(file={str(path)!r}, sha256={file_digests(str(path), None)!r})"
    assert ("durations", str(path), "file") in [(x.setting, x.text, x.kind) for x in find_references(config)]
    trace = (tmp_path / "run" / "arrivals.jsonl").read_text()
    assert '"dropped"' in trace and replay(tmp_path / "run").sha256 == whole.sha256
    path.write_text(path.read_text().replace("0,1,1", "0,1,2"))
    with pytest.raises(ValueError, match="has changed since the run began"):
        Clock(str(config.durations), 0, blobs([3]), LOCAL)


CAPACITY = {7: {"computation": 20.0, "communication": 1024.0}, 9: {"computation": 5, "communication": 512.0}}
BEHAVIOR = {
    1: {"duration": 3, "active": [0, 50], "inactive": [10, 90], "finish_time": 80, "model": "a phone"},
    2: {"duration": 0, "active": [30], "inactive": [20], "finish_time": 80, "model": "another"},
    3: {"duration": 80, "active": [0], "inactive": [80], "finish_time": 80, "model": "a third"},
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_files_of_fedscale(tmp_path: Path, protocol: int) -> None:
    for name, content in (("capacity", CAPACITY), ("behavior", BEHAVIOR)):
        (tmp_path / name).write_bytes(pickle.dumps(content, protocol))
    text = f"devices({str(tmp_path / 'capacity')!r}, {str(tmp_path / 'behavior')!r})"
    found = read_durations(text).read()
    assert list(found.example) == [60_000_000, 15_000_000]  # three times as long as inference
    assert found.nanoseconds(2, 10, 128 * 1024) == 10 * 60_000_000 + 2 * SECOND  # 1024 kbit at 1024 kbit/s
    assert found.nanoseconds(1, 0, 128 * 1024) == 4 * SECOND
    seconds = [[(begin // SECOND, end // SECOND) for begin, end in pairs] for _, pairs in found.intervals]
    assert seconds == [[(0, 10), (50, 80)], [], [(0, 80)]] and {period for period, _ in found.intervals} == {
        80 * SECOND
    }
    clock = Clock(text, 0, blobs([3, 4, 5, 6]), Local())
    size = sum(x.nbytes for x in clock.task.model().parameters())
    assert clock.nanoseconds(0, 0, 0) == 3 * 60_000_000 + 2 * round(size * 8 / 1024 / 1024 * SECOND)
    assert clock.presence is not None
    leaves = [clock.presence.leave(client, 60 * SECOND) for client in range(4)]
    assert leaves == [90 * SECOND, 60 * SECOND, None, 90 * SECOND]
    assert PresentNow(clock.presence, 20 * SECOND).clients() == [2]


class Trap:
    """Would run code when it is read."""

    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("1 / 0",)


def test_a_pickle_with_anything_else_is_refused(tmp_path: Path) -> None:
    for content in (Trap(), {1: Trap()}, {1: {"computation": Fraction(1), "communication": 1.0}}):
        for protocol in (2, 5):
            (tmp_path / "x").write_bytes(pickle.dumps(content, protocol))
            with pytest.raises(ValueError, match="it has more than dictionaries, lists, numbers and texts"):
                read_devices(str(tmp_path / "x"))


HEAD = ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "write a CSV file with the columns"),
        (HEAD, "number the clients from 0 on"),
        ("client,speed\n0,1\n", "write a CSV file with the columns"),
        (HEAD + "0,1,1\n", "line 2: write a CSV file with the columns"),
        (HEAD + "1,1,1,,\n", "number the clients from 0 on, without a gap; got 1 rows"),
        (HEAD + "0,1,1,,\n0,1,1,,\n", "line 3: client 0 is named twice"),
        (HEAD + "0,fast,1,,\n", "line 2: seconds must be a number from 0 to 1e.09, got 'fast'"),
        (HEAD + "0,1,nan,,\n", "seconds must be a number"),
        (HEAD + "0,1,1e999999999999,,\n", "seconds must be a number"),
        (HEAD + "one,1,1,,\n", "line 2: a client is a number from 0 on, got 'one'"),
        (HEAD + "0,1,-1,,\n", "seconds must be a number"),
        (HEAD + "0,1,1,day,\n", "available: write intervals in seconds"),
        (HEAD + "0,1,1,5-3,\n", "available: 5-3 must go from a time to a later one"),
        (HEAD + "0,1,1,0-9,8\n", "0-9 must go from a time to a later one and end within the period"),
        (b"\x80\x05\x95", "is not a file of FedScale's"),
        (b"\xff\xfe", "is not CSV"),
        (pickle.dumps([1]), "a dictionary of dictionaries"),
        (pickle.dumps({1: {"computation": 1.0}}), "entry 1 must have 'communication'"),
        (pickle.dumps({1: {"computation": 1.0, "communication": 0}}), "communication must be above 0"),
        (None, "cannot be read: No such file"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=message):
        read_devices(str(path))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"active": [0], "inactive": [1], "finish_time": 0}, "a positive finish_time, and lists of one length"),
        ({"active": [0], "inactive": [], "finish_time": 9}, "lists of one length"),
        ({"active": 3, "inactive": [1], "finish_time": 9}, "must have 'active', a list of seconds, got 3"),
        ({"active": ["x"], "inactive": [1], "finish_time": 9}, "must have 'active', a number of 0 or more"),
    ],
)
def test_behavior_that_cannot_be_used(tmp_path: Path, entry: dict[str, object], message: str) -> None:
    (tmp_path / "capacity").write_bytes(pickle.dumps(CAPACITY))
    (tmp_path / "behavior").write_bytes(pickle.dumps({0: entry}))
    with pytest.raises(ValueError, match=message):
        read_devices(str(tmp_path / "capacity"), str(tmp_path / "behavior"))


def test_texts_of_devices(tmp_path: Path) -> None:
    text = write(tmp_path / "x.csv", [(1, 1, (), 0)])
    pinned = portable_durations(text)
    assert read_durations(pinned) == DeviceFiles(
        str(tmp_path / "x.csv"), None, file_digests(str(tmp_path / "x.csv"), None)
    )
    assert portable_durations(pinned) == pinned and str(read_durations(pinned)) == pinned
    assert read_durations(text).pinned().paths == [str(tmp_path / "x.csv")]
    clock = Clock(text, 0, blobs([3, 4]), LOCAL)
    assert clock.presence is None and clock.nanoseconds(0, 1, 0) == clock.nanoseconds(0, 0, 0) + SECOND * _more()


def _more() -> int:
    """How many examples more than a client with three one with four trains on."""
    return sum(sign * sum(LOCAL.batch_sizes(n, LOCAL.step_count(n, 0, 0, 0))) for sign, n in ((1, 4), (-1, 3)))


def test_presence_equals_a_search_second_by_second() -> None:
    random = Random(0)
    for _ in range(30):
        devices: list[Intervals] = [None]
        for _ in range(4):
            period = random.choice((0, 12))
            times = sorted(random.choices(range(13), k=6))
            devices.append((period, [(a, b) for a, b in zip(times[::2], times[1::2], strict=True) if a < b]))
        presence = Presence(devices, 7)

        def there(client: int, time: int, devices: list[Intervals] = devices) -> bool:
            own = devices[client % len(devices)]
            return own is None or any(a <= (time % own[0] if own[0] else time) < b for a, b in own[1])

        for time in range(30):
            clients = [client for client in range(7) if there(client, time)]
            moment = PresentNow(presence, time)
            assert moment.clients() == clients == [client for client in range(7) if client in moment]
            for client in range(7):
                stays = next((t for t in range(time, time + 40) if not there(client, t)), None)
                assert presence.leave(client, time) == stays
            join = presence.next_join(time)
            new = [t for t in range(time + 1, time + 40) if any(there(c, t) > there(c, t - 1) for c in range(7))]
            assert (join is None and not new) or (join is not None and (not new or join <= new[0]))
            assert presence.opening(time) == time  # the first device never leaves
    late = Presence([(0, [(5, 6)])], 1)
    assert [late.opening(time) for time in (0, 5, 6)] == [5, 5, 6] and late.count == 1
