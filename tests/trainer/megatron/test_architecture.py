"""What Megatron-core's form of a model is refused for, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support_megatron_models import make_latent
from support_model import make_tiny_model

from weir.trainer.errors import TrainerUsageError
from weir.trainer.megatron.architecture import check_layout, check_reference, read_architecture
from weir.trainer.settings.megatron import MegatronSettings


def changed(folder: Path, **changes: Any) -> Path:
    """The folder, with other values in its config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def test_a_reference_of_the_same_form_is_taken(tmp_path: Path) -> None:
    model = read_architecture(make_tiny_model(tmp_path / "model"))
    check_reference(model, make_tiny_model(tmp_path / "other", seed=5))


def test_a_reference_of_another_form_is_refused_by_what_differs(tmp_path: Path) -> None:
    model = read_architecture(make_tiny_model(tmp_path / "model"))
    with pytest.raises(TrainerUsageError, match="differs from the trained model in tied"):
        check_reference(model, make_tiny_model(tmp_path / "untied", tied=False))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gemma2"}, "this is gemma2"),
        ({"hidden_act": "gelu"}, "hidden_act = gelu"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"output_router_logits": True}, "a load-balancing loss"),
    ],
)
def test_what_is_not_built_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    folder = changed(make_tiny_model(tmp_path / "model"), **changes)
    with pytest.raises(TrainerUsageError, match=named):
        read_architecture(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_interleave": False}, "rope_interleave = false"),
        ({"norm_topk_prob": False}, "norm_topk_prob = false"),
        ({"num_experts_per_tok": 3}, "num_experts_per_tok = 3 with topk_group = 2"),
    ],
)
def test_what_is_not_built_of_latent_attention_and_its_experts_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    folder = changed(make_latent(tmp_path / "model"), **changes)
    with pytest.raises(TrainerUsageError, match=named):
        read_architecture(folder)


def test_experts_are_not_divided_by_tensors_without_their_tokens(tmp_path: Path) -> None:
    folder = make_latent(tmp_path / "model")
    with pytest.raises(TrainerUsageError, match="tensor = 2 only with sequence = true"):
        check_layout(read_architecture(folder), MegatronSettings(tensor=2, sequence=False), folder)


@pytest.mark.parametrize(
    ("layout", "named"),
    [
        ({"tensor": 3}, "tensor = 3 does not divide"),
        ({"pipeline": 7}, "pipeline × chunks = 7 does not divide"),
        ({"pipeline": 2, "chunks": 2}, "pipeline × chunks = 4 does not divide the 2 layers"),
        ({"expert": 2}, "has no experts"),
    ],
)
def test_a_layout_that_cannot_divide_the_model_is_refused(tmp_path: Path, layout: dict[str, int], named: str) -> None:
    folder = make_tiny_model(tmp_path / "model")
    with pytest.raises(TrainerUsageError, match=named):
        check_layout(read_architecture(folder), MegatronSettings(**layout), folder)
