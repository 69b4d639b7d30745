"""Turns under wishes that the chat template fulfils, through a real router and engine: the engine's ledger agrees."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support_ledger import read_ledgers
from support_servers import start_engine
from support_stack import running_stack

from weir.store.log.segment_format import read_segment
from weir.store.records.call_record import Stitch, unpack_ids, unpack_logprobs

OFF: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"reasoning_effort": "none"},
    "/v1/messages": {"thinking": {"type": "disabled"}},
}


def text_in(answer: dict[str, Any]) -> str:
    """The text of a chat answer or of a message."""
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    return "".join(block.get("text", "") for block in answer["content"])


@pytest.mark.parametrize("route", OFF)
def test_three_turns_without_thinking_are_the_engines_own_tokens(
    tmp_path: Path, tiny_model_dir: Path, route: str
) -> None:
    engine = start_engine(tiny_model_dir, folder=tmp_path)
    try:
        with running_stack(tmp_path, model=tiny_model_dir, engine_urls=[engine.url]) as stack:
            messages: list[Any] = [{"role": "user", "content": "One?"}]
            for _ in range(3):
                body = {"model": "weir", "max_tokens": 24, "temperature": 1.0, "messages": messages} | OFF[route]
                answer = stack.proxy.client.post(f"/s/one{route}", json=body)
                assert answer.status_code == 200, answer.text
                messages += [
                    {"role": "assistant", "content": text_in(answer.json())},
                    {"role": "user", "content": "And more?"},
                ]
            segments = stack.settings.store.root.glob("log/*/*.wal")
            records = [record for path in segments for record in read_segment(path).records]
    finally:
        engine.stop()
    assert engine.ledger_path is not None
    ledger = read_ledgers([engine.ledger_path])
    records.sort(key=lambda record: record.started_us)
    assert [record.stitch for record in records] == [Stitch.NEW_ROOT, Stitch.BRIDGED, Stitch.BRIDGED]
    for record in records:
        truth = [sampled for rid in record.engine_rids for sampled in ledger[rid]]
        assert unpack_ids(record.output_ids).tolist() == [sampled.token for sampled in truth]
        logprobs = [sampled.logprob for sampled in truth]
        assert unpack_logprobs(record.output_logprobs).tolist() == pytest.approx(logprobs, abs=1e-6)
        assert record.ignored_fields == ()
    for earlier, later in itertools.pairwise(records):
        assert later.prompt_ids.startswith(earlier.prompt_ids + earlier.output_ids)
