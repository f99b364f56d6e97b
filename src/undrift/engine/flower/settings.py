"""Which settings of a Flower strategy can work."""

from undrift.core.algorithm import Algorithm
from undrift.core.types import Local


def check_settings(
    algorithm: Algorithm,
    local: Local,
    population: int,
    cohort: int | None,
    seed: int,
    quorum: float,
    over_selection: float,
    rejoin: float,
) -> None:
    """Raise if settings of `UndriftStrategy`, whose arguments these are, cannot work."""
    if population < 1:
        raise ValueError(f"population must be 1 or more, the number of all clients, got {population}")
    if cohort is not None and not 1 <= cohort <= population:
        raise ValueError(
            f"cohort must be between 1 and the population of {population}, got {cohort}; None takes all clients"
        )
    if not 0 <= quorum <= 1:
        raise ValueError(f"quorum must be a fraction of the sampled clients from 0 to 1, got {quorum}")
    if not 1 <= over_selection < float("inf"):
        raise ValueError(f"over_selection must be 1 or more, got {over_selection}")
    if not 0 <= rejoin < float("inf"):
        raise ValueError(f"rejoin must be a number of seconds, 0 or more, got {rejoin}")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed must fit into 64 bits, got {seed}")
    local.check_population(population)
    if algorithm.needs.proxy:
        raise TypeError(
            f"aggregation={type(algorithm.aggregation).__name__} needs proxy data at the server, and "
            f"a Flower strategy has none: use undrift.Simulation, or another aggregation"
        )
    if algorithm.fills("selection"):
        raise TypeError(
            f"selection={algorithm.selection!r} evaluates candidates before a round, which a Flower strategy on "
            f"real nodes does not support: leave it out here, or use undrift.Simulation, on any backend"
        )


def check_limits(
    bound: float | None,
    deadline: float | None,
    grace: float | None,
    nodes: int | None,
    wait: float,
    poll: float,
    patience: int,
) -> None:
    """Raise if limits of `UndriftStrategy`, whose arguments these are, cannot be met by any round."""
    if bound is not None and not bound > 0:
        raise ValueError(f"bound must be a positive norm, got {bound}; None allows any")
    if deadline is not None and not 0 < deadline < float("inf"):
        raise ValueError(
            f"deadline must be a positive number of seconds, got {deadline}; None takes the timeout of start"
        )
    if grace is not None and not grace >= 0:
        raise ValueError(f"grace must be 0 or more seconds, got {grace}; None waits until the deadline")
    if nodes is not None and nodes < 1:
        raise ValueError(f"nodes must be 1 or more, got {nodes}; None waits until every client has a node")
    if not wait >= 0:
        raise ValueError(f"wait must be 0 or more seconds, got {wait}")
    if not 0 < poll < float("inf"):
        raise ValueError(f"poll must be a positive number of seconds, got {poll}")
    if patience < 1:
        raise ValueError(f"patience must be 1 or more rounds, got {patience}")
