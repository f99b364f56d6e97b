"""Schedules of the learning rate: values by hand and of torch, texts, run files, and what methods make of them."""

from dataclasses import replace
from math import cos, pi

import pytest
import torch
from torch import nn

from support.rounds import close, part_of, path, watch
from undrift import Local, Simulation
from undrift.algorithms import make
from undrift.blocks.aggregation.normalized import reach
from undrift.core.local.schedule import Schedule
from undrift.core.records.rejection import Reason
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.testing import Quadratics

BOWLS = Quadratics.random(clients=4, sizes=(3, 5, 2, 7))
LOCAL = Local(lr=0.05, epochs=1, batch_size=1)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("step(every=2, factor=0.1)", [1, 1, 0.1, 0.1, 0.01]),
        ("step(3)", [1, 1, 1, 0.1, 0.1]),
        ("exponential(0.5)", [1, 0.5, 0.25, 0.125, 0.0625]),
        ("warmup(4)", [0.25, 0.5, 0.75, 1, 1]),
        ("cosine(over=4)", [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, (1 - 0.5**0.5) / 2]),
        ("cosine(over=2, least=0.2)", [1, 0.6, 0.6, 0.6, 0.6]),
        ("linear(over=4)", [1, 0.75, 0.5, 0.25, 0.25]),
        ("linear(over=2, least=0.2)", [1, 0.6, 0.6, 0.6, 0.6]),
        ("warmup(2) + cosine(over=2)", [0.5, 1, 1, 0.5, 0.5]),
        ("warmup(1)+step(every=2, factor=0.5)", [1, 1, 1, 0.5, 0.5]),
    ],
)
def test_values_by_hand(text: str, values: list[float]) -> None:
    schedule = Schedule.parse(text)
    assert [schedule.factor(t) for t in range(5)] == pytest.approx(values, abs=1e-15)
    assert Schedule.parse(str(schedule)) == schedule
    local = Local(lr=0.3, schedule=text)
    assert [local.rate(t) for t in range(5)] == pytest.approx([0.3 * x for x in values])


def test_values_of_torch() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.01)
    local = Local(lr=0.1, schedule="cosine(over=20, least=0.1)")
    for t in range(20):
        assert local.rate(t) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        theirs.step()


def test_a_cosine_ends_with_the_run_or_the_visit() -> None:
    assert str(Schedule.parse("warmup(5)+cosine").ending(30)) == "warmup(n=5) + cosine(over=25)"
    assert str(Schedule.parse("cosine(over=7)").ending(30)) == "cosine(over=7)"
    local = Local(step_schedule="cosine")
    assert [local.factor(k, 3) for k in range(3)] == pytest.approx([(1 + cos(pi * k / 3)) / 2 for k in range(3)])
    assert local.factors(3) == pytest.approx(1 + 0.75 + 0.25) and local.share(3) == pytest.approx(1.625 / 4)
    assert Local().factors(3) == 3 and Local().factor(1, 3) == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosin", "schedule: no schedule is named 'cosin'; did you mean 'cosine'?"),
        ("step", "it takes every: int, factor: float = 0.1"),
        ("step(0)", "schedule: every of step must be a whole number of 1 or more, got 0"),
        ("step(2, factor=1.5)", "schedule: factor of step must be in (0, 1], got 1.5"),
        ("exponential(0.0)", "schedule: factor of exponential must be in (0, 1], got 0.0"),
        ("warmup(0)", "schedule: n of warmup must be"),
        ("cosine(over=0)", "schedule: over of cosine must be"),
        ("linear(over=0)", "schedule: over of linear must be"),
        ("cosine(least=2.0)", "schedule: least of cosine must be in [0, 1], got 2.0"),
        ("cosine + warmup(2)", "write one term, or warmup(n) and then one other, for example"),
        ("warmup(2) + warmup(3)", "write one term, or warmup(n) and then one other"),
        ("warmup(2) + step(3) + cosine", "write one term, or warmup(n) and then one other"),
        ("", "has an empty term"),
        ("", 'write names joined by +, for example "cosine"'),
        ("step(30)(2)", 'write one pair of brackets, for example "cosine"'),
    ],
)
def test_bad_texts_are_rejected(text: str, message: str) -> None:
    for key in ("schedule", "step_schedule"):
        with pytest.raises(ConfigError) as error:
            Config.build({"local": {key: text}})
        assert message in str(error.value)


def test_local_rejects_what_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"give decay or schedule, not both: set decay to 1, got 0.9"):
        Local(decay=0.9, schedule="step(3)")
    with pytest.raises(ValueError, match=r"'cosine' needs the number of rounds: cosine\(over=100\)"):
        Local(schedule="cosine")


def test_run_files_record_what_they_use() -> None:
    plain = Config()
    assert "schedule" not in plain.toml()
    config = Config.build({"rounds": 30, "local": {"schedule": "warmup(5)+cosine", "step_schedule": "cosine"}})
    assert config.local.schedule == "warmup(n=5) + cosine(over=25)" and config.local.step_schedule == "cosine"
    assert config.identity() != plain.identity()
    written = Config.build({**config.model_dump(exclude_none=True), "rounds": 50})
    assert written.identity() == config.identity(), "a resumed run keeps its schedule"
    assert written.local.rate(49) == written.local.rate(29) > 0


def test_a_schedule_over_rounds_is_a_rate_per_round() -> None:
    scheduled = replace(LOCAL, schedule="exponential(0.9)")
    close(
        path(make("scaffold"), BOWLS, scheduled, 4), path(make("scaffold"), BOWLS, replace(LOCAL, decay=0.9), 4), 1e-15
    )


def test_slopes_weigh_gradients_by_their_rates() -> None:
    """SCAFFOLD's variate of a client is the mean of the gradients on its path, weighted by the rates of its steps."""
    local = replace(LOCAL, step_schedule="warmup(2) + step(every=2, factor=0.5)")
    frame = watch(make("scaffold"), BOWLS, local, 1)[0]
    for i, (steps, found) in enumerate(zip(BOWLS.sizes, frame.client("drift", "c"), strict=True)):
        w, total, weight = frame.before.params, torch.zeros(40, dtype=torch.float64), 0.0
        for k in range(steps):
            f = [0.5, 1, 1, 1, 0.5, 0.5, 0.25][k]
            g = BOWLS.curvatures[i] @ (w - BOWLS.optima[i])
            w, total, weight = w - 0.05 * f * g, total + f * g, weight + f
        close(found, total / weight, 1e-12)


@pytest.mark.parametrize("method", ["scaffold", "feddc"])
def test_server_and_clients_agree_on_slopes_with_decay(method: str) -> None:
    local = replace(LOCAL, weight_decay=0.1, step_schedule="cosine")
    slot = "drift" if method == "scaffold" else "momentum"
    for frame in watch(make(method), BOWLS, local, 4, cohort=2):
        close(torch.stack(frame.client(slot, "c")).mean(0), part_of(frame.after, slot).c, 1e-12)


def test_one_step_loses_its_decay_exactly() -> None:
    one = Quadratics.random(clients=2, sizes=(1, 1))
    frame = watch(make("scaffold"), one, replace(LOCAL, weight_decay=0.3, step_schedule="warmup(4)"), 1)[0]
    for i, found in enumerate(frame.client("drift", "c")):
        close(found, one.curvatures[i] @ (frame.before.params - one.optima[i]), 1e-12)


def test_fednova_counts_steps_by_their_factors() -> None:
    assert reach(4, factor=lambda k: [0.5, 1, 1, 0.1][k]) == pytest.approx(2.6)
    assert reach(2, 0.5, 0.1, lambda k: [1, 0.5][k]) == pytest.approx(1 + 0.5 * (1.5 - 0.1))
    two = Quadratics.scalar((1.0, 2.0), (0.0, 3.0), 1.0, (2, 4))
    local = Local(lr=0.1, batch_size=1, step_schedule="step(every=2, factor=0.5)")
    moves = []
    for a, b, n in ((1.0, 0.0, 2), (2.0, 3.0, 4)):
        w = 1.0
        for k in range(n):
            w -= 0.1 * (1 if k < 2 else 0.5) * a * (w - b)
        moves.append(w - 1)
    reached = (2 / 6 * 2 + 4 / 6 * 3) * (2 / 6 * moves[0] / 2 + 4 / 6 * moves[1] / 3)  # factors 1, 1 and 1, 1, 1/2, 1/2
    close(path(make("fednova", rho=0.0, mu=0.0), two, local, 1), 1 + reached, 1e-12)


def test_steps_see_their_rate() -> None:
    """Ditto's own model takes the rate of the step."""
    one = Quadratics.scalar((1.0,), (0.0,), 1.0, (3,))
    local = Local(lr=0.5, batch_size=1, step_schedule="step(every=1, factor=0.5)")
    frame = watch(make("ditto", lam=0.0), one, local, 1)[0]
    close(part_of(frame.states[0][0], "personalization").v, 0.5 * 0.75 * 0.875)
    close(frame.w, 0.5 * 0.75 * 0.875)


def half_after_two(t: int) -> float:
    """A schedule of one's own."""
    return 1.0 if t < 2 else 0.5


def negative(t: int) -> float:
    return -1.0


def warming(t: int) -> float:
    """A warm-up from 0."""
    return t / 4


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedcm", "q-fedavg", "fednova"])
def test_a_rate_of_0_is_refused_before_the_first_round(method: str) -> None:
    simulation = Simulation(method, BOWLS, replace(LOCAL, schedule="test_schedule:warming"))
    with pytest.raises(ValueError, match=r"the learning rate of round 1 is 0.*a small rate such as 1e-6"):
        simulation.run(2)
    late = Simulation(method, BOWLS, replace(LOCAL, schedule="exponential(0.1)"))
    with pytest.raises(ValueError, match=r"the learning rate of round 32[0-9] is 0"):
        late.run(400)
    assert not late.history


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "q-fedavg", "fednova"])
def test_a_visit_whose_steps_all_have_the_rate_0_is_idle(method: str) -> None:
    one, some = (
        Simulation(method, BOWLS, replace(LOCAL, epochs=1, steps=steps, step_schedule="test_schedule:warming"))
        for steps in (1, 3)
    )
    _, record = one.round(one.start())
    assert not record.visits and {r.reason for r in record.rejections} == {Reason.IDLE}
    _, record = some.round(some.start())
    assert len(record.visits) == 4 and record.moved > 0


def test_a_decay_that_grows_is_refused() -> None:
    """In Python as in run files."""
    with pytest.raises(ValueError, match=r"Local: decay: input should be less than or equal to 1, got 2\.0"):
        Local(decay=2.0)


def test_the_factors_of_a_visit_are_summed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    local, built = Local(step_schedule="warmup(3) + cosine"), list[int]()
    expected = [sum(local.factor(step, 317) ** power for step in range(317)) for power in (1, 2)]
    monkeypatch.setattr(Schedule, "ending", lambda self, end: built.append(end) or self)  # type: ignore[func-returns-value]
    assert [local.factors(317), local.factors(317, 2)] == expected and local.share(317) > 0 and not built


def test_a_function_by_reference() -> None:
    schedule = Schedule.parse("warmup(2) + test_schedule:half_after_two")
    assert [schedule.factor(t) for t in range(5)] == [0.5, 1.0, 1.0, 1.0, 0.5]
    assert Schedule.parse(str(schedule)) == schedule
    assert Local(lr=2.0, schedule="test_schedule:half_after_two").rate(3) == 1.0
    with pytest.raises(ValueError, match="module 'test_schedule' has no 'half'"):
        Schedule.parse("test_schedule:half")
    with pytest.raises(ValueError, match=r"negative must return a number of 0 or more, got -1.0 at 0"):
        Schedule.parse("test_schedule:negative").factor(0)
    with pytest.raises(ValueError, match="must be a function of the round or step"):
        Schedule.parse("math:pi")
