"""Own images, in folders images/train/CLASS and images/test/CLASS, and an own CNN; few classes at each client."""

from pathlib import Path

import numpy as np
from command_line import given
from PIL import Image
from torch import nn

from undrift import Local, TensorTask
from undrift.data import partition
from undrift.runs import start


class Net(nn.Sequential):
    """A convolution and a linear layer."""

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        body = (nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten())
        super().__init__(*body, nn.Linear(16 * 4 * 4, classes))


def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The images of a split, in grey, and the number of each one's class."""
    files = sorted(folder.glob("*/*.png"))
    images = [np.asarray(Image.open(file).convert("L"), np.float32)[None] / 255 for file in files]
    return np.stack(images), np.unique([file.parent.name for file in files], return_inverse=True)[1]


def task(folder: str = "images") -> TensorTask:
    """Six clients."""
    images, labels = read(Path(folder, "train"))
    clients = partition("dirichlet(0.3)", labels, clients=6, seed=0).clients
    return TensorTask(Net, images, labels, clients, test=read(Path(folder, "test")), name="own images")


if __name__ == "__main__":
    run = start(**given(__doc__), task=task(), method="scaffold", local=Local(lr=0.3, batch_size=20), resume=True)
    print(run.sha256, f"accuracy {run.summary['accuracy']:.2%}")
