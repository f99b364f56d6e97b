"""A simulation in Python: methods from text, evaluation, history and one-line texts."""

import pytest
import torch
from torch import nn

from undrift import Local, ServerState, Simulation, TensorTask, make
from undrift.core.server.wire import fingerprint
from undrift.data.tasks.evaluate import Evaluation
from undrift.testing import blobs


def test_a_method_is_taken_as_text() -> None:
    text, made = (Simulation(method, blobs()) for method in ("scaffold + sam(0.05)", make("scaffold + sam(0.05)")))
    assert text.algorithm == made.algorithm == text.job.algorithm
    assert fingerprint(text.run(2)) == fingerprint(made.run(2))
    with pytest.raises(ValueError, match="no algorithm is named 'fedavgg'; did you mean 'fedavg'"):
        Simulation("fedavgg", blobs())


def test_make_takes_compositions() -> None:
    assert make("fedsam", rho=0.05) == make("fedsam(0.05)")
    assert make("fedsam + fsa(larger=0.9)", preset="fedfsa").perturbation.rho == 0.1  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="a composition includes them; write method ="):
        make("scaffold + sam", rho=0.1)


def accuracy(model: nn.Module) -> float:
    task = blobs()
    assert not model.training
    return float((model(task.inputs).argmax(1) == task.targets).double().mean())


@pytest.mark.quick
def test_evaluation_becomes_columns_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    plain, seen = Simulation("scaffold", blobs()), Simulation("scaffold", blobs())
    state = seen.run(5, progress=True, evaluate=accuracy, every=2)
    assert isinstance(state, ServerState) and fingerprint(state) == fingerprint(plain.run(5))
    assert [x is not None for x in seen.history["accuracy"]] == [False, True, False, True, True]
    assert seen.history["round"] == [1, 2, 3, 4, 5] and seen.history["train_loss"] == plain.history["train_loss"]
    assert seen.history[-1]["accuracy"] == accuracy(seen.module(state))
    assert capsys.readouterr().err.splitlines()[-1].startswith("5 of 5 rounds done  train_loss ")


def test_a_mapping_gives_several_columns() -> None:
    simulation = Simulation("fedavg", blobs())
    simulation.run(1, evaluate=lambda _: {"a": torch.tensor(1.0), "b": 2})
    simulation.run(1, simulation.run(1, evaluate=lambda _: 3), evaluate=lambda _: 4)
    assert simulation.history["score"] == [3.0, 4.0] and "a" not in simulation.history.columns


def test_history_continues_from_a_state() -> None:
    simulation = Simulation("fedavg", blobs())
    state = simulation.run(2)
    simulation.run(2, state)
    assert simulation.history["round"] == [1, 2, 3, 4]
    simulation.run(1, state)
    assert simulation.history["round"] == [1, 2, 3]
    simulation.run(1)
    assert simulation.history["round"] == [1]


def test_a_task_s_own_test() -> None:
    with pytest.raises(ValueError, match="the task has no held-out data; give it test="):
        Simulation("fedavg", blobs()).run(1, evaluate=1)
    with pytest.raises(ValueError, match="must be 1 or more, got 0"):
        Simulation("fedavg", blobs()).run(1, evaluate=accuracy, every=0)

    class Tested:
        def __init__(self) -> None:
            self.task = blobs()

        def __getattr__(self, name: str) -> object:
            return getattr(self.task, name)

        def evaluate(self, model: nn.Module) -> dict[str, float]:
            return {"accuracy": accuracy(model)}

    simulation = Simulation("fedavg", Tested())  # type: ignore[arg-type]
    simulation.run(3, evaluate=2)
    assert [x is not None for x in simulation.history["accuracy"]] == [False, True, True]


def test_everything_has_a_text_of_one_line() -> None:
    simulation = Simulation("scaffold", blobs(), Local(lr=0.05))
    state, record = next(simulation.rounds(1))
    assert repr(simulation.task) == "TensorTask(_project, 23 examples of shape (5,), 4 clients)"
    assert repr(state) == "ServerState(1 rounds done, 79 parameters, drift)"
    assert repr(Local(lr=0.05, epochs=3)) == "Local(lr=0.05, epochs=3)" and repr(Local()) == "Local(lr=0.1)"
    assert repr(record).startswith("Record(round 1: 4 clients, loss 1.")
    assert repr(simulation) == (
        "Simulation(Algorithm(drift=Scaffold(), aggregation=Uniform()), "
        "TensorTask(_project, 23 examples of shape (5,), 4 clients), Local(lr=0.05), 1 rounds done)"
    )


def test_an_algorithm_in_a_notebook() -> None:
    shown = make("scaffold + sam(0.05)")._repr_html_()
    assert "<table" in shown and "SAM(rho=0.05" in shown and "2 gradients per step" in shown
    assert "as in FedAvg" in make("fedavg")._repr_html_()


def test_an_accuracy_and_a_loss_are_two_columns() -> None:
    simulation = Simulation("fedavg", blobs())
    simulation.run(1, evaluate=lambda _: Evaluation(0.5, 2.0, 10))
    assert simulation.history[0]["accuracy"] == 0.5 and simulation.history[0]["test_loss"] == 2.0


def test_rounds_and_seeds_below_zero_are_refused() -> None:
    simulation = Simulation("fedavg", blobs())
    assert simulation.run(0).round == 0
    for call in (lambda: simulation.run(-1), lambda: next(simulation.rounds(-1))):
        with pytest.raises(ValueError, match="rounds must be 0 or more, the rounds to add, got -1"):
            call()
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        Simulation("fedavg", blobs(), seed=-1)


def test_arguments_in_wrong_places_are_refused_by_name() -> None:
    with pytest.raises(
        TypeError, match=r"Simulation: task must be a TensorTask, .*, got Local, which has no population"
    ):
        Simulation("fedavg", Local(), blobs())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Simulation: task must be .*, got the class TensorTask"):
        Simulation("fedavg", TensorTask)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Simulation: local must be the settings of local training, .*, got float"):
        Simulation("fedavg", blobs(), 0.1)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r'Simulation: algorithm must be a method, make\("scaffold"\), .*, got TensorTask'
    ):
        Simulation(blobs(), "fedavg")  # type: ignore[arg-type]


@pytest.mark.parametrize("client", [99, -1])
def test_a_client_that_there_is_not_is_named(client: int) -> None:
    simulation = Simulation("ditto", blobs())
    count = simulation.task.population
    with pytest.raises(
        ValueError, match=f"there is no client {client}: the clients are numbered from 0 to {count - 1}"
    ):
        simulation.personal(simulation.start(), client)
