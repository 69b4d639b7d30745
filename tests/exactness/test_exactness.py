"""The records compared with the engines' own ledger, token by token, while weights change under calls in flight.

Agents hold conversations of several turns, streamed and not; meanwhile weights are published again and again through
the gate. Afterwards every recorded token id, logprob and version must be what an engine sampled, none missing, none
twice, and every later turn's prompt must start with the exact ids of the turn before it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sglang_server import start_sglang
from support_ledger import Ledger, Tap, read_ledgers
from support_model import make_tiny_model
from support_servers import start_engine
from support_stack import CONTROL_KEY, Stack, running_stack

from weir.store.catalog.catalog import Catalog
from weir.store.log.segment_format import read_segment
from weir.store.maintenance.compact import compact
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs
from weir.trainer.publishing.publish import publish
from weir.trainer.settings.config import TrainerConfig

NUM_CALLS, NUM_UPDATES, CONCURRENCY = 510, 5, 24
TURNS = (8, 4, 4)  # of a conversation: how many words the user says in each
FEWER_CALLS = 180  # with the second router, whose way through the proxy is the same
WORKERS = "workers = 2\n"
WORDS = [
    "add",
    "load",
    "store",
    "mask",
    "kernel",
    "block",
    "program",
    "pointer",
    "row",
    "sum",
    "max",
    "softmax",
    "matrix",
    "tile",
    "grid",
]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Weights 0 … NUM_UPDATES of the same shape, each from its own seed."""
    root = tmp_path_factory.mktemp("versions")
    return [make_tiny_model(root / str(n), vocab_size=512, seed=n) for n in range(NUM_UPDATES + 1)]


@pytest.mark.parametrize(("router", "num_calls"), [("sglang-router", NUM_CALLS), ("smg", FEWER_CALLS)])
def test_records_equal_the_ledger_of_embedded_engines(
    tmp_path: Path, versions: list[Path], router: str, num_calls: int
) -> None:
    engines = [start_engine(versions[0], folder=tmp_path) for _ in range(2)]
    try:
        with running_stack(
            tmp_path,
            model=versions[0],
            engine_urls=[engine.url for engine in engines],
            router=router,
            proxy_settings=WORKERS,
        ) as stack:
            asyncio.run(converse_while_publishing(stack, versions, num_calls))
            ledger = read_ledgers(engine.ledger_path for engine in engines if engine.ledger_path)
    finally:
        for engine in engines:
            engine.stop()
    hold_against_ledger(stack, ledger, num_calls)


@pytest.mark.sglang
@pytest.mark.skipif("WEIR_TEST_SGLANG" not in os.environ, reason="WEIR_TEST_SGLANG names no environment with SGLang")
@pytest.mark.parametrize(("router", "num_calls"), [("sglang-router", NUM_CALLS), ("smg", FEWER_CALLS)])
def test_records_equal_what_a_real_sglang_answered(
    tmp_path: Path, versions: list[Path], router: str, num_calls: int
) -> None:
    with ExitStack() as opened:
        engine = start_sglang(versions[0], folder=tmp_path, arguments=("--weight-version", "0"))
        opened.callback(engine.stop)
        tap = Tap(engine.url)
        opened.callback(tap.stop)
        stack = opened.enter_context(
            running_stack(
                tmp_path,
                model=versions[0],
                engine_urls=[engine.url],
                worker_urls=[tap.url],
                router=router,
                proxy_settings=WORKERS,
            )
        )
        asyncio.run(converse_while_publishing(stack, versions, num_calls))
    hold_against_ledger(stack, tap.ledger, num_calls)


async def converse_while_publishing(stack: Stack, versions: list[Path], num_calls: int) -> None:
    """Conversations without pause until there were enough calls and every version was published among them.

    A version follows once a call that began under the one before it has ended, so that each samples some tokens,
    however long the engine paused between them.
    """
    finished: asyncio.Queue[int] = asyncio.Queue()  # of each call, the version under which it began
    enough = asyncio.Event()
    serving = 0

    async def agent(number: int) -> None:
        draw = random.Random(number)
        async with aiohttp.ClientSession(stack.proxy.url, timeout=aiohttp.ClientTimeout(total=300)) as http:
            while not enough.is_set():
                messages: list[dict[str, object]] = []
                for num_words in TURNS:
                    begun = serving
                    await one_turn(http, draw, messages, num_words)
                    finished.put_nowait(begun)

    async def publisher() -> None:
        nonlocal serving
        calls, newest = 0, -1
        for version in range(NUM_UPDATES + 1):
            if version:
                await asyncio.to_thread(publish_version, stack, versions[version], version)
                serving = version
            while calls < (version + 1) * num_calls // (NUM_UPDATES + 1) or newest < version:
                newest = max(newest, await finished.get())
                calls += 1
        enough.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(publisher())
        for number in range(CONCURRENCY):
            group.create_task(agent(number))


def publish_version(stack: Stack, folder: Path, version: int) -> None:
    config = TrainerConfig(proxy_urls=[stack.proxy.url], engine_urls=stack.engine_urls)
    catalog = Catalog.open(stack.settings.store)
    try:
        report = publish(folder, version, config, CONTROL_KEY, catalog)
    finally:
        catalog.close()
    assert report.serving == stack.engine_urls and not report.failed


async def one_turn(
    http: aiohttp.ClientSession, draw: random.Random, messages: list[dict[str, object]], num_words: int
) -> None:
    """Adds the user's words and the answer to the conversation."""
    messages.append({"role": "user", "content": " ".join(draw.choices(WORDS, k=num_words))})
    messages.append(await one_call(http, messages, max_tokens=draw.randint(16, 160), stream=draw.random() < 0.5))


async def one_call(
    http: aiohttp.ClientSession, messages: list[dict[str, object]], *, max_tokens: int, stream: bool
) -> dict[str, object]:
    """The assistant's message as an agent would keep it: content and tool calls, no reasoning.

    Uses raw HTTP, because two dozen SDK clients in one process would leave no CPU time for calls in flight.
    """
    body = {"model": "weir", "messages": messages, "max_tokens": max_tokens, "temperature": 1.0, "stream": stream}
    async with http.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        if not stream:
            message = (await answer.json())["choices"][0]["message"]
            return {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name) is not None}
        return joined([json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: {")])


def joined(chunks: list[dict[str, Any]]) -> dict[str, object]:
    """The message assembled from a stream's chunks; the stream must have ended with a finish reason."""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert chunks[-1]["choices"][0]["finish_reason"], chunks[-1]
    calls: dict[int, dict[str, Any]] = {}
    for part in (part for delta in deltas for part in delta.get("tool_calls") or []):
        kept = calls.setdefault(
            part["index"], {"id": part["id"], "type": "function", "function": {"name": "", "arguments": ""}}
        )
        for name in ("name", "arguments"):
            kept["function"][name] += part["function"].get(name) or ""
    text = "".join(delta.get("content") or "" for delta in deltas)
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls.values())} if calls else {})}


def recorded(stack: Stack) -> list[CallRecord]:
    """Every record in the store's log, from sealed and open segments."""
    folder = stack.settings.store.root / "log"
    return [record for path in sorted(folder.glob("*/*.wal")) for record in read_segment(path).records]


def hold_against_ledger(stack: Stack, ledger: Ledger, num_calls: int) -> None:
    records = recorded(stack)
    assert len(records) >= num_calls
    assert {record.stream for record in records} == {True, False}
    claimed = [rid for record in records for rid in record.engine_rids]
    assert len(claimed) == len(set(claimed)), "two records claim the same engine request"
    assert set(ledger) <= set(claimed), "an engine sampled tokens that no record has"
    for record in records:
        hold_record(record, ledger)
    spanning = [record for record in records if len({span.label for span in record.spans}) > 1]
    assert len(spanning) >= NUM_UPDATES, "no calls were in flight while weights changed"
    assert {span.label for record in records for span in record.spans} == {str(n) for n in range(NUM_UPDATES + 1)}
    hold_prefixes(records)
    hold_store(stack, records)


def hold_record(record: CallRecord, ledger: Ledger) -> None:
    truth = [sampled for rid in record.engine_rids for sampled in ledger.get(rid, [])]
    assert unpack_ids(record.output_ids).tolist() == [sampled.token for sampled in truth], record.call_id
    logprobs = unpack_logprobs(record.output_logprobs)
    assert all(abs(ours - sampled.logprob) <= 1e-6 for ours, sampled in zip(logprobs.tolist(), truth, strict=True)), (
        record.call_id
    )
    assert list(labels_of(record)) == [sampled.version for sampled in truth], record.call_id


def labels_of(record: CallRecord) -> Iterator[str]:
    for span in record.spans:
        yield from [span.label] * (span.end - span.start)


def hold_prefixes(records: list[CallRecord]) -> None:
    sessions: dict[str, list[CallRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.started_us):
        sessions[record.session_id].append(record)
    assert {len(turns) for turns in sessions.values()} == {len(TURNS)}
    for turns in sessions.values():
        for earlier, later in itertools.pairwise(turns):
            exact = earlier.prompt_ids + earlier.output_ids
            assert later.prompt_ids[: len(exact)] == exact, f"{later.call_id} does not continue {earlier.call_id}"


def hold_store(stack: Stack, records: list[CallRecord]) -> None:
    """Assert that the views give the same calls before and after compaction."""
    config = stack.settings.store
    for _ in range(2):
        stored = load_calls(config, sorted({record.session_id for record in records}))
        found = {call.call_id: call for calls in stored.values() for call in calls}
        assert len(found) == len(records)
        for record in records:
            call = found[record.call_id]
            assert call.prompt_ids.astype("<i4").tobytes() == record.prompt_ids
            assert call.output_ids.astype("<i4").tobytes() == record.output_ids
            assert call.output_logprobs.astype("<f4").tobytes() == record.output_logprobs
            assert [str(version) for version in call.versions] == list(labels_of(record))
        (count,) = connect(config).sql("select count(*) from tokens").fetchall()[0]
        assert count == sum(len(record.output_ids) // 4 for record in records)
        compact(config, seal_open=True)
