"""Tables whose clients differ in a known way, for the study strict-tables: functions of the seed below, no files.

A row has 12 numbers that depend on a class and on a hidden state; `label_skew` gives clients unequal shares of the
five classes, `feature_shift` gives each client an own scale and offset of every column, as instruments have, and
`both` does both.
"""

import numpy as np
from numpy.typing import NDArray

CLIENTS, CLASSES, COLUMNS, ROWS, SEED = 30, 5, 12, 9000, 20
Table = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]


def label_skew() -> Table:
    """Inputs, classes and owners; the shares of classes differ between clients, Dirichlet 0.3."""
    return _table(skewed=True, shifted=False)


def feature_shift() -> Table:
    """Inputs, classes and owners; scales and offsets of columns differ between clients."""
    return _table(skewed=False, shifted=True)


def both() -> Table:
    """Inputs, classes and owners; shares of classes and columns differ between clients."""
    return _table(skewed=True, shifted=True)


def _table(skewed: bool, shifted: bool) -> Table:
    """The table: the same rows for all three functions, before owners and shifts."""
    draw = np.random.default_rng(SEED)
    centres = draw.normal(size=(CLASSES, 4))
    classes = draw.integers(CLASSES, size=ROWS)
    hidden = centres[classes] + draw.normal(size=(ROWS, 4))
    inputs = np.tanh(hidden @ draw.normal(size=(4, COLUMNS))) + 0.3 * draw.normal(size=(ROWS, COLUMNS))
    shares = draw.dirichlet(np.full(CLIENTS, 0.3), size=CLASSES) if skewed else np.full((CLASSES, CLIENTS), 1 / CLIENTS)
    owners = np.array([draw.choice(CLIENTS, p=shares[label]) for label in classes])
    if shifted:
        scales, offsets = np.exp(0.5 * draw.normal(size=(CLIENTS, COLUMNS))), draw.normal(size=(CLIENTS, COLUMNS))
        inputs = inputs * scales[owners] + offsets[owners]
    return inputs.astype(np.float32), classes, owners
