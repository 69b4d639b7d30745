"""Attention over segments: heads repeated for kernels that want it, and what a GPU computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support_gradients import drifted_samples, make_models, whole_gradient
from support_ranks import rank_pair

from weir.trainer.model.ops import segment_attention as module
from weir.trainer.model.ops.prefix_tree import prefix_forest
from weir.trainer.model.ops.segment_attention import SegmentRow, segment_attention
from weir.trainer.settings.config import TrainerConfig

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
ALGORITHMS: list[dict[str, Any]] = [{"algorithm": "dapo", "kl": "k3", "kl_coef": 0.1}, {"algorithm": "ppo"}]


def row() -> SegmentRow:
    """Two sequences with a common prefix, the first continued twice."""
    common, one = list(range(20)), list(range(20, 45))
    sequences = [common + one, common + [50] * 9, common + one + [60] * 5, common + one + [70] * 7]
    return SegmentRow.of(prefix_forest([np.asarray(ids, np.int32) for ids in sequences], min_saved=1).segments)


@pytest.mark.parametrize("window", [None, 8])
def test_heads_that_are_repeated_give_what_grouped_heads_give(
    monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    segments, drawn = row(), torch.Generator().manual_seed(0)
    length = sum(segments.lengths)
    found = []
    for grouped in (True, False):
        monkeypatch.setattr(module, "takes_grouped_heads", lambda *_, grouped=grouped: grouped)
        drawn.manual_seed(0)
        heads = [torch.randn(1, n, length, 8, generator=drawn, requires_grad=True) for n in (6, 2, 2)]
        attended, _ = segment_attention(torch.nn.Module(), *heads, None, segments=segments, sliding_window=window)
        found.append([attended, *torch.autograd.grad(attended.square().sum(), heads)])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("window", [None, 8])
def test_a_packed_row_lists_the_keys_that_each_query_attends_to(window: int | None) -> None:
    """Attention in plain loops over the packed lists gives what segments give one by one."""
    segments, drawn = row(), torch.Generator().manual_seed(0)
    heads = [torch.randn(1, n, sum(segments.lengths), 8, generator=drawn) for n in (6, 2, 2)]
    expected, _ = segment_attention(torch.nn.Module(), *heads, None, segments=segments, sliding_window=window)
    packed = segments.packed(torch.device("cpu"))
    assert packed.keys is not None
    query, key, value = (tensor[0] for tensor in heads)
    key, value = (tensor[:, packed.keys].repeat_interleave(3, dim=0) for tensor in (key, value))
    found = []
    for piece in range(len(packed.query_ends) - 1):
        first, end = packed.query_ends[piece : piece + 2].tolist()
        low, high = packed.key_ends[piece : piece + 2].tolist()
        assert end - first <= packed.most_queries and high - low <= packed.most_keys
        for at in range(first, end):
            last = high - (end - at) + 1
            seen = slice(max(low, last - window) if window else low, last)
            scores = torch.einsum("hd,hkd->hk", query[:, at], key[:, seen]) / 8**0.5
            found.append(torch.einsum("hk,hkd->hd", scores.softmax(-1), value[:, seen]))
    assert torch.allclose(torch.stack(found)[None], expected, atol=1e-6)


@needs_gpu
@pytest.mark.parametrize("window", [None, 8])
def test_on_a_gpu_a_row_in_one_call_gives_what_its_segments_give(window: int | None) -> None:
    segments, drawn = row(), torch.Generator().manual_seed(0)
    whole = [torch.randn(1, n, sum(segments.lengths), 64, generator=drawn).cuda() for n in (6, 2, 2)]
    found = []
    for dtype in (torch.float32, torch.bfloat16):  # float32 goes segment by segment
        heads = [tensor.to(dtype).requires_grad_() for tensor in whole]
        attended, _ = segment_attention(torch.nn.Module(), *heads, None, segments=segments, sliding_window=window)
        found.append([attended, *torch.autograd.grad(attended.float().square().sum(), heads)])
    for exact, packed in zip(*found, strict=True):
        assert float((packed.detach().float() - exact.detach()).norm()) <= 1e-2 * float(exact.detach().norm())


@needs_gpu
@pytest.mark.parametrize("settings", ALGORITHMS)
def test_on_a_gpu_trees_have_the_gradient_of_single_sequences_and_of_the_cpu(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    models = make_models(tmp_path)
    config = TrainerConfig(device="cuda", **settings)
    samples = drifted_samples(models[0], config, seed=1)
    tree = whole_gradient(*models, config, samples)
    flat = whole_gradient(*models, config.model_copy(update={"share_prefixes": False, "token_budget": 40}), samples)
    on_cpu = whole_gradient(*models, config.model_copy(update={"device": "cpu"}), samples)
    for name, gradient in tree.items():
        assert float((gradient - flat[name]).norm()) <= 1e-5 * float(gradient.norm())
        assert float((gradient - on_cpu[name]).norm()) <= 1e-4 * float(gradient.norm())


@needs_gpu
@pytest.mark.parametrize("settings", ALGORITHMS)
def test_on_a_gpu_trees_have_the_gradient_of_single_sequences_in_bfloat16(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    models = make_models(tmp_path)
    config = TrainerConfig(device="cuda", precision="bfloat16", **settings)
    samples = drifted_samples(models[0], config, seed=1)
    tree = whole_gradient(*models, config, samples)
    flat = whole_gradient(*models, config.model_copy(update={"share_prefixes": False, "token_budget": 40}), samples)
    for name, gradient in tree.items():
        assert float((gradient - flat[name]).norm()) <= 2e-2 * float(gradient.norm())


@needs_gpu
def test_on_a_gpu_no_kernel_builds_the_scores_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kernel that does, attention still runs, in both precisions, with grouped heads and masks."""
    monkeypatch.setattr(module, "KERNELS", [kernel for kernel in module.KERNELS if kernel.name != "MATH"])
    segments = row()
    for dtype in (torch.float32, torch.bfloat16):
        heads = [
            torch.randn(1, n, sum(segments.lengths), 16, dtype=dtype, device="cuda", requires_grad=True)
            for n in (6, 2, 2)
        ]
        attended, _ = segment_attention(torch.nn.Module(), *heads, None, segments=segments)
        attended.square().sum().backward()  # type: ignore[no-untyped-call]


@needs_gpus
@pytest.mark.parametrize("settings", ALGORITHMS)
def test_two_gpus_have_the_gradient_of_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    models = make_models(tmp_path)
    config = TrainerConfig(device="cuda", token_budget=60, **settings)
    samples = drifted_samples(models[0], config, seed=1)
    alone = whole_gradient(*models, config, samples)
    with rank_pair("cuda") as pair:
        found = pair.whole_gradient(*models, config, samples)
    for name, gradient in alone.items():
        assert float((found[name] - gradient).norm()) <= 1e-5 * float(gradient.norm())
