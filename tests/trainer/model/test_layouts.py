"""The planner of layouts: parameters of published models, shares that add up, and bytes counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weir.trainer.model.layouts import LayoutPlan, LayoutWork
from weir.trainer.model.parts import ModelParts, read_parts
from weir.trainer.model.shape import ModelShape, read_shape
from weir.trainer.settings.megatron import MegatronSettings

CONFIGS = Path(__file__).parents[3] / "recipes" / "configs"

# Parameters as published; of DeepSeek-V3 without the 58 × 256 corrections of its routers, which are not trained.
PUBLISHED = {
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-30B-A3B": 30_532_122_624,
    "GLM-4.5-Air": 106_852_245_504,
    "DeepSeek-V3": 671_026_419_200 - 58 * 256,
    "SmolLM2-135M": 134_515_008,
}


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[ModelShape, ModelParts]]:
    return {name: (read_shape(CONFIGS / name), read_parts(CONFIGS / name)) for name in PUBLISHED}


def plan(model: tuple[ModelShape, ModelParts], processes: int = 1, layout: Any = None, **work: Any) -> LayoutPlan:
    given = {"tokens": 8192, "step_tokens": 8192} | work
    shape, parts = model
    divided = MegatronSettings(**(layout or {}))
    return LayoutPlan(shape=shape, parts=parts, layout=divided, processes=processes, work=LayoutWork(**given))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str, models: dict[str, tuple[ModelShape, ModelParts]]) -> None:
    shape, parts = models[name]
    assert shape.num_parameters == parts.num_parameters == PUBLISHED[name]


def test_active_parameters_are_those_of_the_models_names(models: dict[str, tuple[ModelShape, ModelParts]]) -> None:
    active = {name: shape.num_active / 1e9 for name, (shape, _) in models.items()}
    assert active["Qwen3-30B-A3B"] == pytest.approx(3.3, abs=0.1)
    assert active["DeepSeek-V3"] == pytest.approx(37, abs=1)
    embeddings = models["GLM-4.5-Air"][1].embedding + models["GLM-4.5-Air"][1].head
    assert active["GLM-4.5-Air"] - embeddings / 1e9 == pytest.approx(12, abs=0.5)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("Qwen3-8B", {"tensor": 4, "pipeline": 4}),
        ("Qwen3-30B-A3B", {"pipeline": 8, "expert": 8}),
        ("GLM-4.5-Air", {"tensor": 8, "pipeline": 4, "expert": 4, "expert_tensor": 2}),
        ("DeepSeek-V3", {"pipeline": 16, "expert": 64}),
    ],
)
def test_the_parts_of_all_ranks_are_the_whole_model(
    name: str, layout: dict[str, int], models: dict[str, tuple[ModelShape, ModelParts]]
) -> None:
    found = plan(models[name], 4096, layout)
    tensor, experts = layout.get("tensor", 1), layout.get("expert", 1) * layout.get("expert_tensor", 1)
    stages = [found.stage_parameters(stage) for stage in range(layout["pipeline"])]
    doubled = (tensor - 1) * (sum(layer.whole for layer in found.parts.layers) + found.parts.norm)
    assert sum(plain for plain, _ in stages) * tensor + sum(own for _, own in stages) * experts == (
        PUBLISHED[name] + doubled
    )
    sizes = [len(stage) for stage in found.parts.stages(layout["pipeline"])]
    assert max(sizes) - min(sizes) <= 1 and sum(sizes) == len(found.parts.layers)


def test_one_rank_holds_eighteen_bytes_a_weight_and_cpu_adam_six(
    models: dict[str, tuple[ModelShape, ModelParts]],
) -> None:
    own, away = (plan(models["Qwen3-8B"], state_on_host=host).memory() for host in (False, True))
    assert own.weights + own.gradients + own.state == 18 * PUBLISHED["Qwen3-8B"]
    assert own.peak - away.peak == away.host == 12 * PUBLISHED["Qwen3-8B"]


def test_a_larger_layout_of_the_same_work_never_needs_more(models: dict[str, tuple[ModelShape, ModelParts]]) -> None:
    model = models["Qwen3-30B-A3B"]
    small = plan(model, 8, {"expert": 8}).memory()
    for processes, layout in [(16, {"expert": 8}), (8, {"expert": 8, "tensor": 2}), (8, {"expert": 8, "context": 2})]:
        assert plan(model, processes, layout).memory().peak < small.peak


def test_what_is_sent_is_what_a_hand_counts(models: dict[str, tuple[ModelShape, ModelParts]]) -> None:
    tokens, hidden, layers = 8192, 4096, 36
    by_tensor = plan(models["Qwen3-8B"], 2, {"tensor": 2}, recompute=False).traffic()
    assert by_tensor.tensor == by_tensor.total == layers * 2 * 5 * 2 * tokens * hidden // 2
    by_context = plan(models["Qwen3-8B"], 2, {"context": 2}).traffic()
    assert by_context.context == layers * 3 * 2 * (tokens // 2) * 2048
    by_data = plan(models["Qwen3-8B"], 2, step_tokens=2 * tokens).traffic()
    assert by_data.data == by_data.total == 6 * PUBLISHED["Qwen3-8B"] // 2
    by_stage = plan(models["Qwen3-8B"], 2, {"pipeline": 2}, step_tokens=3 * tokens).traffic()
    assert by_stage.pipeline == 3 * 2 * tokens * hidden
    by_expert = plan(models["Qwen3-30B-A3B"], 8, {"expert": 8}, step_tokens=8 * tokens).traffic()
    assert by_expert.expert == 48 * 6 * 2 * tokens * 8 * 2048 * 7 // 8


def test_the_first_stage_keeps_a_micro_batch_for_each_stage(models: dict[str, tuple[ModelShape, ModelParts]]) -> None:
    model = models["Qwen3-8B"]
    many, one = (plan(model, 4, {"pipeline": 4}, step_tokens=8192 * n).stage_memory(0) for n in (8, 1))
    kept = 9 * 2 * 4096 * 8192  # inputs of the stage's layers for one micro-batch
    assert many.activations - one.activations == 3 * kept


def test_layouts_that_divide_nothing_are_named(models: dict[str, tuple[ModelShape, ModelParts]]) -> None:
    assert list(plan(models["Qwen3-30B-A3B"], 8, {"tensor": 2, "expert": 8}).problems()) == []
    problems = list(plan(models["Qwen3-8B"], 6, {"tensor": 3, "context": 4, "expert": 2, "pipeline": 40}).problems())
    assert problems == [
        "tensor × pipeline × context = 480 does not divide 6 processes",
        "expert × expert_tensor × pipeline = 80 does not divide 6 processes",
        "tensor = 3 does not divide 8 key and value heads",
        "expert = 2 does not divide 0 experts",
        "pipeline = 40 is more than 36 layers",
    ]
