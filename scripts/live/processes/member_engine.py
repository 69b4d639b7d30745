"""The engine of a member that names none: the server of [engine], at a free port of the machine that it starts on."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from pathlib import Path

from weir.cluster.config import ClusterMember
from weir.scripts.launch.fleet import engine_servers
from weir.scripts.launch.servers import Server, free_port, last_line
from weir.scripts.launch.settings import Settings
from weir.scripts.live.processes.start_weights import start_weights


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemberEngine:
    """An engine that is to start."""

    settings: Settings
    config_path: Path | None
    member: ClusterMember

    @property
    def log_path(self) -> Path:
        """What it writes, at the same path on every machine."""
        return self.settings.store.folder / "logs" / f"engine-{self.member.name}.log"

    def last_words(self) -> str:
        """What its log says last, and where it is, as the end of a sentence."""
        return f"{last_line(self.log_path)}; its log is {self.log_path}, and it is started again"

    def server(self, host: str, gpus: Sequence[int]) -> tuple[Server, str]:
        """How it is started on this machine, with the newest weights, and its address. Raises `UsageError`."""
        name, engine, placement = self.member.name, self.settings.engine, self.settings.placement
        port = free_port(host)
        changes = {"count": 1, "urls": (), "host": host, "port": port, "seed": engine.seed + zlib.crc32(name.encode())}
        if engine.ledger is not None:
            changes["ledger"] = engine.ledger.with_name(f"{engine.ledger.name}.{name}")
        alone = {
            "engine": engine.model_copy(update=changes),
            "placement": placement.model_copy(update={"serve": tuple(gpus) or None}),
        }
        config = ["--config", str(self.config_path)] if self.config_path else []
        logs = self.settings.store.folder / "logs"
        model = start_weights(self.settings, name)
        [server] = engine_servers(self.settings.model_copy(update=alone), config, logs, model)
        named = dataclasses.replace(server, name=f"engine-{name}", log_path=self.log_path, cores=self.member.cores)
        return named, f"http://{host}:{port}"
