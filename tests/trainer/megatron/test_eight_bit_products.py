"""FP8 is refused by name where it cannot be computed; where it can, matrices and rows are those that it takes."""

from __future__ import annotations

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

from weir.trainer.backend import open_backend
from weir.trainer.errors import TrainerUsageError
from weir.trainer.megatron import eight_bit_products
from weir.trainer.megatron.eight_bit_products import check_capability, check_device, put_in_place
from weir.trainer.megatron.packed_row import pack
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.megatron import MegatronSettings


def named(spec: Any) -> list[type]:
    """All classes that a specification names."""
    own = [value for value in vars(spec).values() if isinstance(value, type)]
    return own + [
        each
        for value in vars(spec).values()
        if is_dataclass(value) and not isinstance(value, type)
        for each in named(value)
    ]


@pytest.mark.parametrize("experts", [None, 4])
def test_every_matrix_of_a_layer_is_replaced_and_nothing_else(experts: int | None) -> None:
    spec = get_gpt_layer_local_spec(qk_layernorm=True, normalization="RMSNorm", num_experts=experts)
    before = named(spec)
    others = {ColumnParallelLinear: torch.nn.Linear, RowParallelLinear: torch.nn.Bilinear}
    assert before.count(ColumnParallelLinear) == before.count(RowParallelLinear) == (2 if experts is None else 3)
    put_in_place(spec, others)
    assert named(spec) == [others.get(each, each) for each in before]


def test_what_is_not_installed_is_named_before_ranks_start(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eight_bit_products, "find_spec", lambda _: None)
    config = TrainerConfig(backend="megatron", precision="bfloat16", megatron={"fp8": "tensorwise"})  # type: ignore[arg-type]
    with pytest.raises(TrainerUsageError, match=r'fp8 = "tensorwise" .* Transformer Engine, which is not installed'):
        open_backend(tiny_model_dir, config, reference=tiny_model_dir)


def test_devices_that_cannot_compute_it_are_refused_by_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eight_bit_products, "find_spec", lambda _: True)
    check_device(MegatronSettings(), torch.device("cpu"))
    with pytest.raises(TrainerUsageError, match=r"needs a GPU of compute capability 8\.9, and this rank has no GPU"):
        check_device(MegatronSettings(fp8="delayed"), torch.device("cpu"))
    with pytest.raises(TrainerUsageError, match=r'"mxfp8" .* compute capability 10\.0, and this one has 9\.0'):
        check_capability(MegatronSettings(fp8="mxfp8"), (9, 0))
    for recipe in ("tensorwise", "delayed", "blockwise"):
        check_capability(MegatronSettings(fp8=recipe), (9, 0))


def test_fp8_without_weights_in_bfloat16_is_refused() -> None:
    with pytest.raises(ValueError, match=r'fp8 = "blockwise" .* set precision = bfloat16'):
        TrainerConfig(backend="megatron", megatron={"fp8": "blockwise"})  # type: ignore[arg-type]


class Ids:
    """A sequence of so many tokens, all but the first targets."""

    def __init__(self, length: int) -> None:
        self.ids = np.arange(length, dtype=np.int32)
        self.targets = np.arange(length) > 0


@pytest.mark.parametrize(("recipe", "multiple"), [(None, 1), ("tensorwise", 16), ("mxfp8", 32)])
def test_each_rank_has_so_many_tokens_of_a_row_as_products_in_fp8_take(recipe: Any, multiple: int) -> None:
    layout = MegatronSettings(tensor=2, context=2, fp8=recipe)
    for rank in range(2):
        row = pack(
            [Ids(8), Ids(14)],
            torch.device("cpu"),
            ranks=layout.context,
            rank=rank,
            tensor=layout.tensor,
            multiple=layout.token_multiple,
        )
        assert layout.token_multiple == multiple and row.ids.shape[1] % (2 * multiple) == 0
        assert row.ids.shape[1] == max(2 * multiple, 12)
        assert row.num_tokens == 20 and int(row.often.sum()) <= 20
