"""The server's half: a plain Flower ServerApp with Undrift's strategy."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from app.task import CLIENTS, task
from undrift import Local, make
from undrift.flower import UndriftStrategy
from undrift.testing import fingerprint

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with the run's configuration and print the SHA-256 of the server's final state."""
    config = context.run_config
    model = task(hosted=()).model()
    strategy = UndriftStrategy(
        make(str(config["algorithm"])),
        model,
        Local(lr=float(config["lr"]), batch_size=int(config["batch-size"]), epochs=int(config["epochs"])),
        population=CLIENTS,
        cohort=int(config["cohort"]),
        seed=int(config["seed"]),
        deadline=float(config["deadline"]),
        quorum=float(config["quorum"]),
        on_round=lambda _, record: print(f"accepted in round {record.round}: {list(record.clients)}"),
    )
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=int(config["num-rounds"]))
    assert strategy.state is not None
    print(f"final state: {fingerprint(strategy.state)}")
