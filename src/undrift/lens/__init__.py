"""Read-only instruments: what clients share and where they pull apart. Every one is a function of values.

`probe` takes clients' vectors at one model; `spread`, `consensus` and `filtering` read them band by band,
`divergence_by_layer`, `client_drift` and `cosines` as a whole; `align` compares what their models see. For many clients
`BandStream`, `SpreadStream` and `GramStream` take one vector at a time. `Objective` is the loss around a model, for
`top`, `trace`, `sharpness` and `surface`.
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
    client_drift,
    divergence_by_layer,
    filtering,
    gradient_drift,
)
from undrift.lens.embedding import Embedding, class_means, pca, pca_of_gram, tensor_rows, tsne
from undrift.lens.landscape import Objective, Surface, colour_range, random_directions, surface, surfaces
from undrift.lens.probing import probe, sweep
from undrift.lens.sketch import GramStream, SpreadStream
from undrift.lens.spectrum import Consensus, Spread, agreement, consensus, spread
from undrift.lens.stream import BandStream

__all__ = [
    "Alignment",
    "BandStream",
    "CKAStream",
    "Consensus",
    "Divergence",
    "Drift",
    "Eigen",
    "Embedding",
    "Estimate",
    "GramStream",
    "Objective",
    "Spread",
    "SpreadStream",
    "Surface",
    "agreement",
    "align",
    "cka",
    "cka_matrix",
    "class_means",
    "client_drift",
    "client_features",
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
    "hsic",
    "off_diagonal",
    "outlets",
    "pca",
    "pca_of_gram",
    "probe",
    "random_directions",
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
