"""Records as agents would leave them, and what lies in a store, read without anything that readers take out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.files import file_set
from weir.store.config import StoreConfig
from weir.store.log.segment_format import frame_head, list_segments
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    VersionSpan,
    pack_ids,
    pack_logprobs,
)
from weir.store.shared.log import LogSharing


class Recording:
    """A writer on a machine, as a proxy has one."""

    def __init__(self, config: StoreConfig, writer: str) -> None:
        self.catalog = Catalog.open(config)
        self.sharing = LogSharing(config, self.catalog, writer)
        self.log = LogWriter(config.folder, writer, config)

    def record(self, *calls: CallRecord) -> None:
        """Append calls and wait until they are acknowledged."""
        for future in [self.log.append(call) for call in calls]:
            future.result(120)

    def close(self) -> None:
        """Seal what was written, and share it."""
        self.log.close()
        self.sharing.close()
        self.catalog.close()


def stored_names(config: StoreConfig) -> list[str]:
    """Every call of the files and of the segments that are in none; one that lies there twice is there twice."""
    catalog = Catalog.open(config)
    with catalog.reading().begin() as connection:
        files = file_set(connection)
    catalog.close()
    names = [name for file in files.files for name in pq.read_table(config.root / file.path)["call_id"].to_pylist()]
    hot = [segment for segment in list_segments(config.log_dir) if segment.segment_id not in files.compacted]
    return names + [record.call_id for segment in hot for record in segment.read().records]


def frame_bytes(payload: bytes) -> bytes:
    """One framed payload, as it lies in a segment."""
    return frame_head(payload) + payload


def make_call(call_id: str, prompt: Sequence[int], output: Sequence[int], **changes: Any) -> CallRecord:
    """A record from its name, prompt ids and output ids; everything else has a value that follows from them."""
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
