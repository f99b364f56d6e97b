"""A network with random features: an encoder to Gaussians, samples of them, and a linear head."""

import torch
from torch import Tensor, nn

from undrift.blocks.objective.gaussians import decode_gaussian
from undrift.models.cnn import cnn_body


class Variational(nn.Module):
    """A body, a layer of means and deviations, and a head on samples of these Gaussians.

        mu, sig = moments(body(x)), sig by softplus;   zeta_j = mu + sig eps_j;   output = 1/J sum_j log p(head(zeta_j))

    The output differs from the mean logits only by a constant per example, so it can be used as logits. In training
    every example has its own eps_j, from PyTorch's global stream as in dropout; in evaluation all examples share the
    same eps_j at every call, so that an output depends only on the example.

    Args:
        body: returns the features of a batch, (batch, features).
        features: how many features there are.
        latent: how many latent units.
        classes: how many outputs.
        samples: J; 0 takes the mean alone, without noise.

    Example:
        >>> Variational(nn.Flatten(), 16, latent=4, classes=3)(torch.zeros(2, 4, 4)).exp().sum(1) <= 1
        tensor([True, True])
    """

    noise: Tensor

    def __init__(self, body: nn.Module, features: int, latent: int = 512, classes: int = 10, samples: int = 18) -> None:
        super().__init__()
        if samples < 0:
            raise ValueError(f"Variational: samples must be 0 or more, got {samples}")
        self.body = body
        self.moments = nn.Linear(features, 2 * latent)
        self.head = nn.Linear(latent, classes)
        self.samples = samples
        fixed = torch.randn(samples, 1, latent, generator=torch.Generator().manual_seed(0))
        self.register_buffer("noise", fixed if samples else torch.zeros(1, 1, latent), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The mean log probabilities of a batch."""
        mean, deviation = decode_gaussian(self.moments(self.body(x)))
        noise = self.noise
        if self.training and self.samples:
            noise = torch.randn(self.samples, *mean.shape, dtype=mean.dtype, device=mean.device)
        scores: Tensor = self.head(mean + deviation * noise)
        return scores.log_softmax(dim=-1).mean(dim=0)


def variational_cnn(
    classes: int = 10,
    channels: int = 1,
    image: int = 28,
    *,
    latent: int = 512,
    samples: int = 18,
    body: str = "small-cnn",
) -> Variational:
    """A CNN up to its last hidden layer, then latent units and a head.

    Args:
        classes: how many outputs.
        channels: how many channels the images have.
        image: height and width of the images, 4 at least.
        latent: how many latent units.
        samples: how many samples are drawn per example, in training and in evaluation.
        body: "small-cnn", or "cnn", whose layers FedCR and FedFSA have.

    Example:
        >>> sum(p.numel() for p in variational_cnn().parameters())
        342858
    """
    encoder, features = cnn_body(body, classes, channels, image)
    return Variational(encoder, features, latent, classes, samples)
