"""A model to give away: a folder with weights, preprocessing, a program and a script for plain PyTorch, and a card."""

import json
import warnings
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from undrift.data.arrays.preprocess import InputColumn, Preprocess
from undrift.models.start import MODEL
from undrift.privacy.statement import in_words
from undrift.runs.folder.files import as_json
from undrift.runs.folder.preprocess_file import FILE
from undrift.runs.folder.verify import head_of
from undrift.runs.reading.loaded_model import CONFIG, Program
from undrift.runs.reading.saved_run import SavedRun
from undrift.runs.setup.choose_model import build_arguments
from undrift.util.steps import warn
from undrift.util.storage.files import write
from undrift.util.version import __version__

PROGRAM, SCRIPT, CARD = "model.pt2", "predict.py", "README.md"

_PIPELINES = {"image": "image-classification", "text": "text-classification", "table": "tabular-classification"}

_SCRIPT = '''"""Predictions of this model in plain PyTorch: python predict.py {usage}"""

{standard}
from pathlib import Path

{others}

if len(sys.argv) < 2:
    sys.exit(__doc__)
here = Path(__file__).parent
made = json.loads((here / "preprocess.json").read_text())
model = torch.export.load(here / "model.pt2").module()
{read}
for output in model(inputs).tolist():
    best = max(output)
    print(f"{{made['labels'][output.index(best)]}} {{best:.4f}}" if made["labels"] else output)
'''

_TABLE = """

def number(text, column):
    if column["categories"]:
        return column["categories"].index(text) if text in column["categories"] else float("nan")
    missing = text in ("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "nan", "NaN")
    if missing and column["fill"] is None:
        sys.exit(f"column {column['name']!r}: a value is missing; fill it, training had none to put there")
    return float("nan" if missing else {"true": 1, "false": 0}.get(text.lower(), text))


with open(sys.argv[1], newline="", encoding="utf-8-sig") as file:
    rows = list(csv.DictReader(file))
if absent := [column["name"] for column in made["columns"] if column["name"] not in (rows or [{}])[0]]:
    sys.exit(f"{sys.argv[1]}: no column {', '.join(absent)}, which the model was trained on")
inputs = [[number(row[column["name"]], column) for column in made["columns"]] for row in rows]
inputs = torch.tensor(inputs, dtype=torch.float64)"""

_IMAGE = """
channels, height, width = made["shape"]
pictures = [Image.open(path).convert("L" if channels == 1 else "RGB") for path in sys.argv[1:]]
pictures = [picture.resize((width, height), Image.Resampling.BICUBIC) for picture in pictures]
inputs = [torch.frombuffer(bytearray(x.tobytes()), dtype=torch.uint8).view(height, width, channels) for x in pictures]
inputs = torch.stack(inputs).permute(0, 3, 1, 2)"""

_CHARACTERS = """
code = {sign: place for place, sign in enumerate(made["vocabulary"])}
lines = [line[-made["shape"][0] :] for line in Path(sys.argv[1]).read_text().splitlines()]
inputs = torch.tensor([[code.get(sign, len(code)) for sign in line] for line in lines])"""

_WORDS = """
length, symbols = made["shape"][0], made["symbols"]
lines = [re.findall(r"\\w+", line.lower())[:length] for line in Path(sys.argv[1]).read_text().splitlines()]
lines = [[1 + zlib.crc32(word.encode()) % (symbols - 1) for word in line] for line in lines]
inputs = torch.tensor([line + [0] * (length - len(line)) for line in lines])"""

_NUMBERS = """
inputs = torch.tensor(json.loads(Path(sys.argv[1]).read_text()))"""


def write_folder(run: SavedRun, weights: dict[str, Tensor], module: nn.Module | None, out: Path, **which: Any) -> Path:
    """Write a model with everything that is needed to use it, and return the folder; files that are there are replaced.

    Args:
        run: the run that the model is of.
        weights: of the model.
        module: the model with these weights; None for a task of one's own, which has no record of its data.
        out: the folder, which is made if its parent is there.
        which: the client and the round of the model, if it is not the last global one.
    """
    made = run.preprocess
    files: dict[str, bytes] = {MODEL: save(weights)}
    name, arguments = build_arguments(str(run.config.model), made) if made is not None else (None, {})
    if made is not None and module is not None:
        files[FILE] = as_json(made.record())
        program = _program(module, made)
        files |= {PROGRAM: program, SCRIPT: script(made).encode()} if program else {}
    about = {"model": name, "arguments": arguments, **origin(run, sha256(files[MODEL]).hexdigest(), **which)}
    files[CONFIG] = as_json(about)
    files[CARD] = card(run, about, made, out.name, program=PROGRAM in files).encode()
    out.mkdir(exist_ok=True)
    for old in {FILE, PROGRAM, SCRIPT} - set(files):  # of an earlier export
        (out / old).unlink(missing_ok=True)
    for file, data in files.items():
        write(out / file, data, mode=0o644)
    return out


def origin(run: SavedRun, weights: str, **which: Any) -> dict[str, Any]:
    """Where a model comes from: its hash, its run and what made it.

    Args:
        run: the run.
        weights: the SHA-256 of the model's weights.
        which: the client and the round of the model, if it is not the last global one.
    """
    return {
        "sha256": {"weights": weights, "run": (run.summary or {}).get("sha256")},
        "audit": head_of(run.folder),
        "undrift": __version__,
        "method": run.config.method,
        **{key: value for key, value in which.items() if value is not None},
    }


def _program(module: nn.Module, made: Preprocess) -> bytes:
    """The model with its preprocessing as a program of torch.export; empty if torch cannot write one."""
    buffer = BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about its own exporter
            whole = Program(module, made).eval()
            free = ({0: torch.export.Dim.DYNAMIC},)
            torch.export.save(torch.export.export(whole, (made.example,), dynamic_shapes=free), buffer)
    except Exception as error:  # the exporter raises many kinds
        warn("no %s and %s: torch cannot export this model (%s)", PROGRAM, SCRIPT, str(error).partition("\n")[0][:120])
        return b""
    return buffer.getvalue()


def script(made: Preprocess) -> str:
    """A script that predicts with the program of an export, without this package.

    Args:
        made: what is done to an example.
    """
    usage, more, read = "rows.json", "", _NUMBERS
    if made.kind == "image":
        usage, read = "a.png b.png ...", _IMAGE
    elif made.columns:
        usage, more, read = "rows.csv", "csv", _TABLE
    elif made.encoding in ("characters", "words"):
        words = made.encoding == "words"
        usage, more, read = "lines.txt", "re zlib" * words, _WORDS if words else _CHARACTERS
    standard = "\n".join(f"import {name}" for name in sorted(f"json sys {more}".split()))
    others = "import torch" + "\nfrom PIL import Image" * (made.kind == "image")
    return _SCRIPT.format(usage=usage, standard=standard, others=others, read=read)


def card(
    run: SavedRun,
    about: dict[str, Any],
    made: Preprocess | None,
    name: str,
    *,
    program: bool = False,
    library: str = "pytorch",
    use: str = "",
) -> str:
    """The model card, in the form that model hubs read.

    Args:
        run: the run.
        about: the content of config.json, or what `origin` returns.
        made: what is done to an example; None for a task of one's own.
        name: of the model.
        program: whether there is a program and its script.
        library: what reads the model, as hubs name it, and further lines of the card's head.
        use: how the model is used; empty is by its files here.
    """
    summary, config = run.summary or {}, run.config
    kind = "other" if made is None else _PIPELINES[made.kind]
    if made is not None and not made.labels:
        kind = "tabular-regression" if made.kind == "table" else "other"
    constant, title = summary.get("constant", {}), str(summary.get("data", config.subject))
    scores = {key: summary[key] for key in constant if key in summary} or {
        key: summary[key] for key in ("accuracy", "test_loss") if key in summary
    }
    metrics = "".join(f"\n        - {{type: {json.dumps(key)}, value: {value}}}" for key, value in scores.items())
    results = (
        f"model-index:\n  - name: {json.dumps(name)}\n    results:\n      - task: {{type: {kind}}}\n"
        f"        dataset: {{type: {json.dumps(config.subject)}, name: {json.dumps(title)}}}\n"
        f"        metrics:{metrics.replace(chr(10), chr(10) + '  ')}\n"
        if scores
        else ""
    )
    lines = [
        f"---\nlibrary_name: {library}\npipeline_tag: {kind}\ntags: [federated-learning, undrift]\n{results}---",
        f"# {name}",
        f"{config.model or 'A model'}, trained by federated learning with {config.method} on {config.subject}: "
        f"{config.clients} clients, {summary.get('rounds', config.rounds)} rounds, seed {config.seed}.",
        "## Use",
        use or _use(made, program),
        "## Result",
        _result(scores, constant),
        "## Evidence",
        _evidence(summary, about, config.identity()),
    ]
    return "\n\n".join(lines) + "\n"


def _use(made: Preprocess | None, program: bool) -> str:
    """How the model is used."""
    if made is None:
        return f"`{MODEL}` has the weights by their names in the plain module, for `load_state_dict`."
    plain = f"`python {SCRIPT} FILE` predicts in plain PyTorch, from `{PROGRAM}` and `{FILE}`. " if program else ""
    parts = [f"{plain}With the package: `undrift predict . FILE`, or `undrift.load_model(folder).predict(...)`."]
    if made.columns:
        rows = [
            f"| `{one.name}` | {', '.join(map(repr, one.categories)) or 'a number'} | {_if_missing(one)} |"
            for one in made.columns
        ]
        parts.append("\n".join(["| column | values | if missing |", "|---|---|---|", *rows]))
    if made.labels:
        parts.append(f"Classes, in the order of the outputs: {', '.join(made.labels)}.")
    elif made.targets:
        parts.append(f"It predicts {', '.join(made.targets)}, in the units of the training data.")
    return "\n\n".join(parts)


def _if_missing(column: InputColumn) -> str:
    """What stands for a missing value of a column."""
    if column.fill is None:
        return "no input is 1" if column.categories else "an error"
    return column.categories[int(column.fill)] if column.categories else f"{column.fill:g}"


def _result(scores: dict[str, float], constant: dict[str, Any]) -> str:
    """The last evaluation on held-out data, beside that of a constant answer."""
    if not scores:
        return "The run has no evaluation on held-out data."
    rows = [f"| {key} | {value:.4g} | {constant.get(key, float('nan')):.4g} |" for key, value in scores.items()]
    answer = constant.get("answer", "-")
    return "\n".join([f"| on the test set | this model | always {answer} |", "|---|---|---|", *rows])


def _evidence(summary: dict[str, Any], about: dict[str, Any], identity: str) -> str:
    """Where the numbers come from, and what they do not show."""
    whose = f" It is the model of {', '.join(f'{k} {about[k]}' for k in ('client', 'round') if k in about)}."
    return (
        f"The numbers are of the last round of one run with one seed, which is no statement about the method."
        f"{whose if 'client' in about or 'round' in about else ''}\n\n"
        f"- run: sha256 `{summary.get('sha256')}`, settings `{identity}`, audit log `{about['audit']}`\n"
        f"- weights: sha256 `{about['sha256']['weights']}`\n- made with undrift {about['undrift']}\n"
        f"- differential privacy: {in_words(summary.get('privacy'))}"
    )
