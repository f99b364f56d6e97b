"""Every number of the sheets for FedDC, SCAFFOLD I, FedNova, FedOpt, q-FedAvg and the loss weights, and their cost."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from support.rounds import close, part_of, path, rounds_to, watch
from undrift.algorithms import make
from undrift.blocks import LossComplement, Uniform
from undrift.blocks.aggregation.fair import Fair
from undrift.blocks.aggregation.loss import Loss
from undrift.blocks.aggregation.normalized import Reach, reach
from undrift.core.method.algorithm import Algorithm, cost
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import Layout
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Broadcast, Local, ServerState, Upload
from undrift.core.server.gate import Gate
from undrift.core.server.step import close as close_round
from undrift.core.server.step import send
from undrift.core.server.total import Total
from undrift.engine.round.simulation import Simulation
from undrift.testing import Quadratics

Q2 = Quadratics.scalar((1, 1), (0, 4), 1.0, (1, 3))
LOCAL = Local(lr=0.5, epochs=2, batch_size=3)


def evenly(name: str, **arguments: Any) -> Algorithm:
    return replace(make(name, **arguments), aggregation=Uniform())


def test_feddc_on_q2() -> None:
    first, second, third = watch(make("feddc", mu=1.0), Q2, LOCAL, 3)
    close(first.w, 2.0)
    close(torch.cat(first.client("momentum", "c")), (0.5, -1.5))
    close(part_of(first.after, "momentum").c, -0.5)
    close(second.before.params + torch.cat([second.uploads[i].delta for i in (0, 1)]), (1.75, 1.75))
    close(second.w, 2.0)
    close(third.before.params + torch.cat([third.uploads[i].delta for i in (0, 1)]), (1.875, 1.875))


def test_scaffold_one_on_q2() -> None:
    first, second = watch(make("scaffold-i"), Q2, LOCAL, 2)
    close(first.w, 1.75)
    close(torch.cat(first.client("drift", "c")), (1, -3))
    close(part_of(first.after, "drift").c, -1)
    close(1.75 + torch.cat([second.uploads[i].delta for i in (0, 1)]), (1.9375, 1.9375))
    close(second.w, 1.9375)


@pytest.mark.parametrize(
    ("name", "printed"),
    [("fedadam", "1.0986756417"), ("fedyogi", "1.0986755552"), ("fedadagrad", "1.0998667556")],
)
def test_adaptive_servers_on_q2(name: str, printed: str) -> None:
    rounds_to(path(evenly(name, lr=0.1), Q2, LOCAL, 1), printed)


def test_q_fedavg_on_q2() -> None:
    close(path(make("q-fedavg", q=0.0), Q2, LOCAL, 1), [1.75])
    close(path(make("q-fedavg", q=1.0), Q2, LOCAL, 1), [1.6], 1e-9)  # losses have 1e-10 added
    rounds_to(path(make("q-fedavg", q=2.0), Q2, LOCAL, 1), "1.4024390")
    (frame,) = watch(make("q-fedavg"), Q2, LOCAL, 1)
    result = [part_of(frame.uploads[i], "aggregation") for i in (0, 1)]
    close([x.weight for x in result], (0.5, 4.5), 1e-9)
    close([x.h / 0.5 for x in result], (3.25, 29.25), 1e-8)  # ours is the sheet's h times lr
    close([-x.weight * float(frame.uploads[i].delta) / 0.5 for i, x in enumerate(result)], (0.75, -20.25), 1e-8)


def test_reach_of_local_optimizers() -> None:
    close(reach(3, rho=0.9), 5.61)
    close(reach(2, pull=0.5), 1.5)
    close(reach(3, rho=0.9, pull=0.1), 5.23)
    for steps in (1, 4, 50):
        assert reach(steps) == steps
        close(reach(steps, rho=0.7), (steps - 0.7 * (1 - 0.7**steps) / 0.3) / 0.3)
        close(reach(steps, pull=0.2), (1 - 0.8**steps) / 0.2)


def upload(client: int, delta: float, examples: int, steps: int, part: Any) -> Upload:
    empty = torch.empty(0, dtype=torch.float64)
    moved = torch.tensor([delta], dtype=torch.float64)
    parts = {"aggregation": part}
    return Upload(client, 0, moved, examples, steps, 0.0, empty, empty.long(), parts)


def mean(algorithm: Algorithm, *uploads: Upload) -> torch.Tensor:
    total, zero, none = Total(algorithm, LOCAL, 0), torch.zeros(1).double(), torch.empty(0)
    for one in uploads:
        total.add(one)
    setting = Setting(len(uploads), LOCAL, Layout(("w",), ((1,),)))
    before = ServerState(0, zero, none, none.long(), {})
    return close_round(algorithm, before, setting, [(Broadcast(0, zero, none, none.long(), {}), total)]).params


def test_fednova_on_q2() -> None:
    # tau = (2, 1) with n = (1, 3) needs uploads by hand: here clients with more examples take more steps.
    one, three = upload(0, -0.75, 1, 2, Reach(2.0, 2.0)), upload(1, 1.5, 3, 1, Reach(1.0, 3.0))
    close(1 + mean(make("fednova"), one, three), 2.2890625)
    close(1 - 0.75 / 4 + 1.5 * 3 / 4, 1.9375)  # FedAvg
    # n = (6, 2): tau = (2, 1), p = (3/4, 1/4), so 1 + 7/4 (3/4 * -0.375 + 1/4 * 1.5)
    close(path(make("fednova"), replace(Q2, sizes=[6, 2]), Local(lr=0.5, batch_size=3), 1), [1.1640625])


def weights(rule: str, losses: tuple[float, ...]) -> list[float]:
    """What every client's displacement counts for: the mean of unit displacements, one after the other."""
    found = []
    for unit in torch.eye(len(losses)).tolist():
        uploads = [upload(i, unit[i], 1, 1, Loss(loss)) for i, loss in enumerate(losses)]
        found.append(float(mean(make("fedlw", rule=rule), *uploads)))
    return found


def test_loss_weights() -> None:
    close(weights("inverse", (1.0, 2.0, 3.0)), (6 / 11, 3 / 11, 2 / 11), 1e-8)  # losses have 1e-8 added
    rounds_to(weights("inverse", (1.0, 2.0, 3.0)), "0.545455", "0.272727", "0.181818")
    rounds_to(weights("softmax", (1.0, 2.0, 3.0)), "0.6652", "0.2447", "0.0900")
    close(weights("complement", (1.0, 2.0, 3.0)), (5 / 12, 1 / 3, 1 / 4))  # 0.416667, 0.333333, 0.25
    for rule in ("inverse", "complement"):
        close(weights(rule, (7.0, 14.0, 21.0)), weights(rule, (1.0, 2.0, 3.0)), 1e-7)
        close(weights(rule, (0.5, 4.5)), (0.9, 0.1), 1e-7)


@pytest.mark.parametrize("name", ["fedlw", "fednolowe"])
def test_loss_weights_on_q2(name: str) -> None:
    both = upload(0, -0.75, 1, 2, Loss(0.5)), upload(1, 2.25, 3, 2, Loss(4.5))
    close(1 + mean(make(name), *both), 0.55, 1e-7)
    close(mean(make(name), both[1]), 2.25)  # one client: its model
    # The losses of one full-batch step are those at w0: D = (-0.5, 1.5).
    close(path(make(name), Q2, Local(lr=0.5, batch_size=3), 1), [1 - 0.9 * 0.5 + 0.1 * 1.5], 1e-7)


def test_complement_weights_at_their_edges() -> None:
    zero = [upload(i, d, 1, 1, Loss(0.0)) for i, d in enumerate((1.0, 3.0))]
    close(mean(make("fednolowe"), *zero), 2.0)
    many = [upload(i, float(i == 0), 1, 1, Loss(float(i > 0))) for i in range(5)]
    close(mean(make("fednolowe"), *many), 1 / 4)  # the largest weight is 1 / (m - 1)


def test_losses_below_zero_are_rejected() -> None:
    simulation = Simulation(make("fednolowe"), Q2, LOCAL)
    broadcast = send(simulation.job.algorithm, simulation.start(), simulation.job.setting)
    for name, words in [("fednolowe", "LossComplement: a loss must be 0 or more, got -1.0"), ("fedlw", "-1.0")]:
        gate = Gate(make(name), LOCAL, broadcast, range(2))
        rejected = gate.admit(upload(0, 0.1, 1, 2, Loss(-1.0)), gate.total())
        assert rejected is not None and rejected.reason is Reason.WEIGHT and words in rejected.detail
    gate = Gate(make("q-fedavg"), LOCAL, broadcast, range(2))
    rejected = gate.admit(upload(0, 0.1, 1, 2, Fair(float("inf"), 1.0)), gate.total())
    assert rejected is not None and rejected.reason is Reason.FINITE


def test_a_loss_too_large_for_q_is_rejected_and_the_run_goes_on() -> None:
    steep = Quadratics.scalar((1, 1e200), (0, 4), 1.0, (1, 3))
    simulation = Simulation(make("q-fedavg", q=2.0), steep, Local(lr=0.5, batch_size=3))
    state, record = simulation.round(simulation.start(), [0, 1])
    assert [rejection.client for rejection in record.rejections] == [1] and bool(torch.isfinite(state.params))


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="ByLoss: rule must be"):
        make("fedlw", rule="rank")
    assert make("fedlw", rule="complement").aggregation == LossComplement()


@pytest.mark.parametrize(
    ("names", "client", "server", "down", "up"),
    [
        (("fednova", "q-fedavg", "fedlw", "fednolowe"), 0, 1, 1, 1),
        (("fedadam", "fedyogi", "fedadagrad"), 0, 3, 1, 1),
        (("feddc",), 2, 3, 2, 1),
        (("scaffold-i",), 1, 2, 2, 2),
        (("gradfilter-feddyn",), 1, 2, 1, 1),
        (("moon",), 1, 1, 1, 1),
    ],
)
def test_cost_table(names: tuple[str, ...], client: int, server: int, down: int, up: int) -> None:
    for name in names:
        c = cost(make(name))
        assert (c.client_state, c.server_state, c.down, c.up, c.gradients_per_step) == (client, server, down, up, 1)
        assert c.plain_sum and not c.gathers and c.stateless == (client == 0)
