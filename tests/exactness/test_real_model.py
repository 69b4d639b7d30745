"""A real language model, with its own chat template and byte-level BPE, on the embedded engine and on SGLang.

Agents hold ten turns of text-protocol tool use in many scripts. Sampling is hot and answers are cut anywhere: their ids
are no tokenisation of any text, half characters among them, so a prompt that was tokenised again would differ. Each
recorded id, logprob and version must be what the engine sampled, and a turn must begin with the exact ids before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sglang_server import needs_sglang, start_sglang
from support_ledger import Ledger, Tap, read_ledgers
from support_servers import start_engine
from support_stack import Stack, running_stack
from tokenizers import Tokenizer

from weir.store.log.segment_format import read_segment
from weir.store.records.call_record import CallRecord, Stitch, unpack_ids, unpack_logprobs

TURNS = 10
RESULTS = (
    "Grüße, Ödön",
    "世界 は 広い",
    "🌍🚀 done",
    "naïve \\u0000 \\ud83d",
    "مرحبا",
    " \n\n  42",
    "<|im_start|>",
    "a" * 40,
    "Ω≈ç√",
)
AGENTS = ("en", "日本", "emoji 🧪")


@pytest.mark.parametrize("kind", ["embedded", pytest.param("sglang", marks=[needs_sglang, pytest.mark.sglang])])
def test_ten_turns_of_tool_use_are_exact_with_a_real_model(tmp_path: Path, smollm2_dir: Path, kind: str) -> None:
    with (
        engine_and_ledger(kind, smollm2_dir, tmp_path) as (url, behind, ledger),
        running_stack(tmp_path, model=smollm2_dir, engine_urls=[url], worker_urls=[behind]) as stack,
    ):
        asyncio.run(converse(stack))
        truth = ledger()
    sessions = by_session(stack)
    assert len(sessions) == len(AGENTS) and {len(turns) for turns in sessions.values()} == {TURNS}
    records = [record for turns in sessions.values() for record in turns]
    for record in records:
        hold_record(record, truth)
    for turns in sessions.values():
        assert [record.stitch for record in turns] == [Stitch.NEW_ROOT, *[Stitch.BRIDGED] * (TURNS - 1)]
        for earlier, later in itertools.pairwise(turns):
            exact = earlier.prompt_ids + earlier.output_ids
            assert later.prompt_ids[: len(exact)] == exact
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    assert any(is_odd(tokenizer, record) for record in records), "no answer that a tokeniser would write differently"


@contextlib.contextmanager
def engine_and_ledger(kind: str, model: Path, folder: Path) -> Iterator[tuple[str, str, Any]]:
    """The engine's URL, the one that the router is to use, and how to read what the engine sampled."""
    if kind == "embedded":
        engine = start_engine(model, folder=folder, arguments=("--dtype", "bfloat16"))
        assert engine.ledger_path is not None
        path = engine.ledger_path
        try:
            yield engine.url, engine.url, lambda: read_ledgers([path])
        finally:
            engine.stop()
        return
    flags = ("--weight-version", "0", "--incremental-streaming-output")
    engine = start_sglang(model, folder=folder, arguments=flags)
    tap = Tap(engine.url)
    try:
        yield engine.url, tap.url, lambda: tap.ledger
    finally:
        tap.stop()
        engine.stop()


async def converse(stack: Stack) -> None:
    async with aiohttp.ClientSession(stack.proxy.url, timeout=aiohttp.ClientTimeout(total=None)) as http:
        await asyncio.gather(*(agent(http, name) for name in AGENTS))


async def agent(http: aiohttp.ClientSession, name: str) -> None:
    """Ten turns: each answer is taken for a command, and a result comes back as the user's next message."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"You are agent {name}. Use the tools."}]
    for turn in range(TURNS):
        body = {"model": "weir", "messages": messages, "max_tokens": 5 + turn, "temperature": 1.8}
        async with http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            message = (await answer.json())["choices"][0]["message"]
        result = RESULTS[turn % len(RESULTS)]
        messages += [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": result}]


def by_session(stack: Stack) -> dict[str, list[CallRecord]]:
    records = [r for path in stack.settings.store.root.glob("log/*/*.wal") for r in read_segment(path).records]
    found: dict[str, list[CallRecord]] = {}
    for record in sorted(records, key=lambda record: record.started_us):
        found.setdefault(record.session_id, []).append(record)
    return found


def hold_record(record: CallRecord, truth: Ledger) -> None:
    sampled = [token for rid in record.engine_rids for token in truth[rid]]
    assert unpack_ids(record.output_ids).tolist() == [token.token for token in sampled]
    logprobs = unpack_logprobs(record.output_logprobs).tolist()
    assert logprobs == pytest.approx([token.logprob for token in sampled], abs=1e-6)
    assert {token.version for token in sampled} == {span.label for span in record.spans} == {"0"}


def is_odd(tokenizer: Tokenizer, record: CallRecord) -> bool:
    """Whether tokenising the answer's text gives other ids than those that were sampled."""
    ids = unpack_ids(record.output_ids).tolist()
    again: list[int] = tokenizer.encode(tokenizer.decode(ids, skip_special_tokens=False), add_special_tokens=False).ids
    return again != ids
