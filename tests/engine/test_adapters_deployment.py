"""Adapters of peft on tiny Roberta, Llama and GPT-2: a real SuperLink with three SuperNodes gives the same hash."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from support import peft_models, vision
from support.deployment import TOOLS, Deployment, running
from support.hugging_face import need
from support.new_app import NEW_APP
from support.peft_models import CASES, ROUNDS, expected

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

from app.task import LOCAL, task_of
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
from app.task import task_of
from undrift import parse
from undrift.flower import Job, client_app


def job(context):
    method = str(context.run_config["algorithm"])
    return Job(parse(method), task_of(str(context.run_config["run"]), method))


app = client_app(job)
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(Deployment(tmp_path_factory.mktemp("adapters"), 3), 20) as it:
        folder = it.work / "app-adapters"
        shutil.copytree(NEW_APP, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        models, operators = (Path(module.__file__ or "").read_text() for module in (peft_models, vision))
        texts = {"server": SERVER, "client": CLIENT, "vision": operators}
        texts["task"] = models.replace("from support.vision", "from app.vision")
        for name, text in texts.items():
            (folder / "app" / f"{name}.py").write_text(text)
        yield it


@pytest.mark.parametrize(("name", "method"), [CASES[0], CASES[3], CASES[4]])  # every model, both methods
def test_supernodes_give_the_bits_of_one_process(name: str, method: str, deployment: Deployment) -> None:
    given = f"run={json.dumps(name)} algorithm={json.dumps(method)} num-rounds={ROUNDS}"
    app = str(deployment.work / "app-adapters")
    run = str(json.loads(deployment.flwr("run", app, "tls", "--format=json", "-c", given))["run-id"])
    assert f"final state: {expected(name, method)}" in deployment.finish(run, 900)
