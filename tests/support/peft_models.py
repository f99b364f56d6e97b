"""Tiny Roberta, Llama and GPT-2 with adapters of peft, and three clients; a Flower app may have this file as well."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from support.vision import operators
from undrift import LoaderTask, Local, Simulation, parse
from undrift.models import open_base
from undrift.testing import fingerprint

if find_spec("torchvision") is not None:
    operators()  # transformers imports it, also in other processes

LOCAL = Local(lr=0.5, steps=3, batch_size=4)

EAGER: dict[str, Any] = {"attn_implementation": "eager"}
SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}


def roberta(base: bool = False) -> nn.Module:
    """A classifier whose head is trained densely, as modules_to_save of peft has it."""
    from peft import LoraConfig, get_peft_model
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=4,
        intermediate_size=24,
        vocab_size=40,
        max_position_embeddings=24,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **EAGER,
    )
    lora = LoraConfig(r=2, lora_alpha=4, target_modules=["query", "intermediate.dense"], modules_to_save=["classifier"])
    return _made(get_peft_model(RobertaForSequenceClassification(config), lora), base)


def llama(base: bool = False) -> nn.Module:
    """Linear layers that are not square, and an embedding."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=40, intermediate_size=24, **EAGER, **SIZES)  # type: ignore[arg-type]
    lora = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "up_proj", "embed_tokens"])
    return _made(get_peft_model(LlamaForCausalLM(config), lora), base)


def gpt2(base: bool = False) -> nn.Module:
    """Conv1D stores its weight the other way round."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"vocab_size": 40, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **EAGER)
    lora = LoraConfig(r=2, lora_alpha=4, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True)
    return _made(get_peft_model(GPT2LMHeadModel(config), lora), base)


def _made(model: Any, base: bool) -> nn.Module:
    model = model.double()
    for name, p in model.named_parameters():
        if "lora_" in name and not p.any():
            nn.init.normal_(p, std=0.1)  # a product that is not zero
    return open_base(model) if base else model


MODELS: dict[str, Callable[..., nn.Module]] = {"roberta": roberta, "llama": llama, "gpt2": gpt2}


def task(name: str, base: bool = False, make: Callable[[], nn.Module] | None = None) -> LoaderTask:
    """Three clients of different sizes, with a model of that name or one of your own."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(3, 40, (18, 8), generator=draw)
    if name == "roberta":
        examples = [{"input_ids": row, "labels": row[0] % 2} for row in rows]
    else:
        examples = [{"input_ids": row, "labels": row} for row in rows]
    return LoaderTask(
        make or partial(MODELS[name], base), [examples[:4], examples[4:9], examples[9:16]], test=examples[16:]
    )


METHODS = ["fedex-lora(scale=2.0)", "fedsa-lora", "rolora"]
CASES = [(name, method) for name in MODELS for method in METHODS]
ROUNDS = 2


def task_of(name: str, method: str) -> LoaderTask:
    """The task with a model that fits a method."""
    return task(name, parse(method).needs.model == "foldable")


def expected(name: str, method: str) -> str:
    """The hash of a run in this process."""
    return fingerprint(Simulation(parse(method), task_of(name, method), LOCAL, seed=3).run(ROUNDS))
