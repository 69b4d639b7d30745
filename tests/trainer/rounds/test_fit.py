"""Rounds that cannot fit their device are refused before anything is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.division import Division
from weir.trainer.model.memory import TrainingPlan, training_memory, usable
from weir.trainer.model.shape import read_shape
from weir.trainer.rounds import fit
from weir.trainer.trainer import Trainer

CONFIGS = Path(__file__).parents[3] / "recipes" / "configs"


def test_a_round_that_cannot_fit_is_refused_with_what_would_and_claims_nothing(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_group(store, tiny_model_dir, "g", [0.0, 0.3, 1.0])
    needed = training_memory(read_shape(tiny_model_dir), TrainingPlan(tokens=4096)).certain
    room = needed + needed // 8
    monkeypatch.setattr(fit, "device_bytes", lambda device: room - room // 4)
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    with pytest.raises(TrainerUsageError, match=r"moments need .* can be used; nothing was claimed\. What would fit: "):
        trainer.run_round()
    assert trainer.catalog.open_round() is None
    monkeypatch.setattr(fit, "device_bytes", lambda device: room)
    assert trainer.run_round() is not None
    trainer.close()


def test_what_is_certain_depends_on_no_micro_batch(tiny_model_dir: Path) -> None:
    shape = read_shape(tiny_model_dir)
    short, long = (training_memory(shape, TrainingPlan(tokens=tokens)) for tokens in (1, 100_000))
    assert short.certain == long.certain == 16 * shape.num_parameters
    assert long.peak > 10 * long.certain


def test_an_8b_on_one_gpu_is_sent_to_cpu_memory_with_what_else_it_takes() -> None:
    shape = read_shape(CONFIGS / "Qwen3-8B")
    plan = TrainingPlan(tokens=32768, precision="bfloat16", checkpointing=True)
    capacity = 79 << 30
    assert training_memory(shape, plan).peak > 2 * capacity
    (found,) = (text for text in fit.remedies(shape, plan, capacity) if "offload_weights" in text)
    assert found == "trainer.offload_weights = true"
    moved = training_memory(shape, replace(plan, offload_weights=True))
    assert moved.peak <= usable(capacity) and moved.host == 16 * shape.num_parameters
    (found,) = (
        text
        for text in fit.remedies(shape, replace(plan, checkpointing=False), capacity, shortest=plan.tokens)
        if "offload_weights" in text
    )
    assert found == "trainer.offload_weights = true with trainer.gradient_checkpointing = true"


def test_a_divided_30b_on_eight_gpus_is_sent_to_the_optimiser_in_cpu_memory() -> None:
    shape = read_shape(CONFIGS / "Qwen3-30B-A3B")
    division = Division(processes=8, tensor=2, expert=8)
    plan = TrainingPlan(tokens=32768, precision="bfloat16", checkpointing=True, processes=8, division=division)
    capacity = 79 << 30
    (found,) = (text for text in fit.remedies(shape, plan, capacity) if "fraction" in text)
    assert found == "trainer.megatron.optimizer_offload_fraction = 1.0"
    on_device, half, all_of_it = (
        training_memory(shape, replace(plan, average=True, stepped_on_host=share)) for share in (0.0, 0.5, 1.0)
    )
    owned = on_device.average // 4
    assert all_of_it.moments == all_of_it.average == 0
    assert on_device.weights - all_of_it.weights == 4 * owned, "float32 copies of weights in bfloat16"
    assert all_of_it.host - on_device.host == (4 + 4 + 8 + 4) * owned, "weights, gradients, moments, average"
    assert half.phases["step"] - all_of_it.phases["step"] == pytest.approx(8 * owned, rel=1e-6)


def test_long_sequences_are_sent_to_recomputation_from_cpu_memory() -> None:
    shape = read_shape(CONFIGS / "SmolLM2-135M")
    plan = TrainingPlan(tokens=1 << 19, precision="bfloat16", checkpointing=True)
    memory, moved = (training_memory(shape, replace(plan, offload_activations=is_on)) for is_on in (False, True))
    capacity = 1 << 30
    while usable(capacity) < moved.peak:
        capacity += 1 << 28
    assert usable(capacity) < memory.peak
    assert "trainer.offload_activations = true" in fit.remedies(shape, plan, capacity, shortest=plan.tokens)


def test_ranks_that_gather_half_are_named_where_they_help(tiny_model_dir: Path) -> None:
    shape = read_shape(tiny_model_dir)
    plans = [
        TrainingPlan(tokens=1, precision="bfloat16", processes=8, checkpointing=True, gathers_half=half)
        for half in (False, True)
    ]
    whole, half = (training_memory(shape, plan).certain for plan in plans)
    assert half < whole
    capacity = (half + whole) // 2
    capacity += capacity - usable(capacity)
    found = list(fit.remedies(shape, plans[0], capacity, shortest=1, measure=lambda memory: memory.certain))
    assert found[0] == 'trainer.gather_precision = "bfloat16"'


def test_more_ranks_still_share_micro_batches_and_copies_evenly() -> None:
    shape = read_shape(CONFIGS / "SmolLM2-135M")
    plan = TrainingPlan(tokens=1, processes=6, replicas=2, sharers=3)
    few, many = (training_memory(shape, replace(plan, processes=count)).certain for count in (6, 12))
    capacity = (few + many) // 2
    capacity += capacity - usable(capacity)
    found = list(fit.remedies(shape, plan, capacity, shortest=1, measure=lambda memory: memory.certain))
    assert "trainer.processes = 12 (a GPU for each)" in found


def test_moments_of_8_bits_are_named_where_they_are_enough() -> None:
    shape = read_shape(CONFIGS / "SmolLM2-135M")
    plan = TrainingPlan(tokens=1)
    whole, coded = (training_memory(shape, replace(plan, eight_bit=is_on)) for is_on in (False, True))
    assert coded.moments == pytest.approx(2.125 * shape.num_parameters, rel=1e-3)
    assert whole.peak - coded.peak == whole.moments - coded.moments
    capacity = coded.peak + coded.peak // 10
    found = list(fit.remedies(shape, plan, capacity, shortest=1))
    assert 'trainer.optimizer = "adamw_8bit"' in found
