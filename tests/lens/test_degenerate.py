"""What is not finite, points that are all the same, and layers that are called twice or never."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from undrift.blocks.spectral import high_pass
from undrift.core.model.flat_model import Layout
from undrift.lens import (
    BandStream,
    Divergence,
    GramStream,
    cka_matrix,
    class_separation,
    consensus,
    cosines,
    divergence_by_layer,
    features,
    filtering,
    outlets,
    pca,
    pca_of_gram,
    removal_by_layer,
    spread,
    tsne,
)

LAYOUT = Layout(("a", "b"), ((20,), (20,)))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_client_that_is_not_finite_is_named(value: float) -> None:
    """As zeros they would read as clients that share nothing, or that agree on everything."""
    vectors = normal(3, 40)
    vectors[1, 5] = value
    for measure in (
        lambda: cosines(vectors),
        lambda: spread(vectors, LAYOUT),
        lambda: consensus(vectors, LAYOUT),
        lambda: divergence_by_layer(vectors, LAYOUT),
        lambda: filtering(vectors, LAYOUT, high_pass(0.1)),
        lambda: removal_by_layer(vectors, LAYOUT, high_pass(0.1)),
        lambda: pca({"fedavg": vectors}),
        lambda: tsne(vectors, perplexity=1.0),
    ):
        with pytest.raises(ValueError, match="row 1 is not finite; if the model has diverged, measure an earlier"):
            measure()


def test_streams_and_features_that_are_not_finite_give_nan() -> None:
    bands, gram = BandStream(LAYOUT), GramStream(LAYOUT)
    for client, x in enumerate([normal(40), torch.full((40,), float("nan"))]):
        bands.add(client, x)
        gram.add(client, x)
    assert bands.consensus().ratio.isnan().all() and bands.consensus().overall["agreement"].isnan().all()
    assert gram.cosines()[0, 1].isnan() and gram.divergence().relative.isnan().all()
    with pytest.raises(ValueError, match="pca_of_gram: an inner product is not finite"):
        pca_of_gram(gram.gram())
    found = cka_matrix([normal(6, 2), torch.full((6, 2), float("nan")), normal(6, 2)])
    assert found[0, 1].isnan() and found[0, 2] == pytest.approx(1)
    assert class_separation(torch.full((4, 2), float("nan")), torch.tensor([0, 1, 0, 1])) != 0


def test_relative_divergence_of_nothing_is_zero_and_of_clients_that_cancel_infinite() -> None:
    none = divergence_by_layer(torch.zeros(2, 40), LAYOUT)
    assert none.as_dict()["relative"] == 0.0 == none.as_dict()["a/relative"]
    one = normal(1, 40)
    assert divergence_by_layer(torch.cat([one, -one]), LAYOUT).as_dict()["relative"] == float("inf")
    nan = torch.full((1,), float("nan"))
    assert Divergence(("a",), nan, nan, nan, nan).relative.isnan().all()


@pytest.mark.sweep(every=4)
def test_points_that_are_all_the_same_are_one_point() -> None:
    """In a process of its own: scikit-learn can end it where all points are the same."""
    pytest.importorskip("sklearn")
    code = """
import torch
from undrift.lens import tsne
print(tsne(torch.ones(20, 5), perplexity=5.0).tolist() == [[0.0, 0.0]] * 20)
small = 1e-42 * torch.arange(40.0, dtype=torch.float64).view(20, 2)
print(bool(tsne(small, perplexity=5.0).isfinite().all()))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.split() == ["True"] * 2, done


def test_a_map_of_few_points_and_of_one_feature() -> None:
    pytest.importorskip("sklearn")
    assert tsne(normal(2, 5), perplexity=0.5).isfinite().all()
    assert tsne(normal(12, 1), perplexity=3.0).shape == (12, 2)
    assert tsne(1e30 * normal(12, 3).double(), perplexity=3.0).isfinite().all()


class Tied(nn.Module):
    """A layer that is called twice, a head that is not the last to be defined, and one that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.shared, self.both = nn.Linear(4, 3), nn.Linear(4, 4), nn.LSTM(4, 4)
        self.drop, self.norm, self.never = nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.norm(self.shared(self.shared(x))))
        out: Tensor = self.head(self.both(x)[0] + x)
        return out


def test_a_layer_that_is_called_twice_has_one_row_for_each_input() -> None:
    model, x = Tied().eval(), normal(10, 4)
    found = features(model, x, ["shared"], batch=4)["shared"]
    assert torch.allclose(found, model.shared(model.shared(x)), atol=1e-6)


def test_features_before_the_classifier_are_those_of_the_last_linear_layer_that_is_called() -> None:
    model, x = Tied().eval(), normal(10, 4)
    inside = model.norm(model.shared(model.shared(x)))
    found = features(model, x, batch=10)["penultimate"]
    assert found.shape == (10, 4) and torch.allclose(found, model.both(inside)[0] + inside, atol=1e-6)


def test_a_layer_without_features_is_named() -> None:
    with pytest.raises(ValueError, match="features: Tied does not call its layer 'never'; choose another"):
        features(Tied(), normal(5, 4), ["never"])
    with pytest.raises(ValueError, match=r"features: the layer 'both' gives a tuple, no tensor; choose another"):
        features(Tied(), normal(5, 4), ["both"])


def test_stages_are_found_without_a_trace() -> None:
    model, stream = Tied().train(), torch.get_rng_state()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    assert "shared" in outlets(model, normal(5, 4)) and model.training and model.norm.training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), stream)


def test_features_are_those_before_a_layer_that_writes_in_place() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), normal(5, 4)
    assert torch.allclose(features(model, x, ["0"])["0"], model[0](x), atol=1e-6)
