"""FedWMSAM and FedSCAM: the numbers of the sheet and by hand, what always holds, and what may not be claimed."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle import seeds
from support.rounds import close, optimum, part_of, path, rounds_to, spy, watch
from undrift import Algorithm, Local, Simulation, cost
from undrift.algorithms import fedscam, fedscam_wa, fedwmsam, make
from undrift.blocks import AdaptiveMomentum, ByScore, Dampened, MomentumPath, ScoredSAM, ServerMomentum
from undrift.blocks.aggregation.score import cluster, losers
from undrift.blocks.momentum.adaptive import Blend
from undrift.blocks.score import Compass, Score, sketch
from undrift.core.method.view import Samples, ServerView, Setting
from undrift.core.model.flat_model import Layout
from undrift.core.records.types import Upload
from undrift.testing import Clinic, Quadratics

T2 = Quadratics.scalar((1, 3), (0, 4), 1.0, (1, 1))
TASK = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
LOCAL = Local(lr=0.05, epochs=5, batch_size=7)
UNEQUAL = Local(lr=0.05, decay=0.9, epochs=2, batch_size=2)
TWICE = Local(lr=0.1, epochs=2)


class Slopes(Quadratics):
    """Losses with constant gradients: the optima are the gradients."""

    def loss(self, model: nn.Module, batch: int) -> Tensor:
        return torch.cat([p.reshape(-1) for p in model.parameters()]) @ self.optima[batch]


def test_fedwmsam_on_the_toy_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    first, second = watch(fedwmsam(0.1, 0.5, 0.0), T2, TWICE, 2)
    looks = seen.steps[:4]
    assert looks[0].offset is None and looks[2].offset is None  # none at b = 0
    close([look.offset for look in looks if look.offset is not None], (0.1, -0.1))  # uphill, without momentum yet
    close([look.there for look in looks], (1, 1.05, -9, -7.95))
    close([look.w for look in looks], (1, 0.95, 1, 1.45))
    close(torch.cat([first.uploads[i].delta for i in (0, 1)]), (-0.1025, 0.8475))
    close(first.w, 1.3725)
    close(torch.cat(first.client("drift", "c")), (0.5125, -4.2375))
    close(torch.cat([second.uploads[i].delta for i in (0, 1)]), (0.2843375, 0.666725))
    close(second.w, 1.84803125)
    for frame, m in ((first, -1.8625), (second, -2.37765625)):
        close(part_of(frame.after, "drift").c, m)
        close(part_of(frame.after, "momentum").m, m)
        close([part_of(frame.uploads[i], "momentum").turn for i in (0, 1)], (0, 0))


def test_the_share_follows_how_far_clients_turn() -> None:
    # Slopes 1 and -3, so m = -1. Without momentum all agree, and a moves halfway to 0.1. Then client 0 descends along
    # 0.55 * 1 - 0.45 > 0, against m: it turns by 2, client 1 by 0, and a moves halfway to min(1, 0.9).
    task = Slopes([torch.zeros(1, 1)] * 2, [torch.tensor([g]).double() for g in (1.0, -3.0)], T2.start, [1, 1])
    algorithm = Algorithm(momentum=AdaptiveMomentum(1.0, 0.5))
    first, second, _ = watch(algorithm, task, Local(lr=0.1), 3)
    close([part_of(first.after, "momentum").a, part_of(second.after, "momentum").a], (0.55, 0.725))
    close([part_of(second.uploads[i], "momentum").turn for i in (0, 1)], (2, 0))
    close([part_of(first.after, "momentum").m, part_of(second.after, "momentum").m], (-1, -1))
    for frame in watch(algorithm, TASK, UNEQUAL, 8, cohort=3):
        old, new = part_of(frame.before, "momentum"), part_of(frame.after, "momentum").a
        turns = [1 - float(torch.cosine_similarity(-u.delta, old.m, dim=0)) for u in frame.uploads.values()]
        wanted = sum(turns) / 3 if old.m.any() else 0.0
        close(new, old.a / 2 + min(max(wanted, 0.1), 0.9) / 2)


@pytest.mark.parametrize(
    ("schedule", "rates", "walked"),
    [("cosine", (0.4, 0.2, 0.1), (0.4, 0.6)), (None, (0.4, 0.4, 0.4), (0.4, 0.8))],
)
def test_a_paced_path_is_as_long_as_the_steps_before(schedule: str | None, rates: Any, walked: Any) -> None:
    """w0 - w = (1, 0) and m = (0, 1), so the offset has the direction (1, the sum of the rates before)."""
    blend = Blend(torch.tensor([0.0, 1.0]), 0.5)
    block, local = MomentumPath(1.0, paced=True), Local(step_schedule=schedule)
    state, offsets = block.begin(None, None, None), []  # type: ignore[arg-type]
    for b, lr in enumerate(rates):
        known = {"w0": torch.tensor([1.0, 0.0]), "w": torch.zeros(2), "local": local}
        step = SimpleNamespace(step=b, lr=lr, peer=lambda slot, kind: blend if kind is Blend else None, **known)
        offsets.append(block.perturb(state, step))  # type: ignore[arg-type]
    assert offsets[0] is None
    close([offset[1] / offset[0] for offset in offsets[1:]], walked, 1e-6)  # type: ignore[index]


def test_variates_and_momentum_of_fedwmsam(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    for frame in watch(fedwmsam(0.2, 0.3, 0.4), TASK, UNEQUAL, 6, cohort=3):
        c, m = part_of(frame.before, "drift").c, part_of(frame.before, "momentum")
        close(part_of(frame.after, "drift").c, c / 2 + part_of(frame.after, "momentum").m / 2)  # s/N = 1/2
        for client, upload in frame.uploads.items():
            looks, seen.looks = seen.steps[: upload.steps], seen.steps[upload.steps :]
            mean = torch.stack([look.there for look in looks]).mean(0)
            held = [
                part_of(state, "drift").c for round, state in frame.states[client].items() if round < frame.before.round
            ]
            old = held[-1] if held else torch.zeros_like(c)
            close(frame.client("drift", "c")[client], m.a * mean + (1 - m.a) * (old - c + m.m))
    for frame in watch(fedwmsam(0.2), TASK, LOCAL, 4):
        close(part_of(frame.after, "drift").c, part_of(frame.after, "momentum").m)


@pytest.mark.sweep(every=4)
def test_fedwmsam_without_radius_reaches_the_optimum() -> None:
    away = path(fedwmsam(0.0, 0.5), TASK, replace(LOCAL, lr=0.1), 60)[-1] - optimum(TASK)
    assert float(away.norm()) < 1e-6


def test_the_path_of_the_momentum_needs_one() -> None:
    with pytest.raises(
        TypeError, match=r"MomentumPath\(.*\) reads .* momentum slot and needs momentum=AdaptiveMomentum"
    ):
        Algorithm(MomentumPath(), momentum=ServerMomentum())


def upload(examples: int, h: float, c: float, delta: Any = (1.0,), client: int = 0) -> Upload:
    empty = torch.empty(0)
    parts = {"aggregation": Score(h, c)}
    return Upload(client, 0, torch.tensor(delta).double(), examples, 1, 0.0, empty, empty, parts)


def test_scores_of_the_sheet() -> None:
    sam, rule, clients = ScoredSAM(0.05, 1.0), ByScore(1.0, 0.8), [Score(2.0, 0.5), Score(1.0, -0.5)]
    close([sam.steepness(score) for score in clients], (1.5, 1.25))
    weights = [rule.weigh(upload(n, *s), s, 0)[""] for n, s in zip((100, 300), clients, strict=True)]
    close(weights, (56, 80))
    rounds_to([weight / sum(weights) for weight in weights], "0.411765", "0.588235")
    radii = []
    for score in clients:
        # the pilot looks downhill: cos(-gradient, u) = c, and stands half a radius of h away
        g, points = torch.tensor([score.h, 0.0], dtype=torch.float64), list[Tensor]()
        u = sketch(torch.tensor([-score.c, 0.75**0.5], dtype=torch.float64), 256)
        start = SimpleNamespace(w0=torch.zeros(2).double(), data=lambda purpose: iter([0, 0]), report=lambda *_: None)
        start.gradient_at = lambda point, batch, g=g, points=points: (points.append(point.clone()), g.clone())[1]
        begun = sam.begin(Compass(u), None, start)  # type: ignore[arg-type]
        close(begun.score, score)
        radii += [begun.sam.rho, float(points[-1].norm())]
        assert len(points) == 3
    rounds_to(radii, "0.02", "0.008333", "0.022222", "0.0125")


def test_what_a_client_claims_bounds_its_weight() -> None:
    for h, c in [(-5.0, 9.0), (0.0, 1.0), (-1.0, 0.3), (1e30, -1e30)]:
        assert 0 <= ByScore(1.0, 0.8).weigh(upload(10, h, c), Score(h, c), 0)[""] <= 10 * 1.8


def test_the_gradients_of_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, original = [], Samples.gradient_at
    monkeypatch.setattr(Samples, "gradient_at", lambda self, *args: asked.append(args) or original(self, *args))  # type: ignore[func-returns-value]
    for name, looks in [("fedscam", 4), ("fedscam-sam", 4), ("fedscam-wa", 3)]:
        path(make(name), Quadratics.random(sizes=[9] * 6), Local(batch_size=1), 1)
        assert len(asked) == 6 * looks, name
        asked.clear()


def test_without_any_weight_examples_weigh() -> None:
    # lr = 1.5 overshoots: the first step leads from 1 below both optima, and back up is against it, so all S_i = 0.
    task = Quadratics.scalar((1, 1), (0, 0.1), 1.0, (1, 3))
    first, second = watch(fedscam_wa(1.0, 2.0), task, Local(lr=1.5, batch_size=4), 2)
    close([part_of(second.uploads[i], "aggregation").c for i in (0, 1)], (-1, -1))
    a, b = 1 / 2, 3 / 1.9  # n / (1 + h), h = 1 and 0.9
    w = 1 - 1.5 * (a * 1 + b * 0.9) / (a + b)
    close(first.w, w)
    close(second.w, w - 1.5 * (w + 3 * (w - 0.1)) / 4)


def test_running_statistics_stay_if_nobody_has_a_weight() -> None:
    class Nobody(ByScore):
        """Gives no client any weight."""

        def weigh(self, upload: Upload, up: Score, age: int) -> Mapping[str, float]:
            return {"": 0.0, "examples": float(upload.examples)}

    simulation = Simulation(Algorithm(aggregation=Nobody()), Clinic(), Local(batch_size=4))
    before = simulation.start()
    after = simulation.run(1, before)
    assert torch.equal(after.buffers, before.buffers) and not torch.equal(after.params, before.params)


def test_a_sketch_is_linear_and_keeps_cosines() -> None:
    draw = torch.Generator().manual_seed(1)
    a, b = torch.randn(2, 200, 3000, generator=draw, dtype=torch.float64)
    b = 0.5 * a + 0.75**0.5 * b
    close(sketch(2 * a[0] - 3 * b[0], 64), 2 * sketch(a[0], 64) - 3 * sketch(b[0], 64))
    close(sketch(a[0], 64), seeds.proj({"a": a[0]}, 64))
    for length in (256, 512):
        cosines = torch.stack(
            [torch.cosine_similarity(sketch(x, length), sketch(y, length), 0) for x, y in zip(a, b, strict=True)]
        )
        true = torch.cosine_similarity(a, b)
        assert abs(float((cosines - true).mean())) < 3 / (200 * length) ** 0.5
        assert 0.5 < float((cosines - true).std()) * length**0.5 < 1.2


def test_of_two_that_point_apart_the_shorter_is_dampened_once() -> None:
    x = torch.tensor([[1.0, 0], [-0.6, 0.8], [-0.6, -0.8], [0, 1]]).double()  # 0 against 1 and 2, 2 against 3
    assert losers(x, [3.0, 2.0, 1.0, 4.0], 1) == [False, True, True, False]
    assert losers(x, [1.0, 2.0, 1.0, 4.0], 1) == [True, False, True, False]
    assert losers(x[:2], [1.0, 1.0], 1) == [False, True]  # a tie
    assert losers(x, [3.0, 2.0, 1.0, 4.0], 4) == [False] * 4  # apart, but in clusters of their own
    assert len(set(cluster(x, 9).tolist())) == 4
    deltas = [(2.0, 0.0), (-1.0, 0.0)]
    uploads = [upload(10, 0.0, 0.0, delta, i) for i, delta in enumerate(deltas)]
    setting = Setting(2, Local(), Layout(("w",), ((2,),)))
    zero = torch.zeros(2)
    view: Any = ServerView(params=zero, w0=zero, setting=setting, round=0, cohort=2, state="kept")
    total, kept = Dampened(1.0, 0.8, clusters=1, damp=0.3).gather(uploads, [Score(0.0, 0.0)] * 2, view)
    close(total, ((2 - 0.3) / 2, 0))
    assert kept == "kept"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("algorithm", "found"),
    [
        (make("fedfsa"), (1, 2, 2, 1, 2, False)),
        (make("fedfsa-random"), (1, 2, 2, 1, 2, False)),
        (make("fedwmsam"), (1, 3, 3, 1, 1, False)),
        (fedwmsam(personalized=False), (0, 2, 2, 1, 1, False)),
        (make("fedscam"), (0, 1, 1, 1, 2, False)),
        (make("fedscam-sam"), (0, 1, 1, 1, 2, False)),
        (make("fedscam-wa"), (0, 1, 1, 1, 1, False)),
        (fedscam(clusters=2), (0, 1, 1, 1, 2, True)),
    ],
)
def test_costs(algorithm: Algorithm, found: tuple[int, ...]) -> None:
    c = cost(algorithm)
    assert (c.client_state, c.server_state, c.down, c.up, c.gradients_per_step, c.gathers) == found
    assert c.plain_sum is not c.gathers
