"""Settings that depend on the model's size: one table, with the runs that its values are taken from.

`TrainerConfig.lr` and `SftConfig.lr` come from here where they are not set. The table is for full fine-tuning with
AdamW; a mixture of experts counts by all of its parameters. LoRA multiplies the rates of a row by `LORA_FACTOR`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDefaults:
    """Peak learning rates for models of at most `up_to` parameters."""

    up_to: float
    lr: float  # of rounds
    sft_lr: float  # of the cold start
    source: str


TABLE = (
    SizeDefaults(
        up_to=1e7,
        lr=4e-4,
        sft_lr=2e-3,
        source="models of two million parameters from random weights, measured with `weir demo`",
    ),
    SizeDefaults(
        up_to=4e8,
        lr=1e-5,
        sft_lr=3e-4,
        source="SFT: alignment-handbook's recipes/smollm2 (3e-4 for 1.7B, 1e-3 for 135M and 360M from base weights); "
        "rounds: between the rows above and below, as no published run is known",
    ),
    SizeDefaults(up_to=1.5e9, lr=3e-6, sft_lr=2e-5, source="prime-rl's examples/reverse_text, Qwen3-0.6B"),
    SizeDefaults(
        up_to=float("inf"),
        lr=1e-6,
        sft_lr=5e-6,
        source="rounds: GRPO on 7B (arXiv 2402.03300), DAPO on 32B (arXiv 2503.14476), slime's Qwen3-30B-A3B; SFT: "
        "Tulu 3 8B (arXiv 2411.15124)",
    ),
)

LORA_FACTOR = 10.0
LORA_SOURCE = "10 times the rate of full fine-tuning, for rounds and SFT: LoRA Without Regret (Thinking Machines, 2025)"


def size_defaults(num_parameters: int) -> SizeDefaults:
    """The row of the table for a model."""
    return next(row for row in TABLE if num_parameters <= row.up_to)


def default_lr(num_parameters: int, *, lora: bool) -> float:
    """The peak learning rate of rounds."""
    return _for_adapters(size_defaults(num_parameters).lr, lora)


def default_sft_lr(num_parameters: int, *, lora: bool) -> float:
    """The peak learning rate of the cold start."""
    return _for_adapters(size_defaults(num_parameters).sft_lr, lora)


def _for_adapters(lr: float, lora: bool) -> float:
    return float(f"{lr * LORA_FACTOR:.6g}") if lora else lr  # 3e-05, not 2.9999999999999997e-05
