"""Engines, a real router and the proxy as processes over one store: all that a call goes through."""

from __future__ import annotations

import contextlib
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from support_servers import ServerProcess, find_free_port, start_server

from weir.scripts.launch.fleet import router_server
from weir.scripts.launch.servers import running
from weir.scripts.launch.settings import RouterConfig, Settings, load_settings

CONTROL_KEY = "control-key-of-the-tests"


@dataclass(kw_only=True)
class Stack:
    """A running proxy in front of a router in front of engines."""

    folder: Path
    settings: Settings
    engine_urls: list[str]  # the engines themselves, not what the router was told
    proxy: ServerProcess

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """One request to a control route, decoded; any status but 200 fails the test."""
        headers = {"authorization": f"Bearer {CONTROL_KEY}"}
        answer = httpx.request(method, self.proxy.url + path, json=body, headers=headers, timeout=120, trust_env=False)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()


def write_config(folder: Path, *, model: Path, upstream_url: str, port: int, more: str = "") -> Path:
    """A weir.toml for one proxy over a store in `folder`."""
    file = folder / "weir.toml"
    file.write_text(
        f'[store]\nroot = "{folder / "store"}"\n\n[model]\npath = "{model}"\nname = "weir"\n\n'
        f'[proxy]\nport = {port}\nupstream_url = "{upstream_url}"\ncontrol_key = "{CONTROL_KEY}"\n{more}'
    )
    tomllib.loads(file.read_text())
    return file


@contextlib.contextmanager
def running_stack(
    folder: Path,
    *,
    model: Path,
    engine_urls: Sequence[str],
    worker_urls: Sequence[str] | None = None,
    router: str = "sglang-router",
    proxy_settings: str = "",
) -> Iterator[Stack]:
    """Start the router over `worker_urls` (the engines, unless something stands in front of them), and the proxy."""
    config = RouterConfig.model_validate(
        {"kind": router, "port": find_free_port(), "prometheus_port": find_free_port()}
    )
    file = write_config(
        folder,
        model=model,
        upstream_url=f"http://127.0.0.1:{config.port}",
        port=(port := find_free_port()),
        more=proxy_settings,
    )
    with running([router_server(config, list(worker_urls or engine_urls), folder / "logs")]):
        proxy = start_server(
            [sys.executable, "-m", "weir.scripts.cli.main", "proxy", "--config", str(file)],
            port=port,
            log_path=folder / "proxy.log",
            ready_path="/readyz",
        )
        try:
            yield Stack(folder=folder, settings=load_settings(file), engine_urls=list(engine_urls), proxy=proxy)
        finally:
            proxy.stop()
