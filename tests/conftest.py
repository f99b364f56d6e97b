"""Every test runs on one thread, as a worker does."""

import torch

torch.set_num_threads(1)
