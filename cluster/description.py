"""A described cluster: members, model, costs, rules and workload, as one TOML file.

Costs are physical: bytes and FLOPs divided by what a device gives, times shares that were measured. `weir simulate
--calibrate` prints the section `[costs]` that fits the calls of a store.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from weir.cluster.due import checked_rules
from weir.cluster.errors import ClusterInvalid
from weir.cluster.state import Tag


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Device(_Section):
    """A kind of accelerator: what its data sheet says."""

    flops: float = Field(gt=0, description="Dense FLOP/s in the training dtype.")
    bandwidth: float = Field(gt=0, description="Bytes a second from its memory.")
    memory_gb: float = Field(gt=0, description="Memory in 10^9 bytes.")


class MemberGroup(_Section):
    """Equal members."""

    kind: str = Field(description="A name in [devices].")
    count: int = Field(ge=1, description="How many.")
    tags: tuple[Tag, ...] = Field(default=(Tag.ROLLOUT, Tag.TRAIN), description="What they can do.")
    train_priority: float | None = Field(default=None, description="Higher trains first; by roofline if not given.")


class Model(_Section):
    """The model that generates and is trained."""

    params: float = Field(default=7.6e9, gt=0, description="Parameters in memory.")
    active_params: float | None = Field(
        default=None, gt=0, description="Parameters that a token uses; all if not given."
    )
    bytes_per_param: float = Field(default=2.0, gt=0, description="Bytes of a parameter in an engine.")
    kv_bytes_per_token: float = Field(default=57_344, ge=0, description="KV cache of a token, over all layers.")

    @property
    def flops_per_token(self) -> float:
        """FLOPs of a forward pass for one token."""
        return 2.0 * (self.active_params or self.params)


class Costs(_Section):
    """What things cost, in seconds or as shares of a device's peak. `None`: worked out from device and model."""

    decode_bandwidth: float = Field(default=0.7, gt=0, le=1, description="Share of peak bandwidth while decoding.")
    decode_flops: float = Field(
        default=0.5, gt=0, le=1, description="Share of peak FLOP/s while decoding large batches."
    )
    prefill_flops: float = Field(default=0.5, gt=0, le=1, description="Share of peak FLOP/s of prefill.")
    train_flops: float = Field(default=0.35, gt=0, le=1, description="Share of peak FLOP/s of training.")
    kv_memory: float = Field(
        default=0.85, gt=0, le=1, description="Share of memory for weights and KV cache in an engine."
    )
    max_running: int = Field(default=256, ge=1, description="Requests that an engine decodes at once.")
    step_overhead_s: float = Field(
        default=0.003, ge=0, description="Seconds of a decode step beside bandwidth and FLOPs."
    )
    step_weights_s: float | None = Field(default=None, ge=0, description="Measured: seconds of a step for the weights.")
    step_request_s: float | None = Field(
        default=None, ge=0, description="Measured: seconds of a step for each request."
    )
    step_context_s: float | None = Field(
        default=None, ge=0, description="Measured: seconds of a step for each cached token."
    )
    prefill_token_s: float | None = Field(
        default=None, ge=0, description="Measured: seconds of prefill for each token."
    )
    call_s: float = Field(default=0.0, ge=0, description="Seconds of a sample's call outside its engine, on its way.")
    kv_tokens: float | None = Field(default=None, gt=0, description="Measured: tokens that an engine's KV cache holds.")
    update_s: float | None = Field(default=None, gt=0, description="Measured: seconds of an update, whatever it takes.")
    update_overhead_s: float = Field(default=3.0, ge=0, description="Seconds of an update beside its tokens.")
    train_passes: float = Field(
        default=3.0, gt=0, description="Forward passes that an update costs: 3, or 4 with recomputing."
    )
    to_train_s: float = Field(
        default=3.0, ge=0, description="Seconds from generating to training: memory, optimizer state."
    )
    state_s: float = Field(
        default=1.0, ge=0, description="Seconds of to_train_s in which the optimizer's state comes to the member."
    )
    state_overlaps: bool = Field(
        default=True, description="A member generates while that state comes in; otherwise it leaves before."
    )
    to_rollout_s: float = Field(default=3.0, ge=0, description="Seconds from training to generating, weights included.")
    spread_s: float = Field(default=2.7, ge=0, description="Seconds in which new weights travel to a member.")
    load_s: float = Field(default=0.3, ge=0, description="Seconds that a member holds its calls to load them.")
    weights_overlap: bool = Field(
        default=True, description="A member generates while weights travel; otherwise it holds its calls meanwhile."
    )
    judge_s: float = Field(default=0.0, ge=0, description="Seconds from a sample's last token to its reward.")
    judge_overlaps: bool = Field(default=True, description="Judging while generating; otherwise before the update.")
    judges: int = Field(default=0, ge=0, description="Samples judged at once; 0: as many as there are.")


class Rules(_Section):
    """The rules of a run."""

    batch: int = Field(default=512, ge=1, description="Samples of an update, at most.")
    when: tuple[str, ...] = Field(default=("batch",), description="Rules upon any of which an update is due.")
    least: int = Field(default=1, ge=1, description="An update takes no fewer samples, whatever the rules say.")
    tokens: float | None = Field(default=None, gt=0, description="Generated tokens that the rule `tokens` asks for.")
    seconds: float | None = Field(default=None, gt=0, description="Seconds that the rule `seconds` asks for.")
    max_staleness: float = Field(default=1.0, ge=0, description="Versions that a sample may be behind.")
    updates_per_version: int = Field(default=1, ge=1, description="Updates between two loads of new weights.")
    train_members: int = Field(default=16, ge=1, description="Members that train, by train_priority.")
    sessions: int = Field(default=0, ge=0, description="Sessions of samples that agents run at a time; 0: any number.")
    serve_share: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the engines that the sessions of [online] keep at any time."
    )
    oversample: float = Field(
        default=0.0, ge=0, le=1, description="Samples of a version beyond what its updates take, as a share of a batch."
    )
    stragglers: Literal["abort", "keep"] = Field(
        default="abort", description="Unfinished ones, once enough are ready; kept ones train later, if young enough."
    )
    no_spread: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the samples whose rewards are all alike: others replace them."
    )
    refill: float = Field(
        default=10.0, ge=0, description="Samples that are replaced so in a version, at most, as a share of a batch."
    )


class WorkloadSection(_Section):
    """What is generated: a length law, a trace, or the sessions of a store."""

    kind: Literal["lognormal", "pareto", "agents", "mooncake", "azure", "store"] = Field(
        default="lognormal", description="Law of lengths, format of a trace, or a store."
    )
    path: str | None = Field(default=None, description="File of the trace, or folder of the store.")
    shared_prefixes: bool = Field(
        default=False,
        description="Of a mooncake trace: a prefix that an engine's KV cache holds is not computed again.",
    )
    prompt: int = Field(default=512, ge=1, description="Tokens of a prompt.")
    median: float = Field(default=900.0, gt=0, description="Median of generated tokens.")
    spread: float = Field(default=1.0, gt=0, description="Standard deviation of the logarithm, or the Pareto exponent.")
    limit: int = Field(
        default=8192, ge=1, description="Most tokens that a sample generates; for agents, of its context."
    )
    turns: float = Field(default=1.0, ge=1, description="Mean turns of an agent's session.")
    result: float = Field(default=800.0, ge=0, description="Mean tokens of a tool's result.")
    think_s: float = Field(default=0.0, ge=0, description="Mean seconds between two turns.")
    seed: int = Field(default=0, description="Seed of all that is drawn.")


class Description(_Section):
    """A cluster and what runs on it."""

    devices: dict[str, Device]
    members: tuple[MemberGroup, ...] = Field(min_length=1)
    model: Model = Model()
    costs: Costs = Costs()
    rules: Rules = Rules()
    workload: WorkloadSection = WorkloadSection()
    online: WorkloadSection | None = None


def load_description(path: Path) -> Description:
    """Read a cluster from a TOML file.

    Raises:
        ClusterInvalid: The file cannot be read, or a key is unknown, missing or of a wrong value.
    """
    try:
        return checked(Description.model_validate(tomllib.loads(path.read_text())))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ClusterInvalid(f"{path} cannot be read as a cluster: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ClusterInvalid(f"{path}: {where}: {first['msg']} (docs/scheduling.md lists the keys)") from error


def checked(description: Description) -> Description:
    """The description, if its parts fit together.

    Raises:
        ClusterInvalid: A member's kind is no device, a tag is nobody's, the weights exceed a member's memory, or a rule
            is unknown or lacks its number.
    """
    for group in description.members:
        if group.kind not in description.devices:
            known = ", ".join(sorted(description.devices))
            raise ClusterInvalid(f"members of kind {group.kind!r}: no such device; [devices] has {known}")
        memory = description.devices[group.kind].memory_gb * 1e9 * description.costs.kv_memory
        weights = description.model.params * description.model.bytes_per_param
        if description.costs.kv_tokens is None and Tag.ROLLOUT in group.tags and weights >= memory:
            raise ClusterInvalid(
                f"a {group.kind} has {memory / 1e9:.0f} GB for weights and KV cache, and the weights take "
                f"{weights / 1e9:.0f} GB: describe one member for several devices, or set costs.kv_tokens"
            )
    rules = description.rules
    checked_rules(rules.when, tokens=rules.tokens, seconds=rules.seconds)
    for tag in Tag:
        if not any(tag in group.tags for group in description.members):
            raise ClusterInvalid(f"no member has the tag {tag}")
    return description
