"""An answer that max_tokens cut is continued by its exact ids: the ledger of a real engine agrees with both records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support_ledger import read_ledgers
from support_servers import start_engine
from support_stack import running_stack

from weir.store.log.segment_format import read_segment
from weir.store.records.call_record import Stitch, unpack_ids

QUESTION: dict[str, Any] = {"role": "user", "content": "One?"}


def test_both_parts_of_an_answer_are_the_engines_own_tokens(tmp_path: Path, tiny_model_dir: Path) -> None:
    engine = start_engine(tiny_model_dir, folder=tmp_path)
    try:
        with running_stack(tmp_path, model=tiny_model_dir, engine_urls=[engine.url]) as stack:

            def ask(messages: list[Any]) -> str:
                body = {"model": "weir", "max_tokens": 6, "messages": messages, "thinking": {"type": "disabled"}}
                answer = stack.proxy.client.post("/s/one/v1/messages", json=body | {"temperature": 0})
                assert answer.status_code == 200, answer.text
                return "".join(block.get("text", "") for block in answer.json()["content"])

            text = ask([QUESTION])
            assert text
            ask([QUESTION, {"role": "assistant", "content": text.rstrip()}])
            segments = stack.settings.store.root.glob("log/*/*.wal")
            records = [record for path in segments for record in read_segment(path).records]
    finally:
        engine.stop()
    assert engine.ledger_path is not None
    ledger = read_ledgers([engine.ledger_path])
    first, second = sorted(records, key=lambda record: record.started_us)
    for record in (first, second):
        truth = [sampled.token for rid in record.engine_rids for sampled in ledger[rid]]
        assert unpack_ids(record.output_ids).tolist() == truth
    assert (second.stitch, second.stitch_call) == (Stitch.BRIDGED, first.call_id)
    assert second.prompt_ids == first.prompt_ids + first.output_ids
