"""The tables of plug-ins in the five papers: each row as a composition, and the algorithm that it is."""

import re
from dataclasses import replace

import pytest

from undrift import Algorithm, make, parse
from undrift.blocks import (
    FSA,
    SAM,
    Filters,
    Latest,
    Proximal,
    Uniform,
    cap_norm,
    clip_coordinates,
    gd,
    high_pass,
    lap_d,
    low_pass,
    random_stop,
)
from undrift.compose.grammar import text

OURS = Filters(gradient=high_pass(0.05))
FFT = Filters(perturbation=high_pass(0.01))
RAISED = FSA(0.05, 0.9)
"""The radii of FedFSA on CIFAR-100, where its figure of plug-ins was made."""

ROWS: dict[str, dict[str, Algorithm]] = {
    "SpecGradFilter, tables II, IX and X and figure 4: host + ours": {
        "uniform + specgrad(0.05)": make("specgrad"),
        "uniform + high-pass(0.05)": make("specgrad"),
        "fedprox + specgrad(0.05)": Algorithm(spectral=OURS, objective=Proximal(), aggregation=Uniform()),
        "scaffold + high-pass(0.05)": replace(make("scaffold"), spectral=OURS),
        "feddyn + high-pass(0.05)": make("gradfilter-feddyn", r=0.05),
        "fedawa + high-pass(0.05)": replace(make("fedawa"), spectral=OURS),
    },
    "SpecGradFilter, table II: ViT, the patch embedding only": {
        "uniform + high-pass(0.05, scope=('patch_embed*',))": make(
            "specgrad", filter=high_pass(0.05, scope=("patch_embed*",))
        ),
    },
    "SpecGradFilter, tables III and VII: FedAvg + LAP-D, + GD": {
        "uniform + lap-d(25)": make("specgrad", filter=lap_d(25)),
        "uniform + gd(7.5)": make("specgrad", filter=gd(7.5)),
    },
    "SpecGradFilter on a host with a perturbation: on its data gradient": {
        "fedsam + specgrad(0.05)": replace(make("fedsam"), spectral=OURS),
        "fedsam + gradient:high-pass(0.05)": replace(make("fedsam"), spectral=OURS),
    },
    "FedFFT, table 1: FedAvg, SCAFFOLD and FedDyn": {
        "fedsam(0.1) + high-pass(0.01)": make("fedfft"),
        "scaffold + sam(0.1)": make("fedgamma", rho=0.1),
        "scaffold + fedfft": make("fedfft-s"),
        "fedgamma(0.1) + high-pass(0.01)": make("fedfft-s"),
        "feddyn + sam(0.1)": make("fedspeed"),
        "feddyn + fedfft": make("fedfft-d"),
        "fedspeed + high-pass(0.01)": make("fedfft-d"),
    },
    "FedFFT, table 9: FedAWA with SAM clients": {
        "fedawa + fedsam(0.1)": replace(make("fedawa"), perturbation=SAM(0.1)),
        "fedawa + fedfft": replace(make("fedawa"), perturbation=SAM(0.1), spectral=FFT),
    },
    "FedFFT, table 11: FedPer": {
        "fedper + fedsam(0.1)": replace(make("fedper"), perturbation=SAM(0.1), aggregation=Uniform()),
        "fedper + fedfft": make("fedper-fft"),
    },
    "FedFFT, tables 3 and 8: other filters on the perturbation": {
        f"{host} + {line}": replace(make(host), spectral=Filters(perturbation=filter))
        for host in ("fedsam", "fedspeed")
        for line, filter in {
            "low-pass(0.01)": low_pass(0.01),
            "random-stop(0.01)": random_stop(0.01),
            "cap-norm(0.1)": cap_norm(0.1),
            "clip-coordinates": clip_coordinates(),
        }.items()
    },
    "FedFFT, table 13: the gradient of FedDyn": {"feddyn + high-pass(0.01)": make("gradfilter-feddyn")},
    "FedFSA, figure 3a: host + FSA": {
        "fedavg-ft + fsa(0.05, 0.9)": replace(make("fedavg-ft"), perturbation=RAISED),
        "fedala + fsa(0.05, 0.9)": replace(make("fedala"), perturbation=RAISED),
        "fedsam + fsa(0.05, 0.9)": replace(make("fedsam"), perturbation=RAISED),
        "fedspeed + fsa(0.05, 0.9)": replace(make("fedspeed"), perturbation=RAISED),
        "mofedsam + latest + fsa(0.05, 0.9)": make("fedfsa", rho=0.05, larger=0.9),
    },
    "FSA in the other hosts with SAM, or without a perturbation": {
        "scaffold + fsa": replace(make("scaffold"), perturbation=FSA()),
        "feddyn + fsa": replace(make("feddyn"), perturbation=FSA()),
        "fedgamma(0.1) + fsa": replace(make("scaffold"), perturbation=FSA()),
        "fedfft-d + fsa": replace(make("fedfft-d"), perturbation=FSA()),
        "fedlwsam(0.05) + fsa": replace(make("fedlwsam"), perturbation=FSA(0.05)),
    },
    "FedSCAM, section 4.2: FedLW with SAM, and the halves of FedSCAM": {
        "fedsam(0.05) + by-last-loss": make("fedlwsam", rho=0.05),
        "fedscam-wa + scored-sam": make("fedscam"),
    },
    "FedWMSAM, table 5: without the personalised momentum": {
        "fedcm(0.1) + sam(0.01)": make("mofedsam", rho=0.01),
    },
}
COMPOSED = [(line, algorithm) for rows in ROWS.values() for line, algorithm in rows.items()]


@pytest.mark.parametrize(("line", "expected"), COMPOSED, ids=[line for line, _ in COMPOSED])
def test_a_row_of_a_table_is_a_composition(line: str, expected: Algorithm) -> None:
    assert parse(line) == expected
    assert parse(text(expected)) == expected


def test_fsa_takes_over_what_its_term_leaves_out() -> None:
    """Only the radius of the chosen tensors changes: the host's rho and blend stay, and so do its other slots."""
    host = make("fedspeed", rho=0.03, mu=0.2, blend=0.5)
    changed = replace(host, perturbation=FSA(0.03, 0.9, blend=0.5))
    named = "fedspeed(rho=0.03, mu=0.2, blend=0.5)"
    assert parse(f"{named} + fsa(larger=0.9)") == parse(f"fsa(larger=0.9) + {named}") == changed
    assert parse(f"{named} + perturbation:fsa(0.1, 0.9, blend=1)").perturbation == FSA(0.1, 0.9)
    assert parse(f"{named} + fsa").drift == host.drift


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sam(0.05) + fsa", "'sam(0.05)' and 'fsa' both fill the perturbation slot"),
        ("fedlesam + fsa", "'fedlesam' and 'fsa' both fill"),
        ("fedsmoo + fsa", "'fedsmoo' and 'fsa' both fill"),
        ("fedgloss + fsa", "'fedgloss' and 'fsa' both fill"),
        ("fedsol + fsa", "'fedsol' and 'fsa' both fill"),
        ("fedfsa + fsa", "'fedfsa' and 'fsa' both fill"),
        ("fedsam + fsa + fedspeed", "'fsa' and 'fedspeed' both fill"),
    ],
)
def test_fsa_replaces_no_other_perturbation(line: str, message: str) -> None:
    """Neither a term of its own, nor a radius or a direction that FSA does not have; nor a second host."""
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(line)


def test_the_personal_model_of_fedfsa_is_not_part_of_the_plug_in() -> None:
    plugged = parse("mofedsam + fsa")
    assert plugged == replace(make("fedfsa"), personalization=plugged.personalization)
    assert make("fedfsa").personalization == Latest() and not plugged.personalized
