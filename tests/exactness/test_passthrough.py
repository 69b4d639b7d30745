"""At level passthrough: the records compared with the bytes of a real SGLang's chat API, while weights change.

A tap between router and engine keeps every answer as the engine gave it, with the ids in it. Afterwards every record
must have exactly those ids and logprobs, and a version only where it is certain.
"""

from __future__ import annotations

import concurrent.futures
import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from sglang_server import needs_sglang, start_sglang
from support_ledger import Tap
from support_model import make_tiny_model
from support_stack import CONTROL_KEY, Stack, running_stack

from weir.store.catalog.catalog import Catalog
from weir.store.log.segment_format import list_segments, read_segment
from weir.store.records.call_record import CallRecord, CaptureLevel, unpack_ids, unpack_logprobs
from weir.trainer.publishing.publish import publish
from weir.trainer.settings.config import TrainerConfig

NUM_CALLS, NUM_UPDATES, CONCURRENCY = 96, 3, 8
FLAGS = ("--weight-version", "0", "--served-model-name", "weir", "--return-input-ids", "--return-output-ids")
# With a parser, SGLang streams the logprobs of tokens that show no text too.
PARSER = ("--tool-call-parser", "qwen25")
WORDS = ["add", "load", "store", "mask", "kernel", "block", "program", "pointer", "row", "sum", "softmax", "tile"]


class ChatTap(Tap):
    """Keeps the answers to chat completions, by their id: each the JSON objects that it came in."""

    def __init__(self, engine_url: str) -> None:
        self.answers: dict[str, list[dict[str, Any]]] = {}
        super().__init__(engine_url)

    def heard(self, path: str, body: bytes, content_type: str) -> None:
        if path != "/v1/chat/completions":
            return
        streamed = content_type == "text/event-stream"
        lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] if streamed else [body]
        objects = [json.loads(line) for line in lines]
        self.answers[objects[0]["id"]] = objects


@needs_sglang
@pytest.mark.sglang
@pytest.mark.parametrize("router", ["sglang-router", "smg"])
def test_records_equal_what_a_real_sglangs_chat_api_answered(tmp_path: Path, router: str) -> None:
    versions = [make_tiny_model(tmp_path / f"v{n}", vocab_size=512, seed=n) for n in range(NUM_UPDATES + 1)]
    with ExitStack() as opened:
        engine = start_sglang(versions[0], folder=tmp_path, arguments=(*FLAGS, *PARSER))
        opened.callback(engine.stop)
        tap = ChatTap(engine.url)
        opened.callback(tap.stop)
        stack = opened.enter_context(
            running_stack(
                tmp_path,
                model=versions[0],
                engine_urls=[engine.url],
                worker_urls=[tap.url],
                router=router,
                proxy_settings='level = "passthrough"\ndrain_limit_s = 0.1\n',
            )
        )
        assert stack.control("GET", "/weir/state")["remarks"] == []
        converse_while_publishing(stack, versions)
        lowered = stack.proxy.client.get("/metrics").text
    records = [r for s in list_segments(stack.settings.store.log_dir) for r in read_segment(s.path).records]
    assert len(records) == NUM_CALLS and {record.stream for record in records} == {True, False}
    for record in records:
        hold(record, tap.answers[record.engine_rids[0]])
    spanning = [r for r in records if len({span.label for span in r.spans}) > 1]
    straddled = [r for r in records if r.level is not CaptureLevel.TOKENS]
    assert spanning or straddled, "no call was in flight while weights changed"
    assert all(record.stream for record in straddled), "an answer that names its versions was lowered"
    assert f'weir_calls_lowered_total{{reason="straddled"}} {float(len(straddled))}' in lowered or not straddled
    assert {span.label for r in records for span in r.spans} == {str(n) for n in range(NUM_UPDATES + 1)}


def hold(record: CallRecord, objects: list[dict[str, Any]]) -> None:
    (extension,) = [o["sglext"] for o in objects if o.get("sglext")]
    assert unpack_ids(record.prompt_ids).tolist() == extension["input_ids"]
    assert unpack_ids(record.output_ids).tolist() == extension["output_ids"][0]
    told = [c["logprobs"]["content"] for o in objects for c in o["choices"] if c.get("logprobs")]
    logprobs = [entry["logprob"] for content in told for entry in content]
    assert unpack_logprobs(record.output_logprobs).tolist() == pytest.approx(logprobs, abs=1e-6)
    assert len(logprobs) == len(extension["output_ids"][0])
    if not record.stream:
        versions = objects[0]["metadata"]["weight_versions"]
        assert [(s.start, s.end, s.label) for s in record.spans] == [
            (v["start"], v["end"], v["version"]) for v in versions
        ]
        assert record.level is CaptureLevel.TOKENS


def converse_while_publishing(stack: Stack, versions: list[Path]) -> None:
    """Calls without pause; after every quarter of them the next version is published."""
    with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
        calls = [pool.submit(one_call, stack, number) for number in range(NUM_CALLS)]
        for version, folder in enumerate(versions[1:], 1):
            calls[version * NUM_CALLS // (NUM_UPDATES + 1) - 1].result()
            publish_version(stack, folder, version)
        for call in calls:
            call.result()


def publish_version(stack: Stack, folder: Path, version: int) -> None:
    config = TrainerConfig(proxy_urls=[stack.proxy.url], engine_urls=stack.engine_urls)
    catalog = Catalog.open(stack.settings.store)
    report = publish(folder, version, config, CONTROL_KEY, catalog)
    catalog.close()
    assert report.serving == stack.engine_urls and not report.failed


def one_call(stack: Stack, number: int) -> None:
    draw = random.Random(number)
    messages = [{"role": "user", "content": " ".join(draw.choices(WORDS, k=8))}]
    body = {"model": "weir", "messages": messages, "max_tokens": draw.randint(40, 160), "stream": number % 2 == 0}
    answer = httpx.post(f"{stack.proxy.url}/v1/chat/completions", json=body, timeout=None, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert b"sglext" not in answer.content and b'"logprobs":{' not in answer.content
    if number % 2 == 0:
        assert answer.content.endswith(b"data: [DONE]\n\n")
        lines = [line[6:] for line in answer.content.split(b"\n") if line.startswith(b"data: {")]
        assert any(choice["finish_reason"] for line in lines for choice in json.loads(line)["choices"])
