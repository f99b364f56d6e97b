"""LoRA of peft on the GPT of gpt.py: the frozen base stays where it is, only adapters are trained and sent."""

from command_line import given
from gpt import model as base
from gpt import task
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

from undrift import Local
from undrift.runs import start

LORA = LoraConfig(r=4, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True, task_type="CAUSAL_LM")


def lora() -> PeftModel:
    """The base with new adapters; the base's parameters have `requires_grad = False`."""
    return get_peft_model(base(), LORA)


if __name__ == "__main__":
    local = Local(lr=0.01, batch_size=10)
    method = "fedavg + local-adamw"
    run = start(**given(__doc__), task=task(lora), method=method, cohort=4, local=local, resume=True)
    print(run.sha256, f"perplexity {run.summary['perplexity']:.2f}, {run.summary['parameters']} parameters trained")
    model = lora()
    model.load_state_dict(load_file(run.folder / "model.safetensors"))
    model.save_pretrained(run.folder / "adapter")
