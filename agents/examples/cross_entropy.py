"""Cross-entropy of each row of logits against one class index; the loss is not averaged.

In: logits (rows, classes) float32, targets (rows,) int64. Out: (rows,). Use the log-sum-exp with the row's maximum
taken out.
"""

import torch


class Model(torch.nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(9, 70) * 4.0, torch.randint(0, 70, (9,))]


def get_init_inputs() -> list[object]:
    return []
