"""Adapters of peft on tiny Roberta, Llama and GPT-2: a real SuperLink with three SuperNodes gives the same hash.

Also after the server has been killed in the middle of a run.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from support import peft_models, vision
from support.deployment import TOOLS, Deployment, running, until
from support.hugging_face import need
from support.new_app import copy_app
from support.peft_models import ROUNDS, expected, task_of
from undrift import Local, Simulation, parse
from undrift.testing import fingerprint

need("transformers", "peft")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("deployment"),
    *TOOLS,
]

SERVER = """
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp

from app.models import LOCAL, task_of
from undrift import parse
from undrift.flower import UndriftStrategy
from undrift.testing import fingerprint

app = ServerApp()


@app.main()
def main(grid, context):
    method = str(context.run_config["algorithm"])
    model = task_of(str(context.run_config["run"]), method).model()
    strategy = UndriftStrategy(parse(method), model, LOCAL, population=3, seed=3, deadline=240.0, wait=240.0)
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=int(context.run_config["num-rounds"]))
    assert not any(record.rejections or record.absent for record in strategy.records), strategy.records
    print(f"final state: {fingerprint(strategy.state)}")
"""
CLIENT = """
from app.models import task_of
from undrift import parse
from undrift.flower import Job, client_app


def job(context):
    method = str(context.run_config["algorithm"])
    return Job(parse(method), task_of(str(context.run_config["run"]), method))


app = client_app(job)
"""
LLAMA = """
from app.models import task_of

CLIENTS = 3


def test_set():
    return None


def task(hosted=range(CLIENTS), test=None):
    return task_of("llama", {method!r})
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(Deployment(tmp_path_factory.mktemp("adapters"), 3), 20) as it:
        it.write_hosts(3)
        yield it


def write_app(deployment: Deployment, name: str, **texts: str) -> Path:
    """The new app with other modules, and those of the models."""
    folder = deployment.work / name
    copy_app(folder)
    models, operators = (Path(module.__file__ or "").read_text() for module in (peft_models, vision))
    texts = {"models": models.replace("from support.vision", "from app.vision"), "vision": operators} | texts
    for module, text in texts.items():
        (folder / "app" / f"{module}.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "method"), [("roberta", "fedex-lora(scale=2.0)"), ("llama", "fedsa-lora"), ("gpt2", "rolora")]
)
def test_supernodes_give_the_bits_of_one_process(name: str, method: str, deployment: Deployment) -> None:
    deployment.app = write_app(deployment, "plain", server=SERVER, client=CLIENT)
    run = deployment.submit(run=name, algorithm=method, num_rounds=ROUNDS)
    assert f"final state: {expected(name, method)}" in deployment.finish(run, 900)


@pytest.mark.parametrize("method", ["fedex-lora(scale=2.0)", "rolora"])
def test_a_killed_server_goes_on_to_the_bits_of_one_process(method: str, deployment: Deployment) -> None:
    """After round 0: a newer base, and the turn of the other factor."""
    name = method.partition("(")[0]
    deployment.app = write_app(deployment, name, task=LLAMA.format(method=method))
    config = {"run": name, "algorithm": method, "num_rounds": 3, "cohort": 3, "lr": 0.5, "batch_size": 4}
    deployment.submit(**config)
    until(lambda: deployment.rounds(name) >= 1, 600)
    deployment.kill_server_app(name)
    until(lambda: deployment.status(name)["state"] == "failed", 60)
    assert deployment.rounds(name) < 3
    deployment.finish(deployment.submit(**config), 900)
    whole = Simulation(parse(method), task_of("llama", method), Local(lr=0.5, batch_size=4))
    assert deployment.status(name)["restarts"] == 1
    assert deployment.summary(name)["sha256"] == fingerprint(whole.run(3))
