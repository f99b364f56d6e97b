"""The node's half of preparing tables: it answers questions about its own table, and keeps what was found.

app = client_app(job)
host_table(app, lambda context: "/data/patients.csv")

def job(context):
    data = load("/data/patients.csv", prepared=prepared_file(context, str(context.run_config["run"])))
"""

import json
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from undrift.data.own.sites import Site, SiteReply
from undrift.engine.flower.node.client_app import guard, shares_errors, state_folder
from undrift.engine.flower.records import check_name
from undrift.engine.flower.tables.records import TABLE, read_question, read_result, write_reply
from undrift.util.storage.files import make_private, write

_sites: dict[str, Site] = {}


def host_table(app: ClientApp, table: Callable[[Context], str | Path]) -> None:
    """Make an app answer the questions of `prepare_tables` about the table of its node.

    Args:
        app: the app.
        table: returns the node's file or folder.
    """

    @app.query(TABLE)
    @guard(shares_errors)
    def answer(message: Message, context: Context) -> Message:
        question = read_question(message.content)
        if question is None:
            run, made = read_result(message.content)
            path = prepared_file(context, run)
            make_private(path.parent)
            write(path, json.dumps(made.record(), indent=1))
            return Message(write_reply(SiteReply()), reply_to=message)
        name = str(table(context))
        site = _sites.setdefault(name, Site(name))
        return Message(write_reply(site.reply(question)), reply_to=message)


def prepared_file(context: Context, run: str) -> Path:
    """Where a node keeps how the tables of a run are prepared: the argument `prepared` of `load`.

    Args:
        context: of the node.
        run: the name that the server gave `prepare_tables`.
    """
    return state_folder(None, context, f"{check_name(run)}-table") / "preprocess.json"
