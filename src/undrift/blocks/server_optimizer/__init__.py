"""What the server does with the displacement."""

from undrift.blocks.server_optimizer.adaptive import Adagrad, Adam, AMSGrad, Yogi
from undrift.blocks.server_optimizer.ahead import Ahead
from undrift.blocks.server_optimizer.heavy_ball import HeavyBall
from undrift.blocks.server_optimizer.last_two import LastTwo
from undrift.blocks.server_optimizer.queue import Queue
from undrift.blocks.server_optimizer.server_sam import ServerSAM
from undrift.core.method.defaults import Average

__all__ = ["AMSGrad", "Adagrad", "Adam", "Ahead", "Average", "HeavyBall", "LastTwo", "Queue", "ServerSAM", "Yogi"]
