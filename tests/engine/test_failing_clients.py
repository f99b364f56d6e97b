"""A client whose data fail does not end a run that rejects failures: in the selection and in personal evaluations."""

import logging
from collections.abc import Iterator
from math import isnan

import pytest
import torch
from torch import Generator, Tensor, nn

from undrift import Local, Simulation, TensorTask
from undrift.core.client.visit import ClientError
from undrift.core.records.rejection import Reason
from undrift.testing import Clinic

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)


class Corrupt(Clinic):
    """Client 4 has an example that cannot be read."""

    def batches(self, client: int, size: int, order: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches, or the error."""
        if client == 4:
            raise OSError("corrupt example")
        yield from super().batches(client, size, order)


def test_a_candidate_that_fails_is_selected_and_rejected_with_the_reason() -> None:
    _, record = next(iter(Simulation("fedavg + power-of-choice(8)", Corrupt(), LOCAL, cohort=3).rounds(1)))
    (failed,) = [r for r in record.rejections if r.reason is Reason.FAILED]
    assert failed.client == 4 and "corrupt example" in failed.detail and len(record.clients) == 2
    simulation = Simulation("fedavg + power-of-choice(8)", Corrupt(), LOCAL, cohort=3, failures="raise")
    with pytest.raises(ClientError, match="corrupt example"):
        simulation.run(1)


def one_left_over() -> TensorTask:
    """Client 0 has a last batch of one example, which batch normalisation refuses."""
    inputs, targets = torch.randn(31, 3, generator=torch.Generator().manual_seed(0)), torch.arange(31) % 2
    clients = [list(range(11)), list(range(11, 21)), list(range(21, 31))]
    return TensorTask(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), inputs, targets, clients
    )


def test_a_personal_model_that_cannot_be_tuned_has_no_score(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation("fedavg-ft(epochs=1)", one_left_over(), Local(lr=0.1, batch_size=10))
    state = simulation.run(1)
    with caplog.at_level(logging.WARNING, "undrift.steps"):
        scores = simulation.worker.scores(state, range(3), lambda task, model, client: float(client))
    assert isnan(scores[0]) and (scores[1], scores[2]) == (1.0, 2.0)
    assert "client 0 has no score of its personal model: round 2, client 0, step 1" in caplog.text


def test_a_score_that_fails_names_the_client() -> None:
    simulation = Simulation("fedavg", Clinic(), LOCAL)
    state = simulation.run(2)
    with pytest.raises(
        ClientError, match=r"client 3: the score of its personal model after round 2 failed: KeyError: 'f1'; check the"
    ):
        simulation.scores(state, [3], lambda task, model, client: dict[str, float]()["f1"])
    assert simulation.scores(state, [3], lambda task, model, client: torch.tensor(0.5)) == {3: 0.5}  # type: ignore[arg-type, return-value]


def test_a_round_without_clients_has_no_loss() -> None:
    simulation = Simulation("fedavg", Clinic(), LOCAL, availability=lambda client, t: t != 1)
    simulation.run(3)
    assert ["train_loss" in row for row in simulation.history] == [True, False, True]
