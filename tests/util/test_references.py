"""References to people's own code."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from undrift.util.naming.references import Reference, changes


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working folder."""
    (tmp_path / "their_nets.py").write_text("class Net:\n    class Inner:\n        pass\n")
    (tmp_path / "their_broken.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "their_faulty.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "their_nets.py"
    for name in [name for name in sys.modules if name.startswith("their_")]:
        del sys.modules[name]


@pytest.mark.quick
def test_resolves_from_the_working_folder(code: Path) -> None:
    net = Reference.parse("their_nets:Net")
    assert net is not None and net.resolve().__name__ == "Net"
    assert Reference("their_nets", "Net.Inner").resolve().__qualname__ == "Net.Inner"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("their_nets:Nett", r"their_nets:Nett: module 'their_nets' has no 'Nett'; did you mean 'Net'\?"),
        ("math:pi.foo", r"math:pi.foo: 3.14\d* has no 'foo'; there are none"),
        ("their_other:Net", "no module is named 'their_other'; install it, or start in the folder"),
        ("their_broken:Net", "their_broken needs 'not_installed_anywhere', which is missing"),
        ("their_faulty:Net", "importing it failed with ZeroDivisionError"),
    ],
)
def test_what_cannot_be_resolved_is_refused_by_name(code: Path, text: str, message: str) -> None:
    reference = Reference.parse(text)
    assert reference is not None
    with pytest.raises(ValueError, match=message):
        reference.resolve()


def test_a_changed_file_is_reported(code: Path) -> None:
    hashes = {"their_nets:Net": Reference("their_nets", "Net").sha256()}
    assert changes(hashes) == []
    code.write_text(code.read_text() + "# edited\n")
    assert "their_nets:Net: its file has changed" in changes(hashes)[0]
    code.unlink()
    assert "their_nets:Net: its file their_nets.py is gone" in changes(hashes)[0]
    assert "no module is named" in changes({"their_gone:Net": "0"})[0]
    assert Reference("math", "pi").sha256() is None or Path(sys.modules["math"].__file__).exists()  # type: ignore[arg-type]
