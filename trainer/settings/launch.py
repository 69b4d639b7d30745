"""Settings of the machines that training processes run on: [trainer.launch]. This module imports no torch."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_ADDRESS = re.compile(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


class LaunchConfig(BaseModel):
    """Training on several machines (nodes), of which `weir round` runs on the first.

    All nodes see the model's folder and the store's under the same paths.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(default=1, ge=1, le=1024, description="Machines, each with an equal share of trainer.processes.")
    rendezvous: str | None = Field(
        default=None,
        description="Address and port of the first machine, as the others reach it, such as 10.0.0.1:29400; the next "
        "port is used, too.",
    )
    start: str | None = Field(
        default=None,
        description="Shell command that starts the processes of machine {node} (1, 2, …) and runs as long as they do, "
        'e.g. "ssh gpu{node} weir ranks --node {node} --once --config /srv/weir.toml"; unset: `weir ranks` runs there.',
    )
    by: Literal["rendezvous", "ray"] = Field(
        default="rendezvous",
        description="How the other machines are found. ray: an actor on each of nodes - 1 machines of a Ray cluster "
        "(extra `ray`) starts its processes; this machine belongs to the cluster, too.",
    )
    ray_address: str | None = Field(
        default=None, description="Address and port of the Ray cluster (by = ray), such as 10.0.0.1:6379."
    )
    timeout_s: float = Field(default=600.0, ge=1, description="Limit for all machines to join.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.nodes == 1 and (self.rendezvous is not None or self.start is not None):
            raise ValueError("rendezvous and start are for nodes = 2 or more; set nodes, or remove them")
        if self.by == "ray":
            self._check_ray()
        elif self.ray_address is not None:
            raise ValueError(f'ray_address = {self.ray_address!r} has no effect here: set by = "ray", or remove it')
        elif self.nodes > 1 and self.rendezvous is None:
            raise ValueError(f'nodes = {self.nodes} meet at a rendezvous: set it, e.g. to "10.0.0.1:29400"')
        if self.rendezvous is not None and not _ADDRESS.fullmatch(self.rendezvous):
            raise ValueError(f'rendezvous = {self.rendezvous!r} is not host:port, as in "10.0.0.1:29400"')
        if self.start is not None and "{node}" not in self.start:
            raise ValueError(f"start = {self.start!r} does not name the machine: put {{node}} where its number belongs")
        return self

    def _check_ray(self) -> None:
        if self.nodes == 1:
            raise ValueError('by = "ray" is for nodes = 2 or more; set nodes, or remove it')
        if self.ray_address is None or not _ADDRESS.fullmatch(self.ray_address):
            raise ValueError(
                f'by = "ray" needs the address of the cluster: ray_address = {self.ray_address!r} is not host:port, as '
                'in "10.0.0.1:6379"'
            )
        if self.start is not None:
            raise ValueError('start has no effect with by = "ray", which starts the machines: remove it')
