"""Gradient filters as explicit dense matrices acting on one numpy array (float64, any shape).

No FFT is called: a spectrum is a matrix of complex exponentials, a smoothing a circulant matrix.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

Array = np.ndarray


def bins_of(size: int) -> int:
    """Return the number of bins of the real transform: len = floor(d/2) + 1."""
    return size // 2 + 1


def cut_of(size: int, r: float) -> int:
    """Return the number of zeroed bins: n0 = floor(r*len + 1e-9)."""
    return math.floor(r * bins_of(size) + 1e-9)


@lru_cache(maxsize=64)
def keep_matrix(size: int, zeroed: frozenset[int]) -> Array:
    """P = Re(F^* diag(keep) F)/d, F the full DFT matrix; a zeroed bin k goes together with its mirror d-k."""
    n = np.arange(size)
    fourier = np.exp(-2j * np.pi * (np.outer(n, n) % size) / size)
    keep = np.ones(size)
    for k in zeroed:
        if not 0 <= k < bins_of(size):
            raise ValueError(f"bin {k} does not exist in a transform of {size} elements")
        keep[k] = 0.0
        keep[(size - k) % size] = 0.0
    out: Array = (fourier.conj().T @ (keep[:, None] * fourier)).real / size
    return out


def drop_bins(t: Array, bins: Iterable[int]) -> Array:
    """Zero the given real-transform bins of the row-major flattened tensor."""
    flat = np.asarray(t, dtype=np.float64).reshape(-1)
    zeroed = frozenset(int(k) for k in bins)
    if not zeroed:
        return flat.reshape(t.shape).copy()
    return (keep_matrix(flat.size, zeroed) @ flat).reshape(t.shape)


def high_pass(t: Array, r: float) -> Array:
    """H_r: zero bins 0 .. n0-1 (bin 0 is the mean)."""
    return drop_bins(t, range(cut_of(t.size, r)))


def low_pass(t: Array, r: float) -> Array:
    """High-frequency suppression: zero the last n0 bins, len-n0 .. len-1."""
    count = bins_of(t.size)
    return drop_bins(t, range(count - cut_of(t.size, r), count))


def circulant(size: int, kernel: dict[int, float]) -> Array:
    """M[i, (i+j) mod d] += kernel[j]: circular padding, offsets that wrap around add up."""
    matrix = np.zeros((size, size))
    for i in range(size):
        for offset, weight in kernel.items():
            matrix[i, (i + offset) % size] += weight
    return matrix


def detrend(t: Array, kernel: dict[int, float]) -> Array:
    """v - Smooth(v) on the flattened tensor."""
    flat = np.asarray(t, dtype=np.float64).reshape(-1)
    return (flat - circulant(flat.size, kernel) @ flat).reshape(t.shape)


def untouched(t: Array, r: float) -> bool:
    """Tell whether spatial detrending skips the tensor: d < 2/r (always for r = 0)."""
    return r == 0 or t.size < 2 / r


def lap_d(t: Array, r: float) -> Array:
    """LAP-D: v - moving average over the odd window nearest to 1.2067/r, circular."""
    if untouched(t, r):
        return np.array(t, dtype=np.float64)
    window = 2 * math.floor((1.2067 / r - 1) / 2 + 0.5) + 1
    half = window // 2
    return detrend(t, dict.fromkeys(range(-half, half + 1), 1.0 / window))


def gaussian(t: Array, r: float) -> Array:
    """GD: v - Gaussian smoothing, sigma = 0.3748/r, cut at radius ceil(4 sigma), normalised, circular."""
    if untouched(t, r):
        return np.array(t, dtype=np.float64)
    sigma = 0.3748 / r
    radius = math.ceil(4 * sigma)
    bell = {j: math.exp(-0.5 * (j / sigma) ** 2) for j in range(-radius, radius + 1)}
    total = sum(bell.values())
    return detrend(t, {j: value / total for j, value in bell.items()})


def rescale(t: Array, r: float) -> Array:
    """Return g * norm(H_r g)/norm(g): the size of the filtered tensor, the direction of the raw one."""
    size = math.sqrt(float((t * t).sum()))
    if size == 0:
        return np.array(t, dtype=np.float64)
    filtered = high_pass(t, r)
    return t * (math.sqrt(float((filtered * filtered).sum())) / size)


def clip_coordinates(t: Array, kappa: float) -> Array:
    """sign(v)*min(|v|, kappa*median|v|); for an even size the median is the mean of the two middle values."""
    ordered_sizes = sorted(abs(float(value)) for value in t.reshape(-1))
    count = len(ordered_sizes)
    median = (ordered_sizes[(count - 1) // 2] + ordered_sizes[count // 2]) / 2
    clipped = [math.copysign(min(abs(float(v)), kappa * median), float(v)) for v in t.reshape(-1)]
    return np.array(clipped).reshape(t.shape)


def ordered(t: Array, order: Sequence[int] | str, f: Callable[[Array], Array]) -> Array:
    """Read a 4-D tensor with axis order[0] outermost, order[3] fastest, apply f, write back; others: f(t)."""
    if t.ndim != 4:
        return f(t)
    axes = [int(axis) for axis in order]
    places = []
    for inner in product(*(range(t.shape[axis]) for axis in axes)):
        place = [0, 0, 0, 0]
        for axis, index in zip(axes, inner, strict=True):
            place[axis] = index
        places.append(tuple(place))
    values = f(np.array([t[place] for place in places], dtype=np.float64))
    out = np.empty(t.shape)
    for where, value in zip(places, values, strict=True):
        out[where] = value
    return out


def kernel_matrix(kh: int, kw: int, n0: int) -> Array:
    """Filter of one kernel: half-plane analysis, zero the n0 lowest bins by (radius, row, column), synthesis.

    Synthesis is that of a real inverse transform: x = sum_v c_v Re(V e^{+i..})/(kh kw), with c_v = 2 for the
    columns whose mirror is not stored, 1 for column 0 and (even kw) the last one. Where n0 cuts a tie between
    mirror bins (u,0) and (kh-u,0), dropping one of them halves that component: then this is no projection.
    """
    columns = kw // 2 + 1
    rows_f, columns_f = np.fft.fftfreq(kh), np.fft.rfftfreq(kw)
    bins = [(u, v) for u in range(kh) for v in range(columns)]
    by_radius = sorted(bins, key=lambda b: (round(math.hypot(rows_f[b[0]], columns_f[b[1]]), 12), b[0], b[1]))
    matrix = np.zeros((kh * kw, kh * kw))
    for u, v in by_radius[n0:]:
        multiplicity = 1 if v == 0 or 2 * v == kw else 2
        for a, b in product(range(kh), range(kw)):
            for p, q in product(range(kh), range(kw)):
                angle = 2 * math.pi * (u * (a - p) / kh + v * (b - q) / kw)
                matrix[a * kw + b, p * kw + q] += multiplicity * math.cos(angle) / (kh * kw)
    return matrix


def high_pass_2d(t: Array, r: float) -> Array:
    """Filter every (out, in) kernel in 2-D, n0 = max(1, floor(r*kh*(kw//2+1))); not 1x1 kernels.

    Non-4-D tensors keep high_pass. The max(1, .) holds at r = 0 too: there each kernel still loses its mean.
    """
    if t.ndim != 4:
        return high_pass(t, r)
    out = np.array(t, dtype=np.float64)
    kh, kw = t.shape[2], t.shape[3]
    if kh * kw == 1:
        return out
    matrix = kernel_matrix(kh, kw, max(1, math.floor(r * kh * (kw // 2 + 1))))
    for o, i in product(range(t.shape[0]), range(t.shape[1])):
        out[o, i] = (matrix @ out[o, i].reshape(-1)).reshape(kh, kw)
    return out
