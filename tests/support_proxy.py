"""A proxy in this process, in an event loop on its own thread: real sockets, and its parts accessible to the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import uvloop

from weir.proxy.assembly import Served
from weir.proxy.config import ProxyConfig
from weir.proxy.probe.upstream import certify
from weir.proxy.relay.levels import AT_TOKENS
from weir.proxy.server import Proxy, uvicorn_server
from weir.store.config import StoreConfig
from weir.store.log.segment_format import list_segments, read_segment
from weir.store.records.call_record import CallRecord

CONTROL_KEY = "the-control-key-of-tests"


@dataclass(kw_only=True)
class RunningProxy:
    """A proxy that serves."""

    url: str
    store: StoreConfig
    proxy: Proxy

    def client(self, path: str = "/v1", **options: Any) -> openai.OpenAI:
        """An OpenAI client as agents have one, without retries by default."""
        return openai.OpenAI(
            base_url=self.url + path, **({"api_key": "agent", "max_retries": 0, "timeout": 60.0} | options)
        )

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """POST JSON, or bytes as they are."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return httpx.post(self.url + path, trust_env=False, timeout=60, **content, **options)

    def control(self, method: str, path: str, body: Any = None, key: str = CONTROL_KEY) -> httpx.Response:
        """One request to a control route."""
        headers = {"authorization": f"Bearer {key}"}
        return httpx.request(method, self.url + path, json=body, headers=headers, trust_env=False, timeout=60)

    def records(self) -> list[CallRecord]:
        """Every record in the log, oldest first."""
        found = [record for s in list_segments(self.store.log_dir) for record in read_segment(s.path).records]
        return sorted(found, key=lambda record: record.started_us)


@contextlib.contextmanager
def running_proxy(
    root: Path, model: Path | None, upstream_url: str, *, store: dict[str, Any] | None = None, **settings: Any
) -> Iterator[RunningProxy]:
    """Serve until the block ends; `settings` are those of ProxyConfig."""
    store_config = StoreConfig(root=root, **(store or {}))
    config = ProxyConfig(**({"control_key": CONTROL_KEY, "retry_backoff_s": 0.01} | settings))
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    loop = uvloop.new_event_loop()  # as a proxy of its own has
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def build() -> Proxy:
        certified = AT_TOKENS
        if config.level != "tokens":
            certified = await certify(config, upstream_url, "weir", can_render=False)
        return Proxy(
            Served(
                config=config,
                store=store_config,
                model_path=model,
                model_name="weir",
                upstream_url=upstream_url,
                certified=certified,
            )
        )

    async def serve() -> None:
        async with proxy.joined(url):
            await server.serve(sockets=[listener])

    proxy = asyncio.run_coroutine_threadsafe(build(), loop).result(60)
    server = uvicorn_server(proxy.app, config.shutdown_limit_s)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.run_coroutine_threadsafe(serve(), loop)
    try:
        yield RunningProxy(url=url, store=store_config, proxy=proxy)
    finally:
        server.should_exit = True
        serving.result(120)
        asyncio.run_coroutine_threadsafe(proxy.close(), loop).result(120)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(120)
        loop.close()
