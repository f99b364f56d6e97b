"""Presets: every value fits its method, what is given overrides them, and only values are recorded."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from undrift import Local, make, parse
from undrift.algorithms import ALGORITHMS
from undrift.blocks import FSA, SAM
from undrift.cli import app
from undrift.cli.training.run import with_preset
from undrift.compose.build import resolve
from undrift.compose.cards import card, markdown
from undrift.compose.grammar import parts
from undrift.core.local.presets import PAPERS, preset
from undrift.core.local.settings import PRESETS
from undrift.runs import Config, ConfigError
from undrift.studies import Comparison
from undrift.util.naming.binding import build
from undrift.util.naming.calls import Call

LISTED = [(name, method) for name, found in PAPERS.items() for method in found.methods]


@pytest.mark.parametrize(("name", "method"), LISTED)
def test_every_value_fits_its_method_and_has_a_source(name: str, method: str) -> None:
    own = preset(name).of(method)
    function = ALGORITHMS[method] if method in ALGORITHMS else parts()[method]
    assert build(function, Call(method, (), own.arguments)) and own.source
    assert own.arguments or own.local, "else it says nothing"
    Local(**{**preset(name).local, **own.local})
    if method in ALGORITHMS:
        assert make(method, preset=name) == make(method, **own.arguments)
        config = Config.build({"method": method, "preset": name, "proxy": 200})
        assert config.local == replace(PRESETS[name], **own.local)
        assert config.algorithm() == make(method, preset=name)


def test_the_local_settings_of_the_papers() -> None:
    rows = {name: (x.lr, x.decay, x.weight_decay, x.clip, x.epochs, x.batch_size) for name, x in PRESETS.items()}
    assert rows == {
        "papers": (0.1, 0.998, 1e-3, 10, 5, 50),
        "fedfft": (0.1, 0.998, 1e-3, 10, 5, 50),
        "fedfft-cifar100": (0.1, 0.998, 1e-3, 10, 2, 20),
        "specgrad": (0.1, 1.0, 1e-3, None, 5, 50),
        "fedscam": (0.01, 1.0, 0, None, 5, 256),
        "fedscam-cifar10": (0.01, 1.0, 0, None, 5, 64),
        "fedwmsam": (0.1, 0.998, 1e-3, 10, 5, 50),
        "fedfsa": (0.1, 1.0, 0, 10, 10, 48),
        "fedfsa-cifar100": (0.1, 1.0, 0, 10, 10, 48),
        "fedfsa-tiny": (0.1, 0.998, 0, 10, 10, 48),
        "fedfsa-resnet18": (0.1, 1.0, 0, 10, 10, 48),
    }
    assert all(Local.preset(name) == local for name, local in PRESETS.items()) and not PAPERS["papers"].methods


def test_the_same_method_has_other_values_in_other_papers() -> None:
    radius = {name: make("mofedsam", preset=name).perturbation for name in ("fedfft", "fedwmsam", "fedfsa-resnet18")}
    assert radius == {"fedfft": SAM(0.1), "fedwmsam": SAM(0.01), "fedfsa-resnet18": SAM(0.3)}
    assert make("fedsam", preset="fedfft", rho=0.2) == make("fedsam", rho=0.2), "an argument overrides the preset's"
    assert make("krum", preset="fedfft") == make("krum"), "a preset may say nothing"
    assert preset("fedfft").of("feddyn").local == {"decay": 0.9995}


@pytest.mark.parametrize(
    ("name", "method", "expected"),
    [
        ("fedfsa-cifar100", "fedsam + fsa", "fedsam(rho=0.05) + fsa(rho=0.05, larger=0.9, count=2)"),
        ("fedfsa", "FedSAM(0.2) + perturbation:fsa(0.3,)", "FedSAM(0.2) + perturbation:fsa(0.3, larger=0.2, count=2)"),
        ("fedfft", "feddyn() + sam(0.2)", "feddyn(mu=0.1) + sam(0.2)"),
        ("fedfft", "drift:feddyn + sam", "drift:feddyn + sam"),
        ("papers", "scaffold + sam", "scaffold + sam"),
        ("fedfft", "fedsam(1, 2) + x(", "fedsam(1, 2) + x("),
    ],
)
def test_a_composition_gets_its_values_term_by_term(name: str, method: str, expected: str) -> None:
    assert resolve(name, method).method == expected


def test_local_settings_of_a_composition_are_those_of_its_terms() -> None:
    assert resolve("fedfft", "fedsam + high-pass(0.1)").local["decay"] == 0.998
    assert resolve("fedfft", "fedawa + feddyn + fedfft").local["decay"] == 0.9995
    assert resolve("fedfft", "drift:feddyn").local["decay"] == 0.998, "a block is not the paper's method"
    config = Config.build({"method": "fedspeed + fsa", "preset": "fedfsa-cifar100"})
    assert config.algorithm() == replace(make("fedspeed"), perturbation=FSA(0.05, 0.9)) == parse(config.method)
    assert config.local.decay == 0.998


def test_a_run_records_the_values_and_not_the_name() -> None:
    config = Config.build({"method": "fedgloss", "preset": "fedfft", "arguments": {"rho": 0.3}, "local": {"lr": 0.05}})
    assert config.arguments == {"rho": 0.3, "local_rho": 0.1, "warmup": 0}
    assert config.local == Local.preset("fedfft", lr=0.05) and "preset" not in config.toml()
    written = {"method": "fedgloss", "arguments": config.arguments, "local": asdict(Local.preset("fedfft", lr=0.05))}
    assert Config.build(written).identity() == config.identity()
    assert Config.build({"preset": "papers"}) == Config.build({"local": {"preset": "papers"}})
    own = Config.build({"method": "feddyn", "preset": "fedfft", "local": {"preset": "fedfsa"}})
    assert own.local == Local.preset("fedfsa"), "a preset of local overrides all local settings"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "fedft"}, "preset: no preset is named 'fedft'; did you mean 'fedfft'"),
        ({"preset": "x"}, "preset: no preset is named 'x'; known are papers, fedfft, fedfft-cifar100, specgrad"),
        ({"preset": ["papers"]}, "preset: no preset is named \\['papers'\\]"),
        ({"presets": "papers"}, "presets: unknown key; did you mean 'preset'"),
        ({"method": 1, "preset": "papers"}, "method: input should be a valid string"),
        ({"method": "fedsam + + a", "preset": "papers"}, "has an empty term"),
        ({"method": "fedsam", "arguments": {"preset": "fedfft"}}, "arguments of fedsam: .*'preset'"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.build(settings)
    with pytest.raises(ValueError, match="no preset is named 'x'; known are papers"):
        make("fedsam", preset="x")


@pytest.mark.quick
def test_a_comparison_applies_it_to_every_row() -> None:
    methods: list[dict[str, Any]] = [{"method": name} for name in ("fedavg", "feddyn", "fedsam")]
    methods.append({"method": "fedsam", "label": "sam-0.2", "arguments": {"rho": 0.2}})
    base = {"preset": "fedfft", "local": {"epochs": 1}}
    found = {x.label: x.config for x in Comparison.build({"seeds": [0], "base": base, "methods": methods}).trials()}
    assert {label: x.arguments.get("rho") for label, x in found.items()} == {
        "fedavg": None, "feddyn": None, "fedsam": 0.1, "sam-0.2": 0.2,
    }  # fmt: skip
    assert {label: x.local.decay for label, x in found.items() if x.local.decay != 0.998} == {"feddyn": 0.9995}
    assert {x.local.epochs for x in found.values()} == {1}
    both = {"seeds": [0], "base": {"local": {"decay": 0.99}, "preset": "fedfft"}, "methods": methods}
    assert {x.config.local.decay for x in Comparison.build(both).trials()} == {0.99}, "the base's own counts"


def test_a_flag_replaces_the_preset_of_a_file() -> None:
    file = {"rounds": 2, "local": {"preset": "papers", "lr": 0.5}}
    assert with_preset(file, "fedfsa") == {"rounds": 2, "local": {"lr": 0.5}, "preset": "fedfsa"}
    assert with_preset(file, None) == file and file["local"] == {"preset": "papers", "lr": 0.5}


def test_the_command_line_knows_presets(tmp_path: Path) -> None:
    for command in (["run", "fedsam"], ["tune", "fedsam"]):
        refused = CliRunner().invoke(app, [*command, "--preset", "x", "--out", str(tmp_path / "out")])
        assert refused.exit_code == 2 and "preset: no preset is named 'x'; known are papers" in refused.output
    file = tmp_path / "compare.toml"
    file.write_text(tomli_w.dumps({"methods": [{"method": "fedsam"}], "base": {"local": {"preset": "papers"}}}))
    refused = CliRunner().invoke(app, ["compare", str(file), "--preset", "x"])
    assert refused.exit_code == 2 and "preset: no preset is named 'x'" in refused.output


def test_a_card_lists_the_presets() -> None:
    page = card("mofedsam")
    assert list(page.presets) == [name for name, found in PAPERS.items() if "mofedsam" in found.methods]
    assert "| `fedwmsam` | `rho=0.01` | - | FedWMSAM, its sweep of rho" in markdown(page)
    assert "`papers`, `specgrad`" in markdown(page) and "No preset sets values for it" in markdown(card("krum"))


def test_names_are_found_whatever_their_case_dashes_and_underscores() -> None:
    assert make("FedSAM") == make("fedsam") and make("fed_prox", mu=0.2) == make("fedprox", mu=0.2)
    assert make("FedSAM", preset="fedfft") == make("fedsam", preset="fedfft")
    assert resolve("fedfft", "FedSAM").arguments == resolve("fedfft", "fedsam").arguments != {}
    assert preset("fedfft").of("FedLESAM_D") == preset("fedfft").of("fedlesam-d")
