"""pfl-research: its algorithms on its simulated backend; more workers are processes of torch.distributed."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

# pfl stores clients' states on disk as objects of its own, which torch.load refuses from version 2.6 on without this.
os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
WORLD = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 1


def _join() -> None:
    """Start the other processes, as torchrun would; before pfl is imported, which joins the group at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"TORCHELASTIC_RUN_ID": "peers", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(group, WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD), RANK="0", LOCAL_RANK="0")
    for rank in range(1, WORLD):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **place}, stdin=subprocess.DEVNULL)


if WORLD > 1 and "RANK" not in os.environ:
    _join()

import torch  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.pytorch import PyTorchTensorDataset  # noqa: E402
from pfl.data.user_state import DiskUserStateStorage, InMemoryUserStateStorage  # noqa: E402
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from turns import Turns  # noqa: E402
from work import CLIENTS, Data, Setting, cohort, initial, order  # noqa: E402


class Net(nn.Module):
    """The model with the two functions that pfl asks for.

    Args:
        body: the model.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The cross entropy.

        Args:
            inputs: images.
            targets: labels.
        """
        return cross_entropy(self.body(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        """The loss; asked for only in round 0, which is not timed.

        Args:
            inputs: images.
            targets: labels.
        """
        with torch.no_grad():
            return {"loss": Weighted(float(self.loss(inputs, targets)) * len(inputs), len(inputs))}


class Pause(TrainingProcessCallback):
    """Waits for the next turn; all processes wait for the first.

    Args:
        turns: the protocol.
        body: the global model.
    """

    def __init__(self, turns: Turns, body: nn.Module) -> None:
        self.turns, self.body = turns, body

    def wait(self) -> bool:
        """Whether to go on."""
        first = os.environ.get("RANK", "0") == "0"
        on = torch.tensor(self.turns.pause(lambda: self.body) if first else False)
        if WORLD > 1:
            torch.distributed.broadcast(on, src=0)
        return bool(on)

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """The end of a round.

        Args:
            aggregate_metrics: not used.
            model: not used.
            central_iteration: not used.
        """
        return not self.wait(), Metrics()


def run(turns: Turns, setting: Setting, data: Data, method: str, workers: int, shuffle: bool) -> None:
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg" or "scaffold".
        workers: processes.
        shuffle: whether clients shuffle their data.
    """
    clients = [data.own(client) for client in range(CLIENTS)]
    fixed = [PyTorchTensorDataset(own, user_id=str(client)) for client, own in enumerate(clients)]

    def users() -> Iterator[tuple[int, int]]:
        for round in count():
            yield from ((round, client) for client in cohort(setting, round))

    def dataset(user: tuple[int, int]) -> PyTorchTensorDataset:
        round, client = user
        if not shuffle:
            return fixed[client]
        inputs, targets = clients[client]
        index = torch.randperm(len(targets), generator=order(round, client))
        return PyTorchTensorDataset((inputs[index], targets[index]), user_id=str(client))

    net, sequence = Net(initial(setting)), users()
    pause = Pause(turns, net.body)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    population = FederatedDataset(dataset, lambda: next(sequence))
    size = {"train_cohort_size": setting.cohort, "val_cohort_size": 0}
    often = {"central_num_iterations": 10**9, "evaluation_frequency": 10**9}
    if method == "scaffold":
        folder = os.environ.get("PEERS_SCRATCH", "")
        storage = DiskUserStateStorage(folder) if workers > 1 else InMemoryUserStateStorage()
        variates = {"use_gradient_as_control_variate": False, "user_state_storage": storage}
        algorithm, params = SCAFFOLD(), SCAFFOLDParams(**often, **size, population=CLIENTS, **variates)
    else:
        algorithm, params = FederatedAveraging(), NNAlgorithmParams(**often, **size)
    training = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=setting.lr, local_batch_size=setting.batch)
    if not pause.wait():
        return
    algorithm.run(
        params,
        SimulatedBackend(training_data=population, val_data=None),
        model,
        training,
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[pause],
        send_metrics_to_platform=False,
    )
