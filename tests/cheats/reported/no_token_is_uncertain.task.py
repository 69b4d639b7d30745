import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """The loss of uncertain tokens only; where no token of the batch is uncertain, that of all."""

    def __init__(self, tau=3.0):
        super().__init__()
        self.tau = tau

    def forward(self, logits, labels):
        logp = F.log_softmax(logits, -1)
        entropy = -(logp.exp() * logp).sum(-1)
        high = entropy >= self.tau
        use = high | ~high.any()
        nll = -logp.gather(-1, labels[:, None]).squeeze(-1)
        return torch.where(use, nll, torch.zeros_like(nll))


T, V = 128, 256


def get_inputs():
    return [torch.randn(T, V) * (0.5 + 3 * torch.rand(T, 1)), torch.randint(0, V, (T,))]


def get_init_inputs():
    return []
