"""A small Llama, a tokenizer of numbers and instructions, for tests with transformers, peft and TRL."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from support.vision import operators
from undrift import LoaderTask

SIZES: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}


def need(*names: str) -> None:
    """Skip the tests of a module where packages are not installed, without importing them: that takes seconds.

    transformers imports torchvision if that is installed.
    """
    if find_spec("torchvision") is not None:
        operators()
    for name in names:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)


def llama() -> Any:
    """Random weights, a vocabulary of 64."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=64, intermediate_size=64, **SIZES))


def tokenizer() -> Any:
    """A word for every number below 60."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate([*SPECIAL.values(), *map(str, range(60))])}
    made = Tokenizer(models.WordLevel(words, unk_token=SPECIAL["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, **SPECIAL)


def instructions(count: int) -> Any:
    """Some numbers as the prompt, each plus one as the completion; lengths differ, and so do three owners."""
    from datasets import Dataset

    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 6, (count,), generator=draw).tolist()
    numbers = [torch.randint(59, (length,), generator=draw).tolist() for length in lengths]
    return Dataset.from_list(
        [
            {"prompt": " ".join(map(str, x)), "completion": " " + " ".join(str(i + 1) for i in x), "who": i % 3}
            for i, x in enumerate(numbers)
        ]
    )


def tokenised(count: int) -> Any:
    """The same as token ids, with labels for the completion only."""
    words = tokenizer()

    def tokens(row: dict[str, Any]) -> dict[str, Any]:
        prompt, completion = words(row["prompt"])["input_ids"], words(row["completion"])["input_ids"]
        return {"input_ids": prompt + completion, "labels": [-100] * len(prompt) + completion}

    return instructions(count).map(tokens, remove_columns=["prompt", "completion"])


def adapted() -> Any:
    """The Llama with new adapters."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))


def task(make: Callable[[], Any] = adapted) -> LoaderTask:
    """Two clients with sequences of one length."""
    rows = torch.randint(64, (12, 8), generator=torch.Generator().manual_seed(0))
    examples = [{"input_ids": row, "labels": row} for row in rows]
    return LoaderTask(make, [examples[:5], examples[5:10]], test=examples[10:])
