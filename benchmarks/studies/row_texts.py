"""What sets the rows and settings of a study apart, as texts for its page."""

from collections.abc import Iterable, Mapping
from textwrap import fill
from typing import Any

from beside import gap_text
from undrift import make
from undrift.runs.folder.judge import config_column
from undrift.runs.settings.config import Config
from undrift.studies.compare import ROWS, Entry, row_in
from undrift.studies.grid import flatten
from undrift.studies.statistics import Difference
from undrift.util.display.tables import markdown

_RATE = "local.lr"  # the tables have it


def row_text(row: Mapping[str, Any]) -> str:
    """A row's method with its arguments.

    Args:
        row: of the comparison.

    Example:
        >>> row_text({"method": "fedfft", "arguments": {"rho": 0.01}})
        'fedfft(rho=0.01)'
    """
    arguments = ", ".join(f"{name}={value}" for name, value in row.get("arguments", {}).items())
    return f"{row['method']}({arguments})" if arguments else row["method"]


def row_within(row: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A row as one setting has it: its label, method, arguments, local settings and model.

    Args:
        row: of the comparison.
        part: the setting.
    """
    entry = Entry(**{**row, "label": row.get("label", row["method"])})
    return row_in(entry, part).model_dump()


def weights_text(study: Mapping[str, Any]) -> str:
    """How clients are weighted: equally in all rows, by the setting or by the methods' own rule, or by each method.

    Args:
        study: the comparison.
    """
    rules = (make(row["method"]).aggregation for row in study["methods"])
    if study["base"].get("weights") == "uniform" or all(map(_weights_equally, rules)):
        return "equal weights"
    return "each method with its own weights"


def _weights_equally(rule: object) -> bool:
    """Whether an aggregation rule does not know how many examples clients have."""
    return getattr(rule, "equal_weights", False) or not getattr(rule, "by_examples", True)


def overrides(row: Mapping[str, Any]) -> str:
    """What a row has of its own besides its method and learning rate; empty without any.

    Args:
        row: of the comparison.
    """
    own = {key: row[key] for key in ("local", "model") if row.get(key)}
    return _words(own)


def stated_table(study: Mapping[str, Any], gaps: Mapping[str, Mapping[str, Difference]]) -> str:
    """What the papers of rows state, beside the differences measured here, in Markdown; empty without such a row.

    Args:
        study: its file; its key `stated` has label -> what the row's paper states.
        gaps: setting -> row -> the difference from the baseline.
    """
    stated: Mapping[str, str] = study.get("stated", {})
    texts = [[label, text, *(gap_text(x.get(label)) for x in gaps.values())] for label, text in stated.items()]
    if not texts:
        return ""
    table = markdown(["row", "its paper", *gaps], texts, left=2)
    about = (
        f"What the papers state, in short, and differences from {study['baseline']} measured here, in smaller models "
        "and fewer rounds. The methods' pages name the papers."
    )
    return f"{fill(about, 120)}\n\n{table}\n\n"


def setting_texts(study: Mapping[str, Any]) -> str:
    """What each setting changes, for all rows and for single ones, as a Markdown list; empty without any.

    Args:
        study: the tuned comparison.
    """
    texts = []
    for name, part in study["settings"].items():
        rows = {label: _words(own) for label, own in part.get(ROWS, {}).items()}
        shown = [_words({key: value for key, value in part.items() if key != ROWS})]
        shown += [f"in row `{label}` {words}" for label, words in rows.items() if words]
        text = "; ".join(filter(None, shown))
        texts += [f"- `{name}`: {text}"] if text else []
    return "\n".join(texts)


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in flatten(values) if key != _RATE)


def personal_rows(lines: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Row -> whether its accuracies are those of clients' personal models.

    Args:
        lines: the raw results.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        first.setdefault(line["label"], line["config"])
    return {label: config_column(Config.build(config)).personal for label, config in first.items()}


def judged_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """Whose accuracies a page has; empty if all are those of the global model on the test set.

    Args:
        lines: the raw results.
    """
    rows = personal_rows(lines)
    own = [label for label, personal in rows.items() if personal]
    if not own:
        return ""
    whose = "are those of clients' personal models, each on its own client's test"
    if len(own) == len(rows):
        return f"Accuracies {whose}."
    return f"Accuracies of {', '.join(own)} {whose}; the others are those of the global model on the test set."
