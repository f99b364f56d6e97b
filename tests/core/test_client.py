"""The rulings of the local loop: decay, clipping, running statistics, errors, private parts."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from support.rounds import part_of
from undrift import Algorithm, Local, Simulation, TensorTask
from undrift.algorithms import make
from undrift.blocks import SAM, FedDyn, Filters, Private, Scaffold, Uniform, high_pass
from undrift.core.client.visit import ClientError
from undrift.core.method.block import Correction
from undrift.testing import Clinic, Quadratics
from undrift.testing.rounds import states_of

ONE = Quadratics.scalar([1.0, 3.0], [0.0, 4.0], start=1.0, sizes=[1, 1])


def test_weight_decay_is_never_filtered_perturbed_or_clipped() -> None:
    """With everything else filtered or clipped away, w shrinks by exactly 1 - lr * wd a step."""
    task = Quadratics.random(clients=2)
    local = Local(lr=0.1, weight_decay=0.5, clip=1e-300, epochs=3)
    state = Simulation(make("fedfft", rho=0.3), task, local).run(2)
    expected = torch.cat([x.reshape(-1) for x in task.start.values()]) * (1 - 0.1 * 0.5) ** 6
    torch.testing.assert_close(state.params, expected, rtol=1e-12, atol=0)


def test_clipping_acts_on_the_data_gradient_after_the_filter_and_before_corrections() -> None:
    task = Quadratics.random(clients=2)
    algorithm = Algorithm(spectral=Filters(gradient=high_pass(0.2)), aggregation=Uniform())
    free = Simulation(algorithm, task, Local(lr=0.1)).round
    start = Simulation(algorithm, task).start()
    moved = (free(start, [0])[0].params - start.params).norm()
    clip = float(moved) / 0.1 / 2  # half the norm of the filtered gradient
    clipped = Simulation(algorithm, task, Local(lr=0.1, clip=clip)).round(start, [0])[0].params - start.params
    assert float(clipped.norm()) == pytest.approx(float(moved) / 2, rel=1e-12)
    dual = replace(algorithm, drift=FedDyn(0.1))
    simulation = Simulation(dual, task, Local(lr=0.1, clip=clip))
    state = simulation.run(1, simulation.start())
    kept = part_of(states_of(simulation)[0][0], "drift").h  # -mu * delta: the correction itself is not clipped
    again = simulation.round(state, [0])[0]
    assert float(kept.norm()) > 0 and torch.isfinite(again.params).all()


def test_sam_step_equals_an_established_optimizer() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(32, 8, dtype=torch.float64), torch.randint(0, 3, (32,))

    from pytorch_optimizer import SAM as ReferenceSAM  # slow to import

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).double()

    task = TensorTask(build, x, y, [torch.arange(32)])
    local = Local(lr=0.1, epochs=3, batch_size=32)
    ours = Simulation(make("fedsam", rho=0.05), task, local).run(2).params
    model = task.model()
    reference = ReferenceSAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1)
    for _ in range(6):
        nn.functional.cross_entropy(model(x), y).backward()
        reference.first_step(zero_grad=True)
        nn.functional.cross_entropy(model(x), y).backward()
        reference.second_step(zero_grad=True)
    theirs = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8)  # the library's norm is in single precision


def test_running_statistics_move_once_a_step_and_are_averaged() -> None:
    local = Local(lr=1e-12, epochs=1, batch_size=4)
    plain = Simulation(make("uniform"), Clinic(dtype=torch.float64), local).run(1)
    sharp = Simulation(make("fedsam", rho=0.5), Clinic(dtype=torch.float64), local).run(1)
    assert torch.equal(plain.counts, sharp.counts) and plain.counts.tolist() == [3]  # client 4: 12 examples
    torch.testing.assert_close(plain.buffers, sharp.buffers, rtol=1e-9, atol=1e-12)


def test_kept_running_statistics_stay_with_the_client() -> None:
    local = Local(lr=0.05, epochs=1, batch_size=4, buffers="keep")
    simulation = Simulation(make("fedavg"), Clinic(), local)
    start = simulation.start()
    state = simulation.run(2)
    assert torch.equal(state.buffers, start.buffers) and not torch.equal(state.params, start.params)
    kept = [states_of(simulation)[client][1].buffers for client in (3, 4)]
    assert not torch.equal(kept[0], kept[1]) and state.accepted[3] == 1  # type: ignore[arg-type]


@pytest.mark.quick
def test_an_error_names_round_client_step_and_block() -> None:
    @dataclass(frozen=True)
    class Broken(Correction):
        """Fails in the third step."""

        def adjust(self, grad: Any, state: Any, step: Any) -> Any:
            return grad[:-1] if step.step < 2 else grad.add_(step.w[:-1])

    with pytest.raises(ClientError, match=r"round 1, client 0, step 0: output with shape"):
        Simulation(Algorithm(drift=Broken()), ONE, Local(epochs=4)).run(1)

    @dataclass(frozen=True)
    class Later(Broken):
        """Fails in the third step, inside the block."""

        def adjust(self, grad: Any, state: Any, step: Any) -> Any:
            if step.step == 2:
                raise ValueError("expected a vector of length 1, got 0")
            return grad

    with pytest.raises(
        ClientError, match=r"round 1, client 0, step 2, drift=Later.adjust: expected a vector of length 1, got 0"
    ):
        Simulation(Algorithm(drift=Later()), ONE, Local(epochs=4)).run(1)


def test_a_task_with_too_few_batches_is_noticed() -> None:
    class Short(Quadratics):
        """Gives no batch at all."""

        def batches(self, client: Any, size: Any, generator: Any) -> Any:
            yield from ()

    short = Short(ONE.curvatures, ONE.optima, ONE.start, ONE.sizes)
    with pytest.raises(ClientError, match="expected 1 batches for 1 examples, got 0"):
        Simulation(make("fedavg"), short).run(1)


@pytest.mark.parametrize("drift", [Correction(), Scaffold(), FedDyn(0.1)], ids=str)
def test_the_private_part_follows_its_own_gradient_alone(drift: Correction) -> None:
    """All private: every correction is off, so each client trains by itself, whatever the drift block."""
    alone = Simulation(Algorithm(drift=drift, personalization=Private(("*",))), ONE, Local(lr=0.1, epochs=2))
    state = alone.run(3)
    assert state.params.tolist() == [1.0]
    values = [float(part_of(states_of(alone)[client][2], "personalization").values) for client in (0, 1)]
    assert values == pytest.approx([0.9**6, 4 - 3 * 0.7**6], rel=1e-12)


def test_an_unknown_private_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="no tensor is named 'classifier'; the model has w"):
        Simulation(Algorithm(personalization=Private(("classifier",))), ONE).run(1)


def test_sam_with_a_private_head_is_filtered_on_the_body_only() -> None:
    filtered = Algorithm(SAM(0.1), Filters(high_pass(0.3)), personalization=Private(("head.*",)))
    everything = replace(filtered, personalization=Private(("*",)))
    unfiltered = replace(everything, spectral=Filters())
    runs = [Simulation(a, Clinic(), Local(batch_size=4), cohort=4) for a in (everything, unfiltered)]
    for run in runs:
        run.run(3)
    for client, held in states_of(runs[0]).items():
        for round, kept in held.items():
            other = states_of(runs[1])[client][round]
            assert torch.equal(part_of(kept, "personalization").values, part_of(other, "personalization").values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.0}, "Local: lr: input should be greater than 0"),
        ({"lr": float("nan")}, "Local: lr: input should be"),
        ({"epochs": 0}, "Local: epochs"),
        ({"clip": -1.0}, "Local: clip"),
        ({"weight_decay": -1.0}, "Local: weight_decay: input should be greater than or equal to 0"),
        ({"buffers": "drop"}, "Local: buffers: input should be 'average' or 'keep', got 'drop'"),
    ],
)
def test_bad_settings_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Local(**arguments)


def test_a_preset_is_a_local_with_other_values() -> None:
    assert Local.preset("papers", lr=0.05, clip=None) == Local(0.05, 0.998, 1e-3, None, 5, 50)
    with pytest.raises(ValueError, match="no preset is named 'paper'; did you mean 'papers'"):
        Local.preset("paper")


def test_a_batch_of_one_example_advises_drop_last() -> None:
    data = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 2
    task = TensorTask(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), *data, [range(5), range(5, 9)])
    _, record = next(Simulation("fedavg", task, Local(batch_size=4)).rounds(1))
    (rejection,) = record.rejections
    assert rejection.client == 0 and "Expected more than 1 value per channel" in rejection.detail
    assert "Local(drop_last=True) or local.drop_last = true" in rejection.detail
    _, record = next(Simulation("fedavg", task, Local(batch_size=4, drop_last=True)).rounds(1))
    assert not record.rejections
