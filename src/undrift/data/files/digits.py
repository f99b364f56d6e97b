"""The data set that is always there: 1,797 handwritten digits of 8 x 8 pixels, in `digits.npz` beside this file.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998,
doi 10.24432/C50P49, licence CC BY 4.0. These are the images of its test set, in their order and with their values from
0 to 16, the same as in scikit-learn's `load_digits`.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.images import read_npz
from undrift.data.partitions.schemes import ranks

FILE = Path(__file__).with_name("digits.npz")

TRAINING = 0.8
"""The share of each class used for training. The rest are the last images, mostly of other writers."""


def read_digits(split: str) -> dict[str, NDArray[np.uint8]]:
    """The images of "train" or "test" as bytes, and their classes.

    Example:
        >>> {split: read_digits(split)["image"].shape for split in ("train", "test")}
        {'train': (1438, 8, 8), 'test': (359, 8, 8)}
    """
    images, labels = read_npz(FILE, "images"), read_npz(FILE, "labels").astype(np.int64)
    train = ranks(labels) < np.rint(TRAINING * np.bincount(labels))[labels]
    chosen = train if split == "train" else ~train
    return {"image": np.rint(images[chosen] * (255 / 16)).astype(np.uint8), "label": labels[chosen]}
