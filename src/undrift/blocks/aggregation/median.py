"""A rule that needs every upload apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from undrift.block import Aggregation
from undrift.types import Upload
from undrift.vector import Vector


@dataclass(frozen=True)
class CoordinateMedian(Aggregation):
    """server:  delta_j = median_i delta_ij; of an even number, the mean of the two in the middle"""

    gathers = True

    def combine(self, uploads: Sequence[Upload]) -> Vector:
        """Sort each coordinate."""
        ordered = torch.stack([upload.delta for upload in uploads]).sort(dim=0).values
        count = len(uploads)
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
