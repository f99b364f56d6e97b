"""CKA, cosines, PCA and t-SNE: against full Gram matrices, explicit sums over samples, and their invariances."""

import sys
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.rounds import close
from undrift.core.model.flat_model import Layout, bind
from undrift.lens import (
    CKAStream,
    align,
    cka,
    cka_matrix,
    class_means,
    class_separation,
    client_features,
    cosines,
    features,
    hsic,
    off_diagonal,
    pca,
    pca_of_gram,
    tensor_rows,
    tsne,
)
from undrift.models import resnet


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_cka(x: Tensor, y: Tensor) -> float:
    """HSIC of full, centred Gram matrices, by numpy."""
    n = len(x)
    h = np.eye(n) - np.ones((n, n)) / n
    k, m = (h @ (a.numpy() @ a.numpy().T) @ h for a in (x, y))
    return float(np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m)))


@pytest.mark.parametrize(("samples", "width"), [(30, 6), (8, 20)])
def test_cka_is_that_of_full_gram_matrices(samples: int, width: int) -> None:
    x, y = normal(samples, width), normal(samples, width + 3, seed=1) + 5
    y[:, :2] += x[:, :2]
    close(cka(x, y), slow_cka(x, y))
    close(cka_matrix([x, y, x + 1]), [[1, cka(x, y), 1], [cka(x, y), 1, cka(x, y)], [1, cka(x, y), 1]])


@pytest.mark.parametrize(("samples", "width"), [(40, 5), (6, 9)])
def test_cka_ignores_rotation_scale_and_origin(samples: int, width: int) -> None:
    x = normal(samples, width)
    turn = torch.linalg.qr(normal(width, width, seed=2))[0]
    close(cka(x, x), 1.0)
    close(cka(x, 3 * x @ turn - 7), 1.0)
    assert cka(x, normal(samples, width)[torch.randperm(samples, generator=torch.Generator().manual_seed(1))]) < 0.9
    assert cka(x, torch.ones(samples, 2)) == 0.0


def test_hsic_is_the_sum_over_all_choices_of_four_samples() -> None:
    """1/(n)_4 sum over distinct i,j,q,r of K_ij (L_ij + L_qr - 2 L_iq): the U-statistic, no formula in common."""
    x, y = normal(6, 3), normal(6, 4, seed=1)
    k, m = (x @ x.T).numpy(), (y @ y.T).numpy()
    terms = [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in permutations(range(6), 4)]
    found = hsic([x, y + 10])
    close(found[0, 1], np.mean(terms))
    close(found, found.T)


def test_minibatch_cka_has_no_bias_where_the_plain_one_has() -> None:
    """Independent wide features: plain CKA of small batches is far from zero, the sum over batches is not."""
    stream = CKAStream(2)
    plain = []
    for seed in range(300):
        x, y = normal(8, 30, seed=seed), normal(8, 30, seed=1000 + seed)
        stream.add([x, y])
        plain.append(cka(x, y))
    assert np.mean(plain) > 0.5
    assert abs(float(stream.matrix()[0, 1])) < 0.1
    close(stream.matrix().diagonal(), [1.0, 1.0])


def test_minibatch_cka_of_many_samples_nears_that_of_all_and_merges() -> None:
    x = normal(2000, 4)
    y = torch.tanh(x @ normal(4, 6, seed=1))
    parts = [CKAStream(2) for _ in range(3)]
    for n, (a, b) in enumerate(zip(x.split(50), y.split(50), strict=True)):
        parts[n % 3].add([a, b])
    one = CKAStream(2).merge(parts[0]).merge(parts[1]).merge(parts[2])
    other = parts[2].merge(parts[1].merge(parts[0]))
    close(one.matrix(), other.matrix(), 1e-12)
    assert one.batches == 40
    assert float(one.matrix()[0, 1]) == pytest.approx(cka(x, y), abs=0.01)


@torch.no_grad()
def test_features_are_the_input_of_the_classifier_and_pooled_layers() -> None:
    module = resnet(8).train()
    inputs = normal(10, 3, 16, 16).float()
    found = features(module, inputs, batch=4)["penultimate"]
    assert found.shape == (10, 64) and module.training
    close(module.linear(found), module.eval()(inputs), 1e-5)
    close(features(module, inputs, ["linear"])["linear"], module(inputs), 1e-5)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    images = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(2), nn.Identity())
    close(features(images, inputs, ["0"])["0"], images[0](inputs).mean(dim=(2, 3)), 1e-6)
    close(features(images, inputs, ["1"])["1"], images[1](images[0](inputs)).mean(dim=1), 1e-6)
    with pytest.raises(ValueError, match="Sequential has no linear layer; pass the names of layers"):
        features(images, inputs)
    with pytest.raises(ValueError, match="Sequential has no layer 'x'; it has 0, 1, 2"):
        features(images, inputs, ["x"])


def test_alignment_of_clients_by_layer_leaves_the_model_alone() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    before = [p.detach().clone() for p in module.parameters()]
    w = torch.cat([p.flatten() for p in before])
    models = torch.stack([w, w, w + normal(len(w), seed=4)])
    inputs = normal(25, 6, seed=5)
    found = align(client_features(module, models, inputs, ["0", "2"]))
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    for layer in ("0", "2"):
        close(found.matrices[layer].diagonal(), torch.ones(3))
        close(found.matrices[layer][0, 1], 1.0)
    bound = bind(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double())
    bound.w.copy_(models[2])
    close(found.matrices["2"][0, 2], slow_cka(module(inputs).detach(), bound.module(inputs).detach()))
    result = found.as_dict()
    close(result["2/mean"], (1 + 2 * found.matrices["2"][0, 2]) / 3)
    assert result["0/max"] == pytest.approx(1.0) and result["0/min"] < 1
    with pytest.raises(ValueError, match="align: a pair needs the features of two clients, got 1"):
        align([{"0": inputs}])


def test_cosines_and_what_they_tell() -> None:
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0], [-2.0, 0.0], [0.0, 0.0]])
    half = 0.5**0.5
    close(cosines(rows), [[1, half, -1, 0], [half, 1, -half, 0], [-1, -half, 1, 0], [0, 0, 0, 0]])
    result = off_diagonal(cosines(rows[:3]))
    close(result["mean"], -1 / 3)
    assert (result["min"], result["negative"]) == (-1.0, pytest.approx(2 / 3))  # type: ignore[comparison-overlap]
    with pytest.raises(ValueError, match=r"a pair needs two clients, got a matrix of shape \(1, 1\)"):
        off_diagonal(torch.ones(1, 1))


@pytest.mark.parametrize(("width", "rows"), [(50, 4), (5, 20)])
def test_pca_is_that_of_the_singular_values_of_both_groups_together(width: int, rows: int) -> None:
    groups = {"fedavg": normal(rows, width), "fedfft": 0.1 * normal(rows, width, seed=1) + 3}
    found = pca(groups)
    stacked = torch.cat(list(groups.values())).numpy()
    u, s, _ = np.linalg.svd(stacked - stacked.mean(axis=0), full_matrices=False)
    points = torch.cat(list(found.points.values()))
    close(points.abs(), np.abs(u[:, :2] * s[:2]), 1e-8)
    close(found.explained, s[:2] ** 2 / np.sum(s**2))
    assert bool((points.max(dim=0).values >= -points.min(dim=0).values).all())
    for name, part in groups.items():
        close(found.spread[name], (part - part.mean(dim=0)).norm(dim=1).mean())
    assert set(found.as_dict()) == {"explained/0", "explained/1", "spread/fedavg", "spread/fedfft"}


def test_pca_of_inner_products_keeps_distances() -> None:
    x = normal(6, 30)
    points, explained = pca_of_gram(x @ x.T, 5)
    close(torch.pdist(points), torch.pdist(x), 1e-8)
    close(sum(explained), 1.0)
    assert pca_of_gram(torch.zeros(3, 3))[1] == (0.0, 0.0)


def test_pca_errors_name_the_value() -> None:
    with pytest.raises(ValueError, match=r"pca: all groups must have rows of one length, got \{'a': 3, 'b': 4\}"):
        pca({"a": normal(2, 3), "b": normal(2, 4)})
    with pytest.raises(ValueError, match="pca: components must be between 1 and 2, got 3"):
        pca({"a": normal(2, 9)}, 3)
    with pytest.raises(ValueError, match=r"cka_matrix: features must be matrices.*got \[\(4, 2\), \(5, 2\)\]"):
        cka(normal(4, 2), normal(5, 2))
    with pytest.raises(ValueError, match="hsic: a batch must have 4 samples or more, got 3"):
        hsic([normal(3, 2)])
    with pytest.raises(ValueError, match="CKAStream: expected the features of 2 models, got 1"):
        CKAStream(2).add([normal(5, 2)])
    with pytest.raises(ValueError, match="2 models cannot be merged with 3"):
        CKAStream(2).merge(CKAStream(3))
    with pytest.raises(ValueError, match="no batch has been added yet; call add first"):
        CKAStream(2).matrix()


def test_rows_of_a_tensor_and_means_of_classes() -> None:
    layout = Layout(("a", "b"), ((2, 2), (3,)))
    v = torch.arange(14.0).view(2, 7)
    assert tensor_rows(v, layout, "b").tolist() == [[4, 5, 6], [11, 12, 13]]
    with pytest.raises(ValueError, match="no tensor is named 'c'; there are a, b"):
        tensor_rows(v, layout, "c")
    found = class_means(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 5.0]]), torch.tensor([0, 0, 2]), 3)
    assert found.tolist() == [2, 3, 0, 0, 5, 5]
    with pytest.raises(ValueError, match=r"one label per row of features, got \(2,\) for \(3, 2\)"):
        class_means(torch.ones(3, 2), torch.tensor([0, 1]), 3)


def test_separation_is_the_share_of_variance_between_classes() -> None:
    labels = torch.tensor([0, 1, 0, 1])
    assert class_separation(torch.tensor([[1.0, 0.0], [3.0, 0.0], [1.0, 0.0], [3.0, 0.0]]), labels) == 1.0
    assert class_separation(torch.tensor([[1.0], [1.0], [3.0], [3.0]]), labels) == 0.0
    assert class_separation(torch.ones(4, 2), labels) == 0.0
    x, mean = normal(30, 3).double(), normal(30, 3).double().mean(dim=0)
    kinds = torch.arange(30) % 4
    within = sum(float((x[kinds == k] - x[kinds == k].mean(dim=0)).square().sum()) for k in range(4))
    assert class_separation(x, kinds) == pytest.approx(1 - within / float((x - mean).square().sum()))
    with pytest.raises(ValueError, match=r"one label per row of features, got \(4,\) for \(30, 3\)"):
        class_separation(x, labels)


def test_tsne_separates_clusters_the_same_way_twice() -> None:
    pytest.importorskip("sklearn")
    x = torch.cat([normal(20, 5), normal(20, 5, seed=1) + 30])
    first, again = (tsne(x, perplexity=5.0) for _ in range(2))
    assert first.shape == (40, 2) and torch.equal(first, again)
    apart = (first[:20].mean(dim=0) - first[20:].mean(dim=0)).norm()
    assert apart > 2 * (first[:20] - first[:20].mean(dim=0)).norm(dim=1).mean()
    with pytest.raises(ValueError, match=r"perplexity must be positive and below the 40 rows, got 40"):
        tsne(x, perplexity=40.0)


def test_tsne_says_how_to_install_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(ImportError, match=r"tsne needs scikit-learn: pip install 'undrift\[analysis\]'"):
        tsne(normal(9, 2), perplexity=3.0)
