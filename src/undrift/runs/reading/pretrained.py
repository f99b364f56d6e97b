"""A run's model in the form of peft and transformers: the adapter alone, or the whole model with it merged."""

from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

from undrift.models import fold_cores
from undrift.runs.reading.model_folder import CARD, card, origin
from undrift.runs.reading.saved_run import SavedRun
from undrift.util.storage.files import write


def write_pretrained(run: SavedRun, module: Any, out: Path, *, merged: bool, **which: Any) -> Path:
    """Write what `from_pretrained` of peft or transformers loads, with the run's card, and return the folder.

    Args:
        run: the run that the model is of.
        module: the model.
        out: the folder, which is made if its parent is there.
        merged: write the whole model, with an adapter merged into it; otherwise the adapter alone.
        which: the client and the round of the model, if it is not the last global one.
    """
    adapted = hasattr(module, "peft_config")
    if not hasattr(module, "save_pretrained") or not (adapted or merged):
        kind = "model of transformers" if merged else "adapter of peft"
        raise ValueError(
            f"export: {type(module).__name__} is no {kind}, which --format {'merged' if merged else 'adapter'} writes; "
            f"use --format {'merged' if hasattr(module, 'save_pretrained') else 'safetensors'}"
        )
    cores = any("parametrizations" in name for name, _ in module.named_parameters())
    opened = not cores and any("base_layer" in name and p.requires_grad for name, p in module.named_parameters())
    fold_cores(module)
    if adapted and not merged and opened:
        raise ValueError(
            "export: the method has changed the weights under the adapters, which --format adapter leaves out; use "
            "--format merged"
        )
    library, use = "transformers", f'`AutoModel.from_pretrained("{out.name}")`, or the class of the model.'
    if adapted and not merged:
        base = next(iter(module.peft_config.values())).base_model_name_or_path
        library = f"peft\nbase_model: {base}" if base else "peft"
        use = f'`PeftModel.from_pretrained(base, "{out.name}")`, where `base` is the model that was adapted.'
    whole: Any = module
    if adapted and merged:
        whole = deepcopy(whole)  # merging writes into the base, which models may share
        whole = whole.merge_and_unload()
    out.mkdir(exist_ok=True)
    whole.save_pretrained(out)
    digest = sha256(b"".join(path.read_bytes() for path in sorted(out.glob("*.safetensors")))).hexdigest()
    text = card(run, origin(run, digest, **which), None, out.name, library=library, use=use)
    write(out / CARD, text.encode(), mode=0o644)
    return out
