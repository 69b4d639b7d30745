"""Settings of publishing: how weights reach the engines."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Way = Literal["disk", "tensor", "ipc", "distributed", "delta", "adapter", "auto"]
OF_SOME: tuple[Way, ...] = ("delta", "adapter")  # which not every engine and version can go


class PublishConfig(BaseModel):
    """How a version reaches the engines. The version's folder is written first in any case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    way: Way = Field(
        default="disk",
        description="disk: engines read the version's folder; tensor: through shared memory, for engines on the "
        "trainer's machine; ipc: the same, and to GPUs through the device's own memory by CUDA IPC; distributed: "
        "broadcast in one process group of trainer and engines (gloo, or NCCL between GPUs); delta: the exact "
        "difference to the version that an engine serves, and where there is none or an engine cannot apply it, as "
        "with auto; adapter: the adapter of a LoRA round, which engines merge into its base, and where there is none "
        "or an engine cannot, as with auto; auto: tensor or distributed, whichever an engine can, else disk, and what "
        "was taken is reported.",
    )
    shared_memory: bool = Field(
        default=True,
        description="With distributed, embedded engines that can open the trainer's shared memory get the weights "
        "by it, as NCCL does within a machine; false: over sockets, like engines elsewhere.",
    )
    by_ranks: bool = Field(
        default=False,
        description="With distributed, after a round of several processes: true: each rank sends the tensors that it "
        "owns, in a group of its own with the engines; false: `weir round` sends what it reads of the folder. "
        "`weir train`, one process and placement.colocated refuse it.",
    )
    form: Literal["stored", "fp8", "adapter"] = Field(
        default="stored",
        description="fp8: engines load the layers' matrices in blocks of 128 x 128 float8 values with a factor each, "
        "as checkpoints of DeepSeek and Qwen have them; needs way = disk, and engines that were started on such a "
        "checkpoint. adapter: SGLang's engines load the adapter of a LoRA round alone and serve it beside their base "
        "to calls that name it (proxy.adapter_name); needs way = disk, a trainer.lora_rank, and engines that were "
        "started on the base with --enable-lora. stored: the weights as they are.",
    )
    adapter_name: str = Field(
        default="weir",
        min_length=1,
        description="With form = adapter, the name by which engines serve it; the same as proxy.adapter_name.",
    )
    bucket_mb: int = Field(
        default=64,
        ge=1,
        description="Megabytes (2^20 bytes) sent at once by tensor, distributed and delta; the trainer holds two such "
        "buckets, of which one is filled while the other is sent.",
    )

    @model_validator(mode="after")
    def _of_a_folder(self) -> Self:
        if self.form != "stored" and self.way != "disk":
            raise ValueError(
                f"form = {self.form} is of folders that engines read: set way = disk instead of {self.way}"
            )
        return self

    @model_validator(mode="after")
    def _in_groups(self) -> Self:
        if self.by_ranks and self.way not in ("distributed", "auto"):
            raise ValueError(f"by_ranks has no effect with way = {self.way}: set way = distributed, or auto")
        return self
