"""Which GPUs of this machine serve, train and judge: section [placement], its rules, and CUDA_VISIBLE_DEVICES by role.

Invariant: a process gets CUDA_VISIBLE_DEVICES only where the section names GPUs for its role and the machine has some.
Pure, except for `num_gpus`, which asks NVIDIA's driver.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from weir.scripts.launch.errors import UsageError

VISIBLE = "CUDA_VISIBLE_DEVICES"
Role = Literal["serve", "train", "judge"]
Gpus = tuple[Annotated[int, Field(ge=0)], ...]


class PlacementConfig(BaseModel):
    """Which GPUs of this machine serve, train and judge, by their index (nvidia-smi), and the ports of its servers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serve: Gpus | None = Field(
        default=None, description="GPUs of the engines, divided evenly among them in this order; unset: all see all."
    )
    train: Gpus | None = Field(default=None, description="GPUs of rounds and of the cold start; unset: all.")
    judge: Gpus | None = Field(default=None, description="GPUs of the kernel-evaluation server; unset: all.")
    colocated: bool = Field(
        default=False,
        description="Allow a GPU in several lists. Engines and rounds that share GPUs, or name none, take them in "
        "turns: engines give their memory back while a round trains; for the judge the memory must suffice.",
    )

    first_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="First of the ports in a row that the servers of this machine take: proxy, page, judge, router, "
        "the router's metrics, engines. A port that is set in its own section stays; unset: each section's default.",
    )

    @property
    def takes_turns(self) -> bool:
        """Whether engines and rounds have the same devices, one after the other."""
        if self.serve is None or self.train is None:
            return self.colocated
        return self.colocated and bool(set(self.serve) & set(self.train))

    @model_validator(mode="after")
    def _apart(self) -> Self:
        """Refuse a GPU that is named twice in a list, or by two roles that are not colocated."""
        roles = {"serve": self.serve, "train": self.train, "judge": self.judge}
        for name, gpus in roles.items():
            if gpus is not None and len(set(gpus)) < len(gpus):
                raise ValueError(f"{name} names a GPU twice: {list(gpus)}")
        for (one, first), (other, second) in itertools.combinations(roles.items(), 2):
            both = sorted(set(first or ()) & set(second or ()))
            if both and not self.colocated:
                raise ValueError(
                    f"{one} and {other} share GPU {', '.join(map(str, both))}: give each GPU to one of them, or set "
                    "colocated = true"
                )
        return self


def num_gpus() -> int | None:
    """The number of NVIDIA GPUs of this machine, whatever is visible to this process; None where no driver says."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    return None


def check_placement(config: PlacementConfig, num_engines: int, there: int | None) -> None:
    """Raise `UsageError` for GPUs that the machine does not have, and for lists that cannot be divided.

    `there` is the number of GPUs, None where it is unknown.
    """
    for name in ("serve", "train", "judge"):
        missing = [gpu for gpu in getattr(config, name) or () if there is not None and gpu >= there]
        if missing and there:
            raise UsageError(
                f"placement.{name} names GPU {', '.join(map(str, missing))}, and this machine has {there} "
                f"(0 to {there - 1}): name others"
            )
    if config.serve is not None and num_engines and (not config.serve or len(config.serve) % num_engines):
        raise UsageError(
            f"placement.serve has {len(config.serve)} GPUs for engine.count = {num_engines} engines: give each the "
            "same number, at least one"
        )


def check_cores(member: str, cores: Sequence[int]) -> None:
    """Raise `UsageError` where this machine lacks cores that a member of the cluster is bound to."""
    there = os.cpu_count() or 1
    if missing := [core for core in cores if not 0 <= core < there]:
        raise UsageError(
            f"cluster.members: {member} is bound to the cores {list(cores)}, and this machine has 0 to {there - 1}: "
            f"name others than {', '.join(map(str, missing))}, or leave cores unset"
        )


def visible(gpus: Sequence[int] | None, there: int | None) -> dict[str, str]:
    """The environment of a process that may use these GPUs; empty where none are named or the machine has none."""
    return {VISIBLE: ",".join(map(str, gpus))} if gpus is not None and there else {}


def of_engine(config: PlacementConfig, number: int, num_engines: int) -> tuple[int, ...] | None:
    """The GPUs of one engine: an equal share of those that serve; None where none are named."""
    if config.serve is None:
        return None
    share = len(config.serve) // num_engines
    return config.serve[number * share : (number + 1) * share]
