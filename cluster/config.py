"""Settings of `weir train`: the members of a cluster, its policy, and the rules that hold."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from weir.cluster.due import checked_rules
from weir.cluster.errors import ClusterInvalid
from weir.cluster.state import Tag

DOES = {Tag.ROLLOUT: "generate", Tag.TRAIN: "train"}


class ClusterMember(BaseModel):
    """An engine, a place where training may run, or both; a table of `[[cluster.members]]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, description="Its name in the cluster.")
    url: str | None = Field(
        default=None,
        description="URL of its engine; unset: `weir train` starts its engine, or it only trains, by its tags.",
    )
    tags: tuple[Tag, ...] = Field(default=(Tag.ROLLOUT, Tag.TRAIN), min_length=1, description="What it can do.")
    kind: str = Field(default="", description="Kind of its device.")
    memory_gb: float | None = Field(default=None, gt=0, description="Memory of its device, in 10^9 bytes.")
    train_priority: float | None = Field(
        default=None, description="Members with a higher one train first; unset: flops over bandwidth, else 0."
    )
    flops: float | None = Field(default=None, gt=0, description="Peak FLOP/s of its device.")
    bandwidth: float | None = Field(default=None, gt=0, description="Bytes a second from its device's memory.")
    kv_tokens: float = Field(default=0.0, ge=0, description="Tokens that its KV cache holds; 0: unknown.")
    cores: tuple[int, ...] = Field(
        default=(), description="Cores of this machine that its engine, or training on it, is bound to; none: all."
    )
    cpus: float = Field(default=1.0, gt=0, description="Processors that Ray keeps for it, where it has no url.")
    gpus: int = Field(default=0, ge=0, description="GPUs of the engine that `weir train` starts for it.")

    @field_validator("name")
    @classmethod
    def _names_files(cls, name: str) -> str:
        if name.startswith(".") or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is to name files: no / in it, and no dot at its beginning")
        return name

    @property
    def is_placed(self) -> bool:
        """Whether it generates, and nobody has started its engine yet."""
        return Tag.ROLLOUT in self.tags and self.url is None

    @property
    def priority(self) -> float:
        """The train_priority that was given, else by roofline: what it gives to training over what to decoding."""
        if self.train_priority is not None:
            return self.train_priority
        return self.flops / self.bandwidth if self.flops and self.bandwidth else 0.0


class ClusterConfig(BaseModel):
    """Engines that generate and train in turn, under `weir train`; docs/scheduling.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Literal["sync_colocated", "disaggregated", "one_step_off", "tags"] = Field(
        default="tags", description="Who does what when."
    )
    members: tuple[ClusterMember, ...] = Field(
        default=(), description="The members, as tables `[[cluster.members]]`; none: the engines of the run, all tags."
    )
    batch: int | None = Field(
        default=None, ge=1, description="Groups of a round, at most; unset: trainer.groups_per_round."
    )
    round_when: tuple[str, ...] = Field(
        default=("batch",),
        description="Rules upon any of which a round is due: batch, tokens, seconds, member_lost, member_joined, "
        "kv_exhausted; 'tokens and seconds' is one that needs both. A full batch with no group under way always is.",
    )
    round_least: int = Field(
        default=1, ge=1, description="A round takes no fewer groups than this, whatever the rules say."
    )
    round_tokens: float | None = Field(
        default=None, gt=0, description="Generated tokens of the ready groups that the rule `tokens` asks for."
    )
    round_s: float | None = Field(
        default=None, gt=0, description="Seconds since the last round began that the rule `seconds` asks for."
    )
    max_staleness: float | None = Field(
        default=None,
        ge=0,
        description="Versions between a group's start and its round, at most; a group that would be older is not "
        "started. Unset: trainer.max_staleness.",
    )
    max_hold_s: float | None = Field(
        default=None,
        gt=0,
        description="No call waits longer at the gate for new weights, from when the first gate is asked to close "
        "until all are opened: an engine that needs longer loads out of rotation, and where all do, one half after the "
        "other. At least one engine always stays in rotation; one that is alone, with none on its way back, loads for "
        "as long as it needs, aloud. Unset: each engine may take trainer.publish_timeout_s.",
    )
    serve_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of the engines, at least one, that takes calls at any time, for those with the tag serve; "
        "max_hold_s is theirs alone then. 0: no calls have the tag.",
    )
    oversample: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Groups that are started beyond what rounds take, as a share of a batch.",
    )
    stragglers: Literal["abort", "keep"] = Field(
        default="abort",
        description="What becomes of groups that are unfinished once a batch is ready, with oversample: they are "
        "aborted, or kept for later rounds as long as they are young enough.",
    )
    refill: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="Groups whose rewards are all alike that are replaced by others between two rounds, at most, as a "
        "share of a batch; 0: none.",
    )
    state_overlaps: bool = Field(
        default=True,
        description="Weights and optimiser state are loaded for a round while a member that is to train still takes "
        "calls, where they are not in memory; false: once it has left.",
    )
    weights_overlap: bool = Field(
        default=True,
        description="Weights travel to engines that can keep them aside (ways of trainer.publish) while these take "
        "calls; false: while calls are held.",
    )
    train_members: int = Field(default=1, ge=1, description="Members that train, by train_priority.")
    in_flight_share: float = Field(
        default=1.0,
        gt=0,
        description="Groups in flight at the start, over KV capacity divided by a group's tokens.",
    )
    processes: Literal["local", "ray"] = Field(
        default="local",
        description="What runs the training slot, and the engines of members without a url: this machine, or Ray.",
    )
    ray_address: str | None = Field(
        default=None,
        description="Ray cluster to join: host:port, or auto for that of this machine; unset: one is made here.",
    )
    probe_s: float = Field(default=1.0, gt=0, description="Seconds between two questions whether an engine lives.")
    retry_s: float = Field(
        default=3.0, gt=0, description="Wait after a failure: of a round, of an engine that did not load, of agents."
    )
    lease_s: float = Field(default=10.0, gt=0, description="How long a killed controller is believed to live.")
    metrics_port: int | None = Field(
        default=None, ge=1, le=65535, description="Port of the controller's Prometheus metrics; unset: none."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = [member.name for member in self.members]
        urls = [member.url.rstrip("/") for member in self.members if member.url is not None]
        for what, values in (("name", names), ("url", urls)):
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"two members have the {what} {twice}: each needs its own")
        if self.ray_address is not None and self.processes != "ray":
            raise ValueError(f"ray_address is of processes = 'ray', and not of {self.processes!r}: set one of the two")
        try:
            checked_rules(self.round_when, tokens=self.round_tokens, seconds=self.round_s)
        except ClusterInvalid as error:
            raise ValueError(f"round_when: {error} (round_tokens, round_s)") from error
        for tag in Tag:
            if self.members and not any(tag in member.tags for member in self.members):
                raise ValueError(f"no member has the tag {tag}: nobody would {DOES[tag]}")
        return self
