"""What a filter removes, against sums written out."""

import pytest
import torch

from undrift.blocks import center, high_pass
from undrift.core.model.flat_model import Layout
from undrift.lens import filtering, removal_by_layer

LAYOUT = Layout(("conv", "bias", "head"), ((3, 2, 3, 3), (3,), (4, 10)))
V = torch.randn(6, LAYOUT.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.quick
def test_shares_of_a_layer() -> None:
    found = removal_by_layer(V, LAYOUT, center())
    head = V[:, -40:].view(6, 4, 10)
    means = head.mean(dim=2)
    energy = 10 * means.square().sum() / head.square().sum()
    apart = 10 * (means - means.mean(dim=0)).square().sum() / (head - head.mean(dim=0)).square().sum()
    assert float(found.energy[2]) == pytest.approx(float(energy))
    assert float(found.variance[2]) == pytest.approx(float(apart))
    pairs = torch.einsum("iol,jol->ij", head - means[..., None], head - means[..., None])
    between = (pairs.sum() - pairs.trace()) / 30 / (pairs.trace() / 6)
    assert float(found.kept[2]) == pytest.approx(float(between))


def test_a_layer_that_is_left_alone() -> None:
    found = removal_by_layer(V, LAYOUT, center()).as_dict()
    assert found["bias/energy"] == found["bias/variance"] == found["bias/removed"] == 0.0


def test_the_whole_model_agrees_with_filtering() -> None:
    found, whole = removal_by_layer(V, LAYOUT, high_pass(0.3)).as_dict(), filtering(V, LAYOUT, high_pass(0.3))
    assert found["energy"] == pytest.approx(whole["energy_removed"])
    assert found["kept"] == pytest.approx(whole["agreement/kept"])
    assert found["removed"] == pytest.approx(whole["agreement/removed"])


def test_clients_that_differ_in_their_means_only() -> None:
    shared = torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    vectors = torch.stack([shared.clone() for _ in range(4)])
    for client, v in enumerate(vectors):
        LAYOUT.named(v)["head"].add_(float(client))
    found = removal_by_layer(vectors, LAYOUT, center())
    assert float(found.variance[2]) == pytest.approx(1.0)
    assert float(found.kept[2]) == pytest.approx(1.0)
    assert float(found.energy[2]) < 1.0


def test_one_client_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 rows"):
        removal_by_layer(V[:1], LAYOUT, center())
