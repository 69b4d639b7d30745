"""A store in a temporary folder, and records as agents would leave them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from weir.store.config import StoreConfig
from weir.store.log import LogWriter
from weir.store.records import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    VersionSpan,
    pack_ids,
    pack_logprobs,
)

MakeCall = Callable[..., CallRecord]
Record = Callable[..., None]


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    """Settings of an empty store."""
    return StoreConfig(root=tmp_path / "store", segment_bytes=2**16, segment_grace_s=0)


@pytest.fixture(params=["sqlite", "postgresql"])
def either_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    """Settings of an empty store, with a catalog of each kind in turn."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    return StoreConfig(root=tmp_path / "store", catalog_url=url)


@pytest.fixture
def make_call() -> MakeCall:
    """Builds a record from its name, prompt ids and output ids; everything else has a value that follows from them."""

    def build(call_id: str, prompt: Sequence[int], output: Sequence[int], **changes: Any) -> CallRecord:
        at = changes.pop("at", 1_000_000)
        versions = changes.pop("versions", [(len(output), "0")])
        spans, start = [], 0
        for length, label in versions:
            spans.append(VersionSpan(start, start + length, label))
            start += length
        text = changes.pop("text", f"answer of {call_id}")
        given: dict[str, Any] = {
            "call_id": call_id,
            "session_id": "s",
            "session_source": SessionSource.PATH,
            "group_id": "g",
            "dialect": "chat",
            "level": CaptureLevel.TOKENS,
            "model": "small",
            "stream": False,
            "started_us": at,
            "first_token_us": at + 2_000,
            "finished_us": at + 10_000,
            "prompt_ids": pack_ids(list(prompt)),
            "output_ids": pack_ids(list(output)),
            "output_logprobs": pack_logprobs([-0.5 * (i + 1) for i in range(len(output))]),
            "spans": tuple(spans) if output else (),
            "finish": FinishReason.STOP,
            "request": json.dumps({"messages": [{"role": "user", "content": f"prompt of {call_id}"}]}).encode(),
            "answer": json.dumps({"role": "assistant", "content": text}).encode(),
        }
        return CallRecord(**{**given, **changes})

    return build


@pytest.fixture
def record(config: StoreConfig) -> Record:
    """Writes records to a log of the store, and waits until they are acknowledged. `seal=False` leaves them open."""
    writers: list[LogWriter] = []

    def write(records: Sequence[CallRecord], writer: str = "proxy", seal: bool = True) -> None:
        log = LogWriter(config.root, writer, config)
        for future in [log.append(one) for one in records]:
            future.result(timeout=30)
        if seal:
            log.close()
        writers.append(log)

    yield write  # type: ignore[misc]
    for log in writers:
        log.close()
