"""The server's half: a Flower ServerApp whose run is kept in a folder, and resumes there after a crash."""

import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from app.task import task, test_set
from undrift import Local
from undrift.flower import deploy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with the run's configuration and print the SHA-256 of the server's final state."""
    config = context.run_config
    outcome = deploy(
        grid,
        str(config["algorithm"]),
        task(hosted=(), test=test_set()),
        Local(lr=float(config["lr"]), batch_size=int(config["batch-size"]), epochs=int(config["epochs"])),
        folder=Path(os.environ.get("UNDRIFT_RUNS", "runs")) / str(config["run"]),
        rounds=int(config["num-rounds"]),
        cohort=int(config["cohort"]),
        seed=int(config["seed"]),
        deadline=float(config["deadline"]),
        quorum=float(config["quorum"]),
        on_round=lambda _, record: print(f"accepted in round {record.round + 1}: {list(record.clients)}"),
    )
    print(f"final state: {outcome.sha256}")
