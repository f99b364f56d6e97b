"""What the server does with the displacement."""

from undrift.blocks.server_optimizer.heavy_ball import Average, HeavyBall

__all__ = ["Average", "HeavyBall"]
