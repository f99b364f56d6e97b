"""Methods as text: every algorithm and pair of blocks reads back, whatever composes trains, the rest is refused."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.registry import BLOCKS, FILTERS, HOSTS, SPECTRAL
from undrift import Algorithm, Local, make
from undrift.algorithms import ALGORITHMS
from undrift.blocks import (
    ASAM,
    SAM,
    ByAgreement,
    ByExamples,
    CommonRepresentation,
    CoordinateMedian,
    FedDyn,
    Filters,
    HeavyBall,
    Krum,
    LocalAdam,
    LocalSGD,
    Private,
    Proximal,
    Scaffold,
    ServerMomentum,
    StaleGlobal,
    Uniform,
    cap_norm,
    high_pass,
)
from undrift.cli.training.run import slug
from undrift.compose.grammar import parse, parts, text
from undrift.core.method.block import Block
from undrift.core.method.parts import by_part
from undrift.core.server import step as server
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.runs import Config, ConfigError
from undrift.testing import clinic, fingerprint
from undrift.testing.rounds import simulate_plain

SLOWED = Local(lr=0.05, decay=0.9, weight_decay=1e-3, epochs=1, batch_size=6)
VALUES = {**BLOCKS, "spectral": SPECTRAL}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedavg", Algorithm()),
        ("Scaffold", make("scaffold")),
        ("sam", Algorithm(perturbation=SAM())),
        ("fedavg + stale_global(0.2)", Algorithm(perturbation=StaleGlobal(0.2))),
        ("fedsam(0.05) + highpass(0.01)", make("fedfft", rho=0.05)),
        ("fedavg + highpass(0.1)", Algorithm(spectral=Filters(gradient=high_pass(0.1)))),
        ("scaffold + specgrad(0.01)", make("specgrad", r=0.01, host=make("scaffold"))),
        ("high-pass(0.1) + sam(1)", Algorithm(SAM(1.0), Filters(gradient=high_pass(0.1)))),
        (
            "sam + gradient:highpass(.1) + perturbation:cap-norm(inf)",
            Algorithm(SAM(), Filters(cap_norm(float("inf")), high_pass(0.1))),
        ),
        ("drift:scaffold", Algorithm(drift=Scaffold())),
        ("momentum:feddyn(mu=1) + drift:scaffold", Algorithm(drift=Scaffold(), momentum=FedDyn(1.0))),
        ("server-momentum(a = 0.5)+proximal", Algorithm(momentum=ServerMomentum(0.5), objective=Proximal())),
        ("heavy-ball(nesterov=True)", Algorithm(server_optimizer=HeavyBall(nesterov=True))),
        ("scaffold + by-examples", Algorithm(drift=Scaffold())),
        ("fedcr(latent=8) + sam(0.05)", replace(make("fedcr", latent=8), perturbation=SAM(0.05))),
        ("common-representation(3, 8)", Algorithm(objective=CommonRepresentation(3, 8))),
        ("fedawa + scaffold", Algorithm(drift=Scaffold(), aggregation=ByAgreement())),
        ("aggregation:krum(q=None)", Algorithm(aggregation=Krum(q=None))),
        ("private(['a + b', \"it's (c\"])", Algorithm(personalization=Private(("a + b", "it's (c")))),
        ("cap-norm(1e+3)", Algorithm(spectral=Filters(gradient=cap_norm(1e3)))),
    ],
)
def test_texts_mean_what_they_say(line: str, expected: Algorithm) -> None:
    assert parse(line) == expected
    assert parse(text(expected)) == expected


def test_any_host_takes_every_kind_of_part() -> None:
    built = parse("scaffold + sam(rho=0.05) + highpass(0.01) + fedawa + fedper")
    spectral = Filters(perturbation=high_pass(0.01))
    assert built == Algorithm(
        SAM(0.05), spectral, Scaffold(), aggregation=ByAgreement(), personalization=Private("last")
    )
    assert text(built) == (
        "perturbation:sam(rho=0.05) + perturbation:high-pass(r=0.01) + drift:scaffold + aggregation:by-agreement + "
        "personalization:private(names='last')"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "has an empty term"),
        ("scaffold + + sam", "has an empty term; write names joined by [+]"),
        ("scafold", "no algorithm, block or filter is named 'scafold'; did you mean 'scaffold'?"),
        ("qqq", "is named 'qqq'; known are fedavg, uniform"),
        ("momentm:feddyn", "no slot is named 'momentm'; did you mean 'momentum'?"),
        ("sam 0.1", "'sam 0.1': cannot be read from '0.1' on"),
        ("sam(rh=1)", r"'sam\(rh=1\)': .*unexpected keyword argument 'rh'; it takes rho: float = 0.1, blend"),
        ("scaffold(1)", "too many positional arguments; it takes no arguments"),
        ("highpass", "missing a required argument: 'r'"),
        ("sam(True)", "rho must be a number, got True"),
        ("heavy-ball(nesterov=1)", "nesterov must be true or false, got 1"),
        ("specgrad(filter='x')", r"filter must be .*Filter \| None, got 'x'"),
        ("sam(rho=open('x'))", "arguments are numbers, texts in quotes, True, .* got a name: open"),
        ("sam(rho=0.1, rho=0.2)", "rho is named twice; name it once"),
        ("sam(*(1,))", "cannot be read from"),
        ("sam(**{})", "cannot be read from"),
        ("sam(1)(2)", "write one pair of brackets"),
        ("sam(1", "cannot be read: a comma or"),
        ("sam(1,,)", "cannot be read: a value is missing"),
        ("sam(" + "-" * 1000 + "1)", "arguments are numbers|cannot be read"),
        ("sam" + " " * 2000, "at most 2000 characters, got 2003"),
        ("sam(-1)", "SAM: rho must be 0 or more and finite, got -1"),
        ("drift:fedgamma", "fedgamma is an algorithm and fills its own slots; write it without drift:"),
        ("drift:highpass(0.1)", r"a filter acts on the gradient or the perturbation: write gradient:high-pass\(0.1\)"),
        ("gradient:sam", "only filters act on the gradient; sam is a block"),
        ("fedawa + uniform", "'fedawa' and 'uniform' both fill the aggregation slot; leave one of them out"),
        ("sam + asam", "'sam' and 'asam' both fill the perturbation slot"),
        ("drift:scaffold + drift:feddyn(1)", r"leave one of them out, or write momentum:feddyn\(1\)"),
        ("fedfft + highpass(0.2)", r"both fill the filter on the perturbation.* or write gradient:high-pass\(0.2\)"),
        ("fedfft + whiten", "'fedfft' and 'whiten' both fill the spectral slot; .* or write what you"),
        ("gradient:center + whiten", "'gradient:center' and 'whiten' both fill the spectral slot; leave one of them"),
        ("whiten + gradient:center", "'whiten' and 'gradient:center' both fill the spectral slot"),
        ("feddyn + fedgamma", r"write what you want of fedgamma alone: perturbation:sam\(rho=0.01\) \+ drift:scaffold"),
    ],
)
def test_texts_that_cannot_be_used_say_what_to_write(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(line)


def test_impossible_combinations_raise_the_algorithms_own_message() -> None:
    with pytest.raises(TypeError, match=r"drift takes a Correction.*; SAM goes into perturbation"):
        parse("drift:sam")
    with pytest.raises(TypeError, match=r"in the perturbation slot; found none. Add one, as perturbation=SAM\(0.1\)"):
        parse("perturbation:highpass(0.1)")
    with pytest.raises(TypeError, match=r"needs momentum=AdaptiveMomentum\(...\); found none"):
        parse("momentum-path")


def test_every_algorithm_reads_back() -> None:
    for name in ALGORITHMS:
        algorithm = make(name)
        assert parse(text(algorithm)) == algorithm == parse(name), name
        assert text(parse(text(algorithm))) == text(algorithm)


@pytest.mark.sweep(every=0)
def test_all_pairs_of_blocks_read_back() -> None:
    pairs = [{one: a, other: b} for one, other in combinations(VALUES, 2) for a in VALUES[one] for b in VALUES[other]]
    read = Counter[str]()
    for pair in pairs:
        try:
            algorithm = Algorithm(**pair)  # type: ignore[arg-type]
        except TypeError:
            read["refused"] += 1
            continue
        assert parse(text(algorithm)) == algorithm
        read["read"] += 1
    assert read["read"] > 1000, read


def test_names_mean_one_thing() -> None:
    squeezed = [name.replace("-", "") for name in ALGORITHMS]
    assert len(squeezed) == len(set(squeezed))
    assert parts()["feddyn"] is FedDyn and parts()["q-fair"].__name__ == "QFair" and parts()["asam"] is ASAM


def test_a_block_of_ones_own_has_no_text() -> None:
    class Own(SAM):
        """A block that is not registered."""

    with pytest.raises(ValueError, match=r"Own is not in undrift\.blocks, so it cannot be written as text"):
        text(Algorithm(perturbation=Own()))


def term(slot: str, block: Block) -> str:
    """A block as a term; it may need another one in order to be built."""
    terms = text(replace(HOSTS.get(type(block), Algorithm()), **{slot: block})).split(" + ")  # type: ignore[arg-type]
    return next(found for found in terms if found.startswith(slot.replace("_", "-") + ":"))


CHANGED = [(slot, block) for slot, found in BLOCKS.items() for block in found if block != getattr(Algorithm(), slot)]
FILTERING = [text(Algorithm(spectral=Filters(gradient=f))) for f in FILTERS]
TERMS = [*(term(*pair) for pair in CHANGED), *FILTERING, *(line.partition(":")[2] for line in FILTERING)]
trained: Counter[str] = Counter()


@given(
    host=st.sampled_from(["", *ALGORITHMS]),
    terms=st.lists(st.sampled_from(TERMS), min_size=1, max_size=3, unique_by=lambda line: line.partition(":")[0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def compose_and_train(host: str, terms: list[str], seed: int) -> None:
    try:
        algorithm = parse(" + ".join([host, *terms] if host else terms))
    except (ValueError, TypeError):
        trained["refused"] += 1
        return
    assert parse(text(algorithm)) == algorithm
    local = replace(SLOWED, steps=2, epochs=1, buffers="keep") if algorithm.release.private else SLOWED
    simulation = simulate_plain(algorithm, clinic(algorithm), local, cohort=3, seed=seed)
    before = simulation.run(2)
    broadcast = server.send(algorithm, before, simulation.setting)
    uploads = []
    gate = Gate(algorithm, local, broadcast, clients := [2, 3, 5])
    for client in clients:
        upload = simulation.worker.visit(client, broadcast, before.accepted.get(client), gate)
        assert upload is not None, gate.rejections
        uploads.append(upload)
    ends = set()
    for order in ([[0, 1, 2]], [[2], [1, 0]]):
        gate = Gate(algorithm, local, broadcast, clients)
        total = gate.total()
        for group in order:
            part = gate.total()
            assert [gate.admit(uploads[i], part) for i in group] == [None] * len(group), gate.rejections
            total.merge(part)
        after = simulation.close(before, broadcast, total)
        ends.add(fingerprint(after))
    assert len(ends) == 1
    for name, x in wire.flatten(after).items():
        assert torch.isfinite(x.double()).all(), name
    trained["trained"] += 1


@pytest.mark.sweep(every=0)
def test_whatever_composes_trains_and_the_rest_is_refused() -> None:
    """500 compositions: each is refused when it is built, or trains to finite values in any order and grouping."""
    compose_and_train()
    assert trained["trained"] > 200 and trained["refused"] > 20, trained


def test_a_run_takes_a_composition() -> None:
    config = Config.build({"method": "scaffold + sam(rho=0.05)", "weights": "examples"})
    assert config.algorithm() == Algorithm(SAM(0.05), drift=Scaffold(), aggregation=ByExamples())
    assert Config.build({"method": "drift:scaffold"}).algorithm() == Algorithm(drift=Scaffold())
    with pytest.raises(ConfigError, match="arguments: a composition includes them"):
        Config.build({"method": "scaffold + sam", "arguments": {"rho": 0.1}})
    with pytest.raises(ConfigError, match="is named 'scafold'; did you mean 'scaffold'"):
        Config.build({"method": "scafold + sam"})
    with pytest.raises(ConfigError, match="method: drift takes a Correction"):
        Config.build({"method": "drift:sam"})


def test_a_composition_makes_a_safe_folder_name() -> None:
    assert slug("fedlesam-s") == "fedlesam-s"
    assert slug("scaffold + sam(rho=0.05)") == "scaffold-sam-rho-0.05"
    assert slug("private(('../a/*',))") == "private-..-a"
    assert len(slug("x" * 300)) == 80 and slug("(") == "run"


def test_uniform_weights_yield_only_with_an_algorithm() -> None:
    assert parse("scaffold + fedsam").aggregation == Uniform()
    assert parse("fedsam + median").aggregation == parse("median + fedsam").aggregation == CoordinateMedian()
    with pytest.raises(ValueError, match="'uniform' and 'by-examples' both fill the aggregation slot"):
        parse("uniform + by-examples")


@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(local_optimizer=by_part({"head.*": LocalSGD(0.5), "*": LocalAdam(moments="keep")})),
        Algorithm(drift=Scaffold(), aggregation=by_part({"body.*": Uniform(), "*": ByExamples()})),
        Algorithm(personalization=by_part({"head.*": Private("all")})),
    ],
    ids=repr,
)
def test_rules_by_part_are_written_and_read(algorithm: Algorithm) -> None:
    assert parse(text(algorithm)) == algorithm and repr(parse(text(algorithm))) == repr(algorithm)


def test_parts_that_cannot_be_read_are_explained() -> None:
    for wrong in ("by-part()", "by-part('head.*')", "by-part(uniform(), 'head.*')", "by-part(a='b')"):
        with pytest.raises(ValueError, match="write name patterns and blocks in turn"):
            parse(wrong)
    with pytest.raises(TypeError, match="by_part: give name patterns and blocks of one kind"):
        parse("by-part('head.*', uniform(), '*', local-sgd(0.9))")
    assert parse("scaffold + by-part('head.*', private('all'))").personalization.personalizes
