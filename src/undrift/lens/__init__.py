"""Read-only instruments that measure what clients share and where they diverge. Each is a function of its arguments.

`client_vectors` computes clients' vectors at one model; `spread`, `consensus` and `filtering` analyse them by frequency
band, `divergence_by_layer`, `client_drift` and `cosines` as a whole; `align` compares the features of clients' models.
`removal_by_layer` gives the share of each layer that a filter removes, and of the variance between clients.
`heterogeneity` gives the norm of the gradient and its variance between and within clients.
For many clients, `BandStream`, `SpreadStream` and `GramStream` take one vector at a time. `EmpiricalLoss` is the loss
around a model, for `top`, `trace`, `sharpness` and `surface`.
"""

from undrift.lens.alignment import (
    Alignment,
    CKAStream,
    align,
    cka,
    cka_matrix,
    client_features,
    cosines,
    features,
    hsic,
    off_diagonal,
    outlets,
)
from undrift.lens.curvature import Eigen, Estimate, flatness, gradient_norm, hessian, sharpness, top, trace
from undrift.lens.divergence import (
    Divergence,
    Drift,
    ProductError,
    client_drift,
    divergence_by_layer,
    filtering,
    gradient_drift,
    product_errors,
)
from undrift.lens.embedding import Embedding, class_means, class_separation, pca, pca_of_gram, tensor_rows, tsne
from undrift.lens.landscape import EmpiricalLoss, Surface, colour_range, random_directions, surface, surfaces
from undrift.lens.removal import Removal, removal_by_layer
from undrift.lens.sketch import GramStream, SpreadStream
from undrift.lens.spectrum import BandConsensus, Spread, agreement, consensus, spread
from undrift.lens.stream import BandStream
from undrift.lens.variance import Heterogeneity, HeterogeneityStream, heterogeneity
from undrift.lens.vectors import client_vectors, sweep

__all__ = [
    "Alignment",
    "BandConsensus",
    "BandStream",
    "CKAStream",
    "Divergence",
    "Drift",
    "Eigen",
    "Embedding",
    "EmpiricalLoss",
    "Estimate",
    "GramStream",
    "Heterogeneity",
    "HeterogeneityStream",
    "ProductError",
    "Removal",
    "Spread",
    "SpreadStream",
    "Surface",
    "agreement",
    "align",
    "cka",
    "cka_matrix",
    "class_means",
    "class_separation",
    "client_drift",
    "client_features",
    "client_vectors",
    "colour_range",
    "consensus",
    "cosines",
    "divergence_by_layer",
    "features",
    "filtering",
    "flatness",
    "gradient_drift",
    "gradient_norm",
    "hessian",
    "heterogeneity",
    "hsic",
    "off_diagonal",
    "outlets",
    "pca",
    "pca_of_gram",
    "product_errors",
    "random_directions",
    "removal_by_layer",
    "sharpness",
    "spread",
    "surface",
    "surfaces",
    "sweep",
    "tensor_rows",
    "top",
    "trace",
    "tsne",
]
