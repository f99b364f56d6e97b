"""What breaks first in a planned round, what to change, and the plan as a table."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from undrift.planning.round_cost import MethodSize, RoundCost, RoundSize
from undrift.runs.settings.engine import count_processors
from undrift.util.system import host_memory


@dataclass(frozen=True)
class Limits:
    """Memory, disk and processors of the server's machine; the workers' machines are assumed to have the same.

    Args:
        memory: bytes.
        disk: bytes that are free.
        processors: how many; as many workers share a machine.
    """

    memory: float
    disk: float
    processors: int = 1


@dataclass(frozen=True)
class Pressure:
    """How close one part of a round is to its limit.

    Args:
        what: the part.
        share: of the limit; more than 1 does not fit. For server and network, their seconds over the workers'.
        hard: whether the run cannot continue beyond the limit; it is only slower beyond the others.
        why: the numbers, for people.
        change: what to change.
    """

    what: str
    share: float
    hard: bool
    why: str
    change: str


def this_machine() -> Limits:
    """The limits of this machine; the disk is that of the working directory."""
    return Limits(float(host_memory().total), float(shutil.disk_usage(Path.cwd()).free), count_processors())


def pressures(size: RoundSize, method: MethodSize, cost: RoundCost, limits: Limits) -> list[Pressure]:
    """All parts of a round, first those that do not fit, then those that take the most time.

    Args:
        size: the sizes of the round.
        method: what the method costs.
        cost: what the round costs.
        limits: of the machines.
    """
    here = min(size.workers, limits.processors, size.cohort)
    server, worker = cost.memory["server"], cost.memory["worker"]
    kept = cost.disk["states"] + cost.disk["checkpoints"]
    longest = max(cost.parts["workers"], 1e-9)
    most = f"the longest worker {seconds_text(longest)}"
    found = [
        Pressure(
            "memory of the server",
            server / limits.memory,
            True,
            f"{bytes_text(server)}; the machine has {bytes_text(limits.memory)}",
            "a method that sums (sums in undrift list) instead of gathering, or a smaller cohort"
            if method.gathers
            else "a machine with more memory, a smaller model, or a method with fewer sums",
        ),
        Pressure(
            "disk",
            kept / max(limits.disk, 1.0),
            True,
            f"{bytes_text(kept)}, of which {bytes_text(cost.disk['states'])} are clients' states; "
            f"{bytes_text(limits.disk)} are free",
            "a method whose clients keep no state (client 0 in undrift list), fewer registered clients, or a larger "
            "disk"
            if method.client_state
            else "set output.keep to 1, or take a larger disk",
        ),
        Pressure(
            "driver",
            cost.parts["server"] / longest,
            False,
            f"{seconds_text(cost.parts['server'])} on the server, {seconds_text(longest)} on the longest worker",
            "a tree of sums, which --fan-in plans; fewer workers, since each reply is merged by the server; fewer "
            "clients in a round; or more local steps",
        ),
    ]
    if size.engine != "local":
        found.append(
            Pressure(
                "memory of the workers",
                here * worker / limits.memory,
                True,
                f"{here} workers of {bytes_text(worker)} on a machine; it has {bytes_text(limits.memory)}",
                f"at most {int(limits.memory // max(worker, 1))} workers on a machine, or machines with more memory",
            )
        )
    if size.network is not None and size.engine != "local":
        found.append(
            Pressure(
                "network",
                cost.parts["network"] / longest,
                False,
                f"{bytes_text(cost.traffic['out'])} out and {bytes_text(cost.traffic['in'])} in take "
                f"{seconds_text(cost.parts['network'])}, {most}",
                "fewer workers with more clients each, more local steps, a smaller model, or a faster network",
            )
        )
    if method.client_state:
        found.append(
            Pressure(
                "disk speed",
                cost.parts["disk"] / longest,
                False,
                f"{bytes_text(cost.disk['round'])} in a round take {seconds_text(cost.parts['disk'])}, {most}",
                "a method whose clients keep no state, or a faster disk",
            )
        )
    return sorted(found, key=lambda x: (not (x.hard and x.share > 1), x.share <= 1, -x.share))


def verdict(found: list[Pressure]) -> str:
    """What breaks first, or takes the most time, in a line.

    Args:
        found: what `pressures` returned.
    """
    first = found[0]
    if first.share <= 1:
        return "nothing breaks: everything fits, and the workers' training takes the most time"
    kind = "breaks first" if first.hard else "takes the most time"
    return f"{kind}: {first.what}: {first.why}. Change: {first.change}"


def bytes_text(count: float) -> str:
    """Bytes for people.

    Example:
        >>> bytes_text(1.234e9), bytes_text(5e4), bytes_text(8e13)
        ('1.23 GB', '50 kB', '80 TB')
    """
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.3g} bytes"


def seconds_text(seconds: float) -> str:
    """Seconds for people.

    Example:
        >>> seconds_text(0.0123), seconds_text(45.67), seconds_text(2910), seconds_text(7200)
        ('0.0123 s', '45.7 s', '48.5 min', '2 h')
    """
    if seconds >= 3600:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 60:.3g} min" if seconds >= 120 else f"{seconds:.3g} s"


def plan_rows(size: RoundSize, method: MethodSize, cost: RoundCost) -> list[tuple[str, str, str]]:
    """The cost of a round as rows of a table: what, how much, and what it consists of.

    Args:
        size: the sizes of the round.
        method: what the method costs.
        cost: what the round costs.
    """
    parts = ", ".join(f"{name} {seconds_text(x)}" for name, x in cost.parts.items() if x)
    processor = ", ".join(f"{name} {seconds_text(x)}" for name, x in cost.processor.items())
    outward, inward = cost.traffic["out"], cost.traffic["in"]
    local = size.engine == "local"
    rows = [
        ("a round", seconds_text(cost.seconds), parts),
        ("processor time", seconds_text(sum(cost.processor.values())), processor),
        ("memory of the server", bytes_text(cost.memory["server"]), "with the worker" if local else ""),
    ]
    if not local:
        sent = f"{bytes_text(outward)} out, {bytes_text(inward)} in"
        rows.append(("memory of a worker", bytes_text(cost.memory["worker"]), f"{size.workers} workers"))
        rows.append(("traffic of the server", bytes_text(outward + inward), sent))
        if cost.traffic["between"]:
            levels = f"replies: {' -> '.join(map(str, size.levels))} at the server"
            rows.append(("traffic in the tree", bytes_text(cost.traffic["between"]), levels))
    rows.append(("traffic of the clients", bytes_text(cost.traffic["clients"]), f"{size.cohort} clients, one by one"))
    rows.append(("disk, written in a round", bytes_text(cost.disk["round"]), ""))
    states = f"states of {size.clients} clients" if method.client_state else "no states of clients"
    rows.append(("disk, in the end", bytes_text(cost.disk["states"] + cost.disk["checkpoints"]), states))
    return rows
