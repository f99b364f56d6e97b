"""Histories: rows and columns, data frames with whatever is installed, plots and tables."""

import sys

import pyarrow
import pytest

from undrift import History
from undrift.util.display.html import html_table, short_text

ROWS = [{"round": 1, "clients": 2, "train_loss": 2.0, "seconds": 0.1}, {"round": 2, "clients": 2, "train_loss": 1.5}]


def test_rows_and_columns() -> None:
    history = History([*ROWS, {"round": 3, "train_loss": 1.0, "accuracy": 0.5, "drift.client_norm": 2.0}])
    assert len(history) == 3 and [row["round"] for row in history] == [1, 2, 3]
    assert history[0] == ROWS[0] and history[-1]["accuracy"] == 0.5 and len(history[1:]) == 2
    assert history["accuracy"] == [None, None, 0.5]
    assert history.measured == ("train_loss", "accuracy") and history.last() == {"train_loss": 1.0, "accuracy": 0.5}
    with pytest.raises(KeyError, match="no column is named 'nosuch'; there are round, clients"):
        history["nosuch"]
    history.rewind(2)
    history.extend({"accuracy": 0.25})
    assert len(history) == 2 and history["accuracy"] == [None, 0.25]
    assert repr(History()) == "History(0 rounds)"


@pytest.mark.parametrize("missing", [(), ("pandas",), ("pandas", "polars")])
def test_a_frame_of_what_is_installed(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow.table({"x": [1]})  # looks for pandas once, and does not expect None in its place
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    frame = History(ROWS).to_frame()
    if len(missing) == 2:
        assert type(frame).__module__.startswith("pyarrow")
    assert list(getattr(frame, "column_names", None) or frame.columns) == ["round", "clients", "train_loss", "seconds"]
    values = frame["train_loss"]
    assert (values.to_pylist() if hasattr(values, "to_pylist") else values.to_list()) == [2.0, 1.5]


def test_a_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    first = History(ROWS).plot()
    assert [place.get_title() for place in first] == ["train loss"]
    assert list(first[0].lines[0].get_xdata()) == [1, 2] and list(first[0].lines[0].get_ydata()) == [2.0, 1.5]
    again = History(ROWS).plot("train_loss", axes=first)
    assert len(again[0].lines) == 2
    pyplot.close("all")
    with pytest.raises(ValueError, match="there are no rounds yet"):
        History().plot()


@pytest.mark.quick
def test_tables_are_escaped_and_have_no_colours() -> None:
    shown = html_table(("a<b", "n"), [("<script>", 0.123456), (None, 3)], title="t", note="n&m")
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "n&amp;m" in shown and "0.1235" in shown
    assert "#" not in shown and "currentColor" in shown
    assert short_text(1e-7) == "1e-07"
    many = History([{"round": n, "train_loss": 1.0} for n in range(1, 31)])._repr_html_()
    assert many.count("<tr>") == 1 + 10 and "the last 10 of 30 rounds" in many
