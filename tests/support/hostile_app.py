"""The app of `undrift new` with a hostile node in it, whose server keeps every state."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

from support.deployment import Deployment, until
from support.new_app import copy_app

KEEP = """
def keep(config, state):
    folder = Path(os.environ["UNDRIFT_RUNS"]).parent / f"states-{config['run']}"
    folder.mkdir(exist_ok=True)
    (folder / str(state.round)).write_bytes(to_bytes(state))


@app.main()
"""
SERVER = {
    "from undrift import Local": "from undrift.core.server.wire import to_bytes\nfrom undrift import Local",
    "@app.main()\n": KEEP,
    "failures=5)": 'failures=5) if config["run"] == "quarantine" else None',
    "on_round=lambda _, record:": "on_round=lambda state, record: keep(config, state) or",
}
"""What the server's app has in addition: it keeps every state, and quarantine only in the run of this name."""


def write_app(folder: Path, hostile: ModuleType, client: str) -> None:
    """Write the app, with a module of this package as app/hostile.py.

    Args:
        folder: where to.
        hostile: the module.
        client: the text of app/client.py.
    """
    copy_app(folder)
    server = (folder / "app" / "server.py").read_text()
    for old, new in SERVER.items():
        assert server.count(old) == 1, old
        server = server.replace(old, new)
    for name, text in {"server": server, "client": client, "hostile": Path(hostile.__file__ or "").read_text()}.items():
        (folder / "app" / f"{name}.py").write_text(text)


def run_app(it: Deployment, app: Path, **config: Any) -> str:
    """Run the app until all rounds of the configuration are stored; its log."""
    given = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items())
    number = str(json.loads(it.flwr("run", str(app), "tls", "--format=json", "-c", given))["run-id"])
    until(lambda: it.rounds(config["run"]) == config["num_rounds"], 1800, pause=1.0)
    return it.finish(number, 60)
