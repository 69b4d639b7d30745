"""The trained model: loads a Hugging Face folder, computes logprobs of targets, saves the folder.

Invariant: weights are float32 copies with torch's alignment, so that a model kept in memory and one loaded from disk
step to the same bits. With precision bfloat16 these are stepped, and their rounding is computed with and published.
Logits are computed for targets only.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import torch
from safetensors import SafetensorError
from torch.autograd.graph import save_on_cpu
from transformers import AutoModelForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter
from transformers.utils import logging as transformers_logging

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.batching import Batch, Layout
from weir.trainer.model.context_ranks import ContextRanks, part_of
from weir.trainer.model.direct_writer import DirectFile
from weir.trainer.model.expert_balance import BALANCED, ExpertBalance, balance_of
from weir.trainer.model.lora import LoraShape, add_adapters
from weir.trainer.model.ops.compiled_layers import compile_layers
from weir.trainer.model.ops.fused_norms import fuse_norms
from weir.trainer.model.ops.kept_mass import TruncationRows, kept_mass
from weir.trainer.model.ops.segment_attention import ATTENTION, can_pack
from weir.trainer.model.ops.token_logprobs import token_logprobs
from weir.trainer.model.routing_replay import RoutingReplay
from weir.trainer.versions.version_folder import FileEntry, copy_tokenizer

# Settings of a model that change its logits after the head; token_logprobs does not apply them.
_LOGIT_SETTINGS = ("final_logit_softcapping", "logits_scaling", "logit_scale")


Precision = Literal["float32", "bfloat16"]


class TargetLogprobs(NamedTuple):  # a tuple, in which sharded weights' hooks find the tensors
    """The model's logprobs and entropies at the N targets of a batch."""

    logprobs: torch.Tensor  # (N,) float32, with gradient
    entropy: torch.Tensor  # (N,) float32, in nats, with gradient
    kept: torch.Tensor | None = None  # (N, 2) of `kept_mass`, where it was asked for


class TokenModel(torch.nn.Module):
    """A causal language model that computes the logprobs of targets.

    With `offloads`, what its layers save for the backward pass waits in CPU memory; with `context`, ranks share the
    tokens of each batch.
    """

    context: ContextRanks | None = None
    replay: RoutingReplay | None = None  # of the experts that batches hold

    def __init__(self, network: Any, precision: Precision = "float32", *, offloads: bool = False) -> None:
        super().__init__()
        self.network = network
        self.offloads = offloads
        self.compute = getattr(torch, precision)
        self.packs = can_pack(network)
        if self.packs:
            network.set_attn_implementation(ATTENTION)
        if torch.cuda.is_available():
            fuse_norms(network)
        self.balance = balance_of(network.config.get_text_config())
        if self.balance is not None:
            _watch_routers(network, self.balance)

    @property
    def layers(self) -> list[torch.nn.Module]:
        """The layers, by which weights are sharded."""
        return list(self.network.base_model.layers)

    def compile_layers(self, backend: str = "inductor") -> None:
        """Have torch.compile fuse what each layer does. Raises `TrainerUsageError` where routers are watched."""
        if self.balance is not None:
            raise TrainerUsageError(
                "compile_layers does not go with a load-balancing loss, whose routers are watched; remove one of them"
            )
        compile_layers(self.layers, backend)

    def layout(self, *, share_prefixes: bool = True) -> Layout:
        """The layout of its batches."""
        if not self.packs:
            return Layout.PADDED
        return Layout.TREE if share_prefixes else Layout.PACKED

    def forward(
        self, batch: Batch, temperatures: torch.Tensor | None = None, truncation: TruncationRows | None = None
    ) -> TargetLogprobs:
        """Logprobs of the batch's targets under softmax(logits / temperature), and the entropies of the same.

        `temperatures` has shape (N,); None means 1. With `truncation`, for which they must be given, also the kept
        mass.
        """
        part = part_of(batch, self.context)
        if self.balance is not None:
            self.balance.often = part.batch.often.flatten()
        if self.replay is not None:
            self.replay.experts = None if part.batch.experts is None else part.batch.experts.flatten(0, 1)
        predicting = predicting_states(self.network.base_model, part.batch, self.compute, offloads=self.offloads)
        head = self.network.get_output_embeddings().weight.to(self.compute)
        at = None if temperatures is None else part.own(temperatures)
        logprobs, entropy = map(part.of_all, token_logprobs(predicting, head, part.batch.targets, at))
        kept = None
        if truncation is not None:
            assert temperatures is not None
            kept = kept_mass(part.of_all(predicting), head, batch.targets, temperatures, truncation)
        return TargetLogprobs(logprobs=logprobs, entropy=entropy, kept=kept)


def _watch_routers(network: Any, balance: ExpertBalance) -> None:
    """Have the balance see what every router chooses; copies of the network share it."""

    def routed(_: Any, __: Any, output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        logits, scores, chosen = output
        if not balance.is_active:
            return output
        assert balance.often is not None
        return logits, balance.routed(logits, scores, chosen, balance.often), chosen

    for part in network.modules():
        if isinstance(part, Qwen3MoeTopKRouter):
            part.register_forward_hook(routed)


def predicting_states(base: Any, batch: Batch, compute: torch.dtype, *, offloads: bool = False) -> torch.Tensor:
    """The hidden states that predict the batch's targets, shape (N, H), computed and returned in `compute`.

    With `offloads`, what the backward pass needs of them waits in CPU memory, which is pinned beside a GPU.
    """
    segments = {} if batch.segments is None else {"segments": batch.segments}
    device = batch.ids.device.type
    waiting = save_on_cpu(pin_memory=device == "cuda") if offloads else nullcontext()
    with waiting, torch.autocast(device, compute, enabled=compute is not torch.float32):
        hidden = base(input_ids=batch.ids, position_ids=batch.positions, use_cache=False, **segments).last_hidden_state
    states: torch.Tensor = hidden.flatten(0, 1)[batch.predictors].to(compute)
    return states


def choose_device(name: str) -> torch.device:
    """The device of a name; `auto` is CUDA if there is a GPU. Raises `TrainerUsageError` for CUDA without a GPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainerUsageError("device is cuda, and torch finds no GPU; set device = auto or cpu")
    return torch.device(name)


def is_finite(module: torch.nn.Module) -> bool:
    """Whether every weight is finite; of sharded weights, this rank's."""
    own = (getattr(parameter, "to_local", lambda p=parameter: p)() for parameter in module.parameters())
    return all(bool(weight.detach().isfinite().all()) for weight in own)


def load_model(
    folder: Path,
    device: torch.device,
    *,
    precision: Precision = "float32",
    checkpointing: bool = False,
    offloads: bool = False,
    lora: LoraShape | None = None,
    seed: int = 0,
) -> TokenModel:
    """Load a causal language model in float32. Raises `TrainerUsageError` when the folder holds none that is supported.

    With `checkpointing`, activations are recomputed in the backward pass, layer by layer, from the layers' inputs,
    which wait in CPU memory with `offloads`; with `lora`, it has new adapters, drawn from `seed`.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError) as error:
        raise TrainerUsageError(f"{folder} is not a Hugging Face model folder that loads: {error}") from error
    check_supported(network, folder)
    for parameter in network.parameters():
        parameter.data = parameter.data.clone()  # memory-mapped weights are aligned differently, and round differently
    if checkpointing:
        network.activation_checkpointing_enable({"use_reentrant": False})
    if lora is not None:
        add_adapters(network, lora, seed)
    return TokenModel(network.to(device).train(), precision, offloads=offloads)


def check_supported(network: Any, folder: Path) -> None:
    """Raise `TrainerUsageError` for a family whose logits are not its head's output, or with a loss of its own."""
    settings = network.config.get_text_config()
    check_losses(settings, folder)
    changed = [name for name in _LOGIT_SETTINGS if getattr(settings, name, None) not in (None, 1.0)]
    if network.get_output_embeddings().bias is not None:
        changed.append("bias of the head")
    if changed:
        raise TrainerUsageError(
            f"{folder}: logprobs of this model family are not supported ({', '.join(changed)}); train a model whose "
            "logits are its head's output, such as Qwen or Llama"
        )


def check_losses(settings: Any, folder: Path) -> None:
    """Raise `TrainerUsageError` where a model's configuration asks for a loss that is not computed."""
    if getattr(settings, "output_router_logits", False) and settings.model_type != BALANCED:
        raise TrainerUsageError(
            f"{folder}: its config.json asks for a load-balancing loss (output_router_logits), which is computed for "
            f"{BALANCED} and not for {settings.model_type}; set that to false to train without it"
        )


def save_model(
    model: TokenModel, target: Path, *, tokenizer_from: Path, weights: dict[str, torch.Tensor] | None = None
) -> None:
    """Write safetensors, configuration and the tokenizer's files into an existing folder, in the model's precision.

    Buffers, such as the biases by which DeepSeek-V3 chooses experts, stay float32, as they are computed with.
    `weights` is the whole state dict where the module's own is sharded. Raises OSError.
    """
    whole = model.state_dict() if weights is None else weights
    tied = {f"network.{name}" for name in model.network.all_tied_weights_keys}  # saved under another name
    buffers = {name for name, _ in model.named_buffers()}
    rounded = {
        name.removeprefix("network."): tensor if name in buffers else tensor.to(model.compute)
        for name, tensor in whole.items()
        if name not in tied
    }
    model.network.config.dtype = model.compute
    try:
        model.network.save_pretrained(target, state_dict=rounded)
    except SafetensorError as error:
        raise OSError(_unwritten(target, error)) from error
    copy_tokenizer(tokenizer_from, target)


def save_config(model: TokenModel, target: Path, *, tokenizer_from: Path) -> None:
    """Write what `save_model` writes besides the weights. Raises OSError."""
    model.network.config.dtype = model.network.dtype  # as save_pretrained writes it
    model.network.config.architectures = [type(model.network).__name__]
    model.network.config.save_pretrained(target)
    model.network.generation_config.save_pretrained(target)
    copy_tokenizer(tokenizer_from, target)


def save_state(state: dict[str, Any], file: Path) -> FileEntry:
    """Write state that only a restarted trainer reads, past the page cache. Raises OSError.

    On a full disk torch.save raises a RuntimeError about an unexpected file position.
    """
    try:
        with DirectFile(file) as written:
            torch.save(state, cast(IO[bytes], written))
    except RuntimeError as error:
        raise OSError(_unwritten(file, error)) from error
    return written.entry


def _unwritten(path: Path, error: Exception) -> str:
    free_mb = shutil.disk_usage(path.parent).free >> 20
    return f"{path.name} could not be written ({error}), {free_mb} MB are free"
