"""The expected cost of visits, and chunks of equal cost."""

import pytest

from undrift.engine.ray_backend.balance import VisitCost, balance
from undrift.engine.worker.partial_sum import Visit


@pytest.mark.quick
def test_expected_seconds_by_hand() -> None:
    cost = VisitCost()
    assert cost.estimate(0, 9) == 10.0  # nothing is measured yet: examples and one
    cost.note([Visit(0, 10, 0.0, 2.0), Visit(1, 30, 0.0, 4.0)])
    assert cost.estimate(0, 10) == 2.0
    assert cost.estimate(7, 20) == pytest.approx(3.0)  # on the line: 1 s, and 0.1 s for each example
    cost.note([Visit(0, 10, 0.0, 4.0)])
    assert cost.estimate(0, 10) == 3.0


def test_a_line_never_falls_below_zero() -> None:
    equal, falling, steep = VisitCost(), VisitCost(), VisitCost()
    equal.note([Visit(0, 5, 0.0, 1.0), Visit(1, 5, 0.0, 3.0)])
    falling.note([Visit(0, 5, 0.0, 3.0), Visit(1, 10, 0.0, 1.0)])
    assert equal.estimate(9, 50) == falling.estimate(9, 50) == 2.0
    steep.note([Visit(0, 10, 0.0, 1.0), Visit(1, 20, 0.0, 4.0)])
    assert steep.estimate(9, 0) == 0.0 and steep.estimate(9, 10) == pytest.approx(1.8)


def test_chunks_have_equal_cost_and_everybody_once() -> None:
    costs = {client: float(client % 7 + 1) for client in range(40)}
    chunks = balance(costs, 4)
    assert sorted(client for chunk in chunks for client in chunk) == sorted(costs)
    loads = [sum(costs[client] for client in chunk) for chunk in chunks]
    assert max(loads) - min(loads) <= 7
    assert balance({3: 1.0}, 4) == [[3]]


def test_a_chunk_has_at_most_as_many_clients_as_asked() -> None:
    costs = {0: 100.0, **dict.fromkeys(range(1, 12), 1.0)}
    for count, most in ((4, 3), (6, 2), (12, 1), (3, 4), (3, 5)):
        chunks = balance(costs, count, most)
        assert max(map(len, chunks)) <= most and sorted(client for chunk in chunks for client in chunk) == list(
            range(12)
        )
