"""SGLang's checksums of a version's tensors: joined projections, the engine's type, and what differs is named."""

from __future__ import annotations

import hashlib

import pytest
import torch

from weir.trainer.publishing.sglang_checksums import differing

NAMES = ("q_proj", "k_proj", "v_proj", "o_proj")
TENSORS = {f"layers.0.{name}.weight": torch.full((2, 3), float(seed)) for seed, name in enumerate(NAMES)}


def sum_of(*numbers: int, dtype: torch.dtype) -> str:
    values = torch.cat([torch.full((6,), float(number)) for number in numbers]).to(dtype)
    return hashlib.sha256(values.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def held_by_sglang(dtype: torch.dtype) -> dict[str, str]:
    qkv, out = sum_of(0, 1, 2, dtype=dtype), sum_of(3, dtype=dtype)
    return {"layers.0.qkv_proj.weight": qkv, "layers.0.o_proj.weight": out, "layers.0.scale": "of SGLang alone"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_differs_is_named_by_sglangs_own_names(dtype: str) -> None:
    held = held_by_sglang(getattr(torch, dtype))
    for known in (dtype, "auto"):
        assert differing(held, TENSORS, TENSORS.__getitem__, known) == []
        wrong = held | {"layers.0.qkv_proj.weight": sum_of(0, 2, 1, dtype=getattr(torch, dtype))}
        assert differing(wrong, TENSORS, TENSORS.__getitem__, known) == ["layers.0.qkv_proj.weight"]
    other = "float32" if dtype != "float32" else "float16"
    assert len(differing(held, TENSORS, TENSORS.__getitem__, other)) == 2
