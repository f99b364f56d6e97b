"""Sends rows to TensorBoard, MLflow and Weights & Biases. The run's own files remain authoritative."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from undrift.experiment.config import Config
from undrift.experiment.strict import ConfigError
from undrift.util.files import make_private

Row = Mapping[str, Any]


@contextmanager
def trackers(names: Sequence[str], folder: Path, config: Config) -> Iterator[Callable[[Row], None]]:
    """Open trackers by name and yield a function that sends a row to each; they are closed at the end."""
    opened = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
    with ExitStack() as stack:
        loggers = [opened[name](stack, folder, config) for name in names]

        def track(row: Row) -> None:
            numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and k != "round"}
            for log in loggers:
                log(numbers, int(row["round"]))

        yield track


Log = Callable[[Mapping[str, float], int], None]


def _tensorboard(stack: ExitStack, folder: Path, _: Config) -> Log:
    """Event files in the run's folder."""
    make_private(folder / "tensorboard")
    writer = _library("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard"))
    stack.callback(writer.close)

    def log(numbers: Mapping[str, float], round: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, round)

    return log


def _mlflow(stack: ExitStack, folder: Path, config: Config) -> Log:
    """A run in the experiment that MLflow's own settings name."""
    mlflow = _library("mlflow", "mlflow")
    stack.enter_context(mlflow.start_run(run_name=folder.name))
    mlflow.log_params({"method": config.method, "data": config.subject, "seed": config.seed})
    return lambda numbers, step: mlflow.log_metrics(dict(numbers), step=step)


def _wandb(stack: ExitStack, folder: Path, config: Config) -> Log:
    """A run in the project that W&B's own settings name."""
    wandb = _library("wandb", "wandb")
    run = wandb.init(name=folder.name, dir=str(folder), config=config.model_dump())
    stack.callback(run.finish)
    return lambda numbers, step: run.log(dict(numbers), step=step)


def _library(module: str, extra: str) -> Any:
    """Import an optional library, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(f"output.track: {extra} is not installed: pip install 'undrift[{extra}]'") from None
