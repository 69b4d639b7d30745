import torch
import torch.nn as nn


class Model(nn.Module):
    """The z-loss of a router, whose log-sum-exps are bounded, and the expert of each token."""

    def __init__(self, bound=50.0):
        super().__init__()
        self.bound = bound

    def forward(self, logits):
        lse = torch.logsumexp(logits, -1).clamp(-self.bound, self.bound)
        return (lse * lse).mean(), logits.argmax(-1)


T, E = 256, 32


def get_inputs():
    return [torch.randn(T, E) * 2]


def get_init_inputs():
    return []
