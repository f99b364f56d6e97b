"""A small GPT of transformers learns to write: batches with names, a client for each of Shakespeare's roles."""

from typing import Any

from command_line import given
from transformers import GPT2Config, GPT2LMHeadModel

from undrift import LoaderTask, Local
from undrift.data import by_column, load
from undrift.runs import start

CONFIG = GPT2Config(vocab_size=81, n_positions=80, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)


def windows(split: Any) -> list[dict[str, Any]]:
    """Windows of 80 characters with the number of their role; the model shifts the labels itself."""
    pairs = zip(split.inputs.long(), split.owners.tolist(), strict=True)
    return [{"input_ids": ids, "labels": ids, "role": role} for ids, role in pairs]


def model() -> GPT2LMHeadModel:
    """A model with random weights; `GPT2LMHeadModel.from_pretrained("gpt2")` works as well."""
    return GPT2LMHeadModel(CONFIG)


def task(make: Any = model, roles: int = 8) -> LoaderTask:
    """The first roles that have 40 windows, with as many of each."""
    data = load("shakespeare", stride=80)
    clients = [own[:40] for own in by_column(windows(data.train), "role") if len(own) >= 40][:roles]
    test = [{"input_ids": ids, "labels": ids} for ids in data.test.inputs[::40].long()]
    return LoaderTask(make, clients, test=test, metrics=["perplexity"], goal="perplexity", name=make.__name__)


if __name__ == "__main__":
    local = Local(lr=0.01, batch_size=10)
    method = "fedavg + local-adamw"
    run = start(**given(__doc__), task=task(), method=method, cohort=4, local=local, resume=True)
    print(run.sha256, f"perplexity {run.summary['perplexity']:.2f}")
