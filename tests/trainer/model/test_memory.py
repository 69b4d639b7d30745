"""The arithmetic of memory, compared with what torch holds: weights, gradients, moments, saved activations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support_model import Family, make_tiny_model
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import TrainerUsageError
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.model import shape as shapes
from weir.trainer.model.batching import Batch, Layout, lay_out
from weir.trainer.model.context_ranks import ContextRanks
from weir.trainer.model.memory import (
    FLOAT32,
    TrainingPlan,
    activation_bytes,
    logit_bytes,
    serving_memory,
    training_memory,
    usable,
)
from weir.trainer.model.shape import read_shape
from weir.trainer.model.token_model import TokenModel, load_model
from weir.trainer.settings.config import TrainerConfig

CPU = torch.device("cpu")
TOKENS = (256, 512)


def bytes_of(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.fixture
def one_of_two_ranks() -> Iterator[ContextRanks]:
    """A rank that shares tokens with another one, whose numbers never come."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)  # type: ignore[no-untyped-call]
    try:
        yield ContextRanks(rank=0, count=2, group=dist.group.WORLD)
    finally:
        dist.destroy_process_group()


def saved_bytes(
    folder: Path, plan: TrainingPlan, context: ContextRanks | None = None, *, balanced: bool = False
) -> int:
    """What autograd keeps between a forward and a backward pass, without the weights and what it sends elsewhere."""
    saving = {"checkpointing": plan.checkpointing, "offloads": plan.offload_activations}
    model = load_model(folder, CPU, precision=plan.precision, **saving)
    model.context = context
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept.setdefault(storage.data_ptr(), storage)
        return tensor

    ids = np.arange(plan.tokens + 1, dtype=np.int32) % 500
    row = SupervisedRow(ids=ids, targets=np.arange(plan.tokens + 1) > 0)
    batch = lay_out([row], Layout.PACKED, CPU)
    balance = nullcontext() if not balanced or model.balance is None else _added(model, batch)
    with balance, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(batch)
    assert output.logprobs.requires_grad
    return sum(storage.nbytes() for at, storage in kept.items() if at not in weights)


def _added(model: TokenModel, batch: Batch) -> AbstractContextManager[float]:
    """The load-balancing loss of the batch, which passes within the block add."""
    assert model.balance is not None
    return model.balance.added(lambda: model(batch.without_targets()), lambda own: [own], CPU)


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_that_are_loaded(tmp_path: Path, family: Family, tied: bool) -> None:
    folder = make_tiny_model(tmp_path / "model", family=family, tied=tied)
    model = load_model(folder, CPU)
    shape = read_shape(folder)
    assert shape.num_parameters == shape.num_active == sum(p.numel() for p in model.parameters())
    head = shape.vocabulary * shape.hidden
    assert shape.num_root_parameters == head * (1 if tied else 2) + shape.hidden


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_weights_gradients_and_moments_are_exact(
    tiny_model_dir: Path, optimizer: Literal["adamw", "adamw_8bit"]
) -> None:
    model = load_model(tiny_model_dir, CPU)
    stepper = Stepper(model, TrainerConfig(ema=0.9, optimizer=optimizer), lr=1e-4, weight_decay=0.0, ema=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    stepper.step()
    plan = TrainingPlan(tokens=1, average=True, eight_bit=optimizer == "adamw_8bit")
    memory = training_memory(read_shape(tiny_model_dir), plan)
    parameters = list(model.parameters())
    moments = [value for state in stepper.optimizer.state.values() for name, value in state.items() if name != "step"]
    assert stepper.average is not None
    assert memory.weights == bytes_of(parameters)
    assert memory.gradients == bytes_of([p.grad for p in parameters if p.grad is not None])
    assert memory.moments == bytes_of(moments)
    assert memory.average == bytes_of(stepper.average._means)


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_saved_activations_are_within_five_percent(
    tmp_path: Path, family: Family, precision: Literal["float32", "bfloat16"], checkpointing: bool
) -> None:
    folder = make_tiny_model(tmp_path / "model", family=family, hidden_size=128, num_layers=4)
    shape = read_shape(folder)
    plans = [TrainingPlan(tokens=tokens, precision=precision, checkpointing=checkpointing) for tokens in TOKENS]
    few, many = (saved_bytes(folder, plan) for plan in plans)
    in_half = precision == "bfloat16"
    expected = [activation_bytes(shape, plan) + logit_bytes(shape, plan.tokens, in_half=in_half) for plan in plans]
    if checkpointing:  # the layer that is recomputed is no saved tensor
        whole = TrainingPlan(tokens=TOKENS[1] - TOKENS[0], precision=precision)
        expected[1] -= activation_bytes(shape, whole) // shape.num_layers
    assert many - few == pytest.approx(expected[1] - expected[0], rel=0.05)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_rank_that_shares_tokens_saves_its_own_and_the_keys_of_all(
    tmp_path: Path, one_of_two_ranks: ContextRanks, precision: Literal["float32", "bfloat16"]
) -> None:
    folder = make_tiny_model(tmp_path / "model", hidden_size=128, num_layers=4)
    shape, in_half = read_shape(folder), precision == "bfloat16"
    plans = [TrainingPlan(tokens=tokens, precision=precision, sharers=2) for tokens in (512, 1024)]
    few, many = (saved_bytes(folder, plan, one_of_two_ranks) for plan in plans)
    expected = [activation_bytes(shape, plan) + logit_bytes(shape, plan.tokens // 2, in_half=in_half) for plan in plans]
    assert many - few == pytest.approx(expected[1] - expected[0], rel=0.05)


def test_inputs_of_layers_that_wait_in_cpu_memory_are_not_kept_on_the_device(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", hidden_size=128, num_layers=4)
    shape = read_shape(folder)
    plans = [TrainingPlan(tokens=512, checkpointing=True, offload_activations=is_on) for is_on in (False, True)]
    kept, left = (saved_bytes(folder, plan) for plan in plans)
    inputs, of_last_norm = 4 * 512 * 128 * 4, 2 * 512 * 128 * 4
    assert kept - left == pytest.approx(inputs + of_last_norm, rel=0.01)
    memory, moved = (training_memory(shape, plan) for plan in plans)
    assert memory.activations - moved.activations == inputs // 2 and moved.waiting == inputs
    assert moved.host - memory.host == inputs


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_saved_activations_of_experts_are_within_a_quarter_and_their_loss_keeps_what_is_counted(
    tmp_path: Path, precision: Literal["float32", "bfloat16"]
) -> None:
    sizes = {"hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    config = Qwen3MoeConfig(vocab_size=512, num_experts=8, num_experts_per_tok=2, **sizes, **heads)
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    of_experts = 4 * 8 * 3 * 128 * 64
    assert shape.num_parameters - shape.num_active == of_experts * 6 // 8
    plans = [TrainingPlan(tokens=tokens, precision=precision) for tokens in TOKENS]
    few, many = (saved_bytes(tmp_path, plan) for plan in plans)
    first, second = (training_memory(shape, plan) for plan in plans)
    expected = second.activations + second.logits - first.activations - first.logits
    assert many - few == pytest.approx(expected, rel=0.25)
    config.output_router_logits = True
    config.save_pretrained(tmp_path)
    with_loss = read_shape(tmp_path)
    shares = activation_bytes(with_loss, plans[1]) - activation_bytes(shape, plans[1])
    assert shares == 4 * TOKENS[1] * 8 * FLOAT32  # layers × tokens × experts
    kept = saved_bytes(tmp_path, plans[1], balanced=True) - many
    assert shares <= kept <= 1.15 * shares + 4 * 8 * FLOAT32  # besides, how often each token counts, and slopes


def test_the_phases_name_the_peak(tiny_model_dir: Path) -> None:
    shape = read_shape(tiny_model_dir)
    one = training_memory(shape, TrainingPlan(tokens=128))
    assert one.phases["step"] == 16 * shape.num_parameters
    assert one.peak == max(one.phases.values()) == one.phases["forward and backward"]
    four = training_memory(shape, TrainingPlan(tokens=128, processes=4))
    assert four.moments == one.moments // 4 and 4 * four.loading == one.loading == one.weights
    moved = training_memory(shape, TrainingPlan(tokens=128, offload_optimizer=True))
    assert one.phases["forward and backward"] - moved.phases["forward and backward"] == one.moments
    assert moved.host == one.host + one.moments


def test_weights_in_cpu_memory_leave_layers_and_activations_on_the_device(tiny_model_dir: Path) -> None:
    shape = read_shape(tiny_model_dir)
    one, moved = (training_memory(shape, TrainingPlan(tokens=128, offload_weights=is_on)) for is_on in (False, True))
    assert moved.peak == moved.gathered + moved.activations + moved.logits
    assert moved.host == 16 * shape.num_parameters
    assert one.peak - moved.peak == 8 * shape.num_parameters + one.moments - moved.gathered


def test_copies_of_the_model_share_its_rows_among_fewer_ranks(tiny_model_dir: Path) -> None:
    shape = read_shape(tiny_model_dir)
    copies = training_memory(shape, TrainingPlan(tokens=128, processes=8, replicas=4))
    assert copies == training_memory(shape, TrainingPlan(tokens=128, processes=2))


def test_serving_counts_the_cache_that_the_engine_allocates(tiny_model_dir: Path) -> None:
    shape = read_shape(tiny_model_dir)
    memory = serving_memory(shape, dtype="bfloat16", tokens=1000)
    assert memory.weights == 2 * shape.num_parameters
    assert memory.kv_per_token == 2 * 2 * shape.num_layers * shape.key
    assert memory.total == memory.weights + 1000 * memory.kv_per_token
    assert usable(100) == 92


def test_a_configuration_is_built_once_for_all_versions_that_have_it(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []
    build = shapes.empty_network
    monkeypatch.setattr(shapes, "empty_network", lambda folder: (built.append(folder), build(folder))[1])
    config = json.loads((tiny_model_dir / "config.json").read_text())
    wider = config | {"intermediate_size": config["intermediate_size"] + 8}
    found = []
    for version, of_version in (("1", config), ("2", config), ("3", wider)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.json").write_text(json.dumps(of_version | {"name_or_path": "of this test"}))
        found.append(read_shape(tmp_path / version))
    assert built == [tmp_path / "1", tmp_path / "3"]
    assert found[0] == found[1] and found[2].inner == found[0].inner + 8


def test_a_folder_without_a_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainerUsageError, match=r"it has no config\.json"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(TrainerUsageError, match="describes no causal language model"):
        read_shape(tmp_path)
