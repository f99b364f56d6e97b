"""Instruction tuning of a small Llama with TRL's SFTTrainer: LoRA, masked prompts, a client for each hospital."""

from tempfile import gettempdir
from typing import Any

from command_line import given
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from undrift.hf import TrainerTask, by_column
from undrift.runs import start

WARDS = {"fever": "medicine", "cough": "medicine", "rash": "skin", "burn": "skin", "fall": "surgery", "cut": "surgery"}
SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
LORA = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
WORDS = ["<pad>", "<eos>", "since", "day", *map(str, range(40)), *WARDS, *sorted({*WARDS.values()})]
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # that of your model: AutoTokenizer.from_pretrained(...)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **{"pad_token": "<pad>", "eos_token": "<eos>"})
visits = [{"prompt": f"{sign} since day {day}", "completion": f" {WARDS[sign]}"} for sign in WARDS for day in range(40)]
notes = Dataset.from_list([visit | {"hospital": i // 60} for i, visit in enumerate(visits)])


def trainer(data: Any) -> SFTTrainer:
    """The trainer of one hospital, as it is without federation."""
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, initializer_range=0.3, **SIZES))  # or from_pretrained
    args = SFTConfig(gettempdir(), num_train_epochs=1, learning_rate=0.02, use_cpu=True, bf16=False)
    return SFTTrainer(model, args, None, data, Dataset.from_list(visits[::7]), tokenizer, peft_config=LORA)


if __name__ == "__main__":
    task = TrainerTask(trainer, by_column(notes, "hospital"), metrics=["perplexity"])
    run = start(**given(__doc__), task=task, method=task.method("scaffold-i"), local=task.local(), resume=True)
    print(run.sha256, f"perplexity {run.summary['perplexity']:.2f}, {run.summary['parameters']} parameters trained")
