"""Rows for the trackers people have: TensorBoard, MLflow, Weights & Biases. The run's own files stay the truth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from undrift.experiment.config import Config, ConfigError

Row = Mapping[str, Any]


@contextmanager
def trackers(names: Sequence[str], folder: Path, config: Config) -> Iterator[Callable[[Row], None]]:
    """Trackers by name, closed at the end; calling what this gives sends a row to each."""
    opened = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
    with ExitStack() as stack:
        tellers = [opened[name](stack, folder, config) for name in names]

        def tell(row: Row) -> None:
            numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and k != "round"}
            for teller in tellers:
                teller(numbers, int(row["round"]))

        yield tell


Teller = Callable[[Mapping[str, float], int], None]


def _tensorboard(stack: ExitStack, folder: Path, _: Config) -> Teller:
    """Event files below the run's folder."""
    writer = _library("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard"))
    stack.callback(writer.close)

    def tell(numbers: Mapping[str, float], round: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, round)

    return tell


def _mlflow(stack: ExitStack, folder: Path, config: Config) -> Teller:
    """A run of the experiment that MLflow's own settings name."""
    mlflow = _library("mlflow", "mlflow")
    stack.enter_context(mlflow.start_run(run_name=folder.name))
    mlflow.log_params({"method": config.method, "data": config.data, "seed": config.seed})
    return lambda numbers, step: mlflow.log_metrics(dict(numbers), step=step)


def _wandb(stack: ExitStack, folder: Path, config: Config) -> Teller:
    """A run of the project that W&B's own settings name."""
    wandb = _library("wandb", "wandb")
    run = wandb.init(name=folder.name, dir=str(folder), config=config.model_dump())
    stack.callback(run.finish)
    return lambda numbers, step: run.log(dict(numbers), step=step)


def _library(module: str, extra: str) -> Any:
    """An optional library, or how to get it."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(f"output.track: {extra} is not installed: pip install 'undrift[{extra}]'") from None
