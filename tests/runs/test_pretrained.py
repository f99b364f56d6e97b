"""Adapters and merged models of runs: loaded by peft and transformers, with the logits of the run's own model."""

from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from support.hugging_face import llama, need, task
from undrift import Local
from undrift.cli import app
from undrift.core.tasks.model_factory import initial_model
from undrift.runs import export, load_run, start
from undrift.runs.reading.pretrained import write_pretrained

need("transformers", "peft")

IDS = torch.arange(12).view(2, 6)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose task has a reference, so that the command line can make it again."""
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    local = Local(lr=1.0, batch_size=5)
    start(task="support.hugging_face:task", folder=folder, rounds=2, local=local)
    return folder


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


def test_an_adapter_is_loaded_by_peft(run: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    out = tmp_path / "adapter"
    done = CliRunner().invoke(app, ["export", str(run), "--format", "adapter", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert {path.name for path in out.iterdir()} == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    base = initial_model(llama, task().seed)
    before = logits(base)
    loaded = logits(PeftModel.from_pretrained(base, out))
    assert torch.equal(loaded, logits(load_run(run).model())) and not torch.allclose(loaded, before, atol=1e-3)
    card = (out / "README.md").read_text()
    assert "library_name: peft" in card and str((load_run(run).summary or {})["sha256"]) in card


def test_a_merged_model_is_loaded_by_transformers_and_the_run_keeps_its_base(run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    own = task()
    expected = logits(load_run(run).model(own))
    out = export(run, tmp_path / "merged", format="merged", task=own)
    loaded = AutoModelForCausalLM.from_pretrained(out)
    assert type(loaded).__name__ == "LlamaForCausalLM"
    torch.testing.assert_close(logits(loaded), expected, atol=1e-5, rtol=1e-5)
    assert "library_name: transformers" in (out / "README.md").read_text()
    assert torch.equal(logits(load_run(run).model(own)), expected)


def test_other_models_have_no_adapter(run: Path, tmp_path: Path) -> None:
    whole, plain = task(llama), task(lambda: nn.Linear(2, 2))
    start(task=whole, folder=tmp_path / "whole", rounds=1, local=Local(lr=0.1, batch_size=5))
    with pytest.raises(ValueError, match=r"LlamaForCausalLM is no adapter of peft, .*; use --format merged"):
        export(tmp_path / "whole", tmp_path / "a", format="adapter", task=whole)
    assert (export(tmp_path / "whole", tmp_path / "a", format="merged", task=whole) / "config.json").is_file()
    with pytest.raises(ValueError, match=r"Linear is no adapter of peft, .*; use --format safetensors"):
        write_pretrained(load_run(run), plain.model(), tmp_path / "b", merged=False)
