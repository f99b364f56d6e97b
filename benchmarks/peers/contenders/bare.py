"""FedAvg and SCAFFOLD as one would write them in plain PyTorch, one client after the other in one process."""

import torch
from torch.nn.functional import cross_entropy

from turns import Turns
from work import CLIENTS, Data, Setting, cohort, initial


def run(turns: Turns, setting: Setting, data: Data, method: str, workers: int, shuffle: bool) -> None:
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg" or "scaffold".
        workers: must be 1.
        shuffle: whether clients shuffle their data.
    """
    if workers != 1:
        raise ValueError("the bare loop runs in one process: workers must be 1")
    model, draw, variates = initial(setting), torch.Generator().manual_seed(0), method == "scaffold"
    weights = list(model.parameters())
    server = [w.detach().clone() for w in weights]
    own: list[list[torch.Tensor] | None] = [None] * CLIENTS
    common = [torch.zeros_like(w) for w in server]
    clients = [data.own(client) for client in range(CLIENTS)]
    optimizer = torch.optim.SGD(weights, lr=setting.lr)
    round = 0

    def global_model() -> torch.nn.Module:
        with torch.no_grad():
            for w, value in zip(weights, server, strict=True):
                w.copy_(value)
        return model

    while turns.pause(global_model):
        sums = [torch.zeros_like(w) for w in server]
        change = [torch.zeros_like(w) for w in server]
        chosen = cohort(setting, round)
        for client in chosen:
            global_model()
            inputs, targets = clients[client]
            mine = own[client] or [torch.zeros_like(w) for w in server]
            order = torch.randperm(len(targets), generator=draw) if shuffle else torch.arange(len(targets))
            for batch in order.split(setting.batch):
                optimizer.zero_grad()
                cross_entropy(model(inputs[batch]), targets[batch]).backward()
                if variates:
                    for w, c, m in zip(weights, common, mine, strict=True):
                        w.grad.add_(c).sub_(m)
                optimizer.step()
            with torch.no_grad():
                for total, w in zip(sums, weights, strict=True):
                    total.add_(w)
                if variates:
                    scale = 1 / (setting.steps * setting.lr)
                    news = [m - c + scale * (s - w) for m, c, s, w in zip(mine, common, server, weights, strict=True)]
                    for total, new, old in zip(change, news, mine, strict=True):
                        total.add_(new).sub_(old)
                    own[client] = news
        server = [total / len(chosen) for total in sums]
        common = [c + total / CLIENTS for c, total in zip(common, change, strict=True)]
        round += 1
