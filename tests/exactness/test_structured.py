"""Answers in a format that the agent gave, in every dialect: valid, and recorded as they were drawn."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from sglang_server import needs_sglang, start_sglang
from support_ledger import Ledger, Tap, read_ledgers
from support_model import make_tiny_model
from support_servers import start_engine
from support_stack import CONTROL_KEY, Stack, running_stack
from tokenizers import Tokenizer

from weir.store.catalog.catalog import Catalog
from weir.store.log.segment_format import read_segment
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs
from weir.trainer.publishing.publish import publish
from weir.trainer.settings.config import TrainerConfig

USER = [{"role": "user", "content": "Name this session."}]
TITLES = ["Fix the tests", 'Tests, "fixed"', "Prüfe alle"]
SCHEMA = {
    "type": "object",
    "properties": {"title": {"enum": TITLES}},
    "required": ["title"],
    "additionalProperties": False,
}
LONG = SCHEMA | {"properties": {"title": {"type": "string", "minLength": 300, "maxLength": 320}}}
TOOL = {"type": "function", "function": {"name": "rename", "parameters": SCHEMA, "strict": True}}
# The call that opens a session of Claude Code 2.1: a title for it, in a format.
TITLE_CALL = {
    "model": "weir",
    "max_tokens": 400,
    "system": [{"type": "text", "text": "Generate a concise, sentence-case title (3-7 words)."}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "fix the tests"}]}],
    "tools": [],
    "metadata": {"user_id": "user_x_account__session_0f0e0d0c-0b0a-4908-8706-050403020100"},
    "temperature": 1,
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    "stream": True,
}


@contextlib.contextmanager
def opened(kind: str, folder: Path, model: Path) -> Iterator[tuple[Stack, Callable[[], Ledger]]]:
    """A stack over one engine, and how to read what that engine sampled."""
    with contextlib.ExitStack() as stack:
        if kind == "embedded":
            engine = start_engine(model, folder=folder)
            stack.callback(engine.stop)
            path = engine.ledger_path
            assert path is not None
            yield (
                stack.enter_context(running_stack(folder, model=model, engine_urls=[engine.url])),
                lambda: read_ledgers([path]),
            )
            return
        flags = ("--weight-version", "0", "--grammar-backend", kind, "--constrained-json-disable-any-whitespace")
        engine = start_sglang(model, folder=folder, arguments=flags)
        stack.callback(engine.stop)
        tap = Tap(engine.url)
        stack.callback(tap.stop)
        running = running_stack(folder, model=model, engine_urls=[engine.url], worker_urls=[tap.url])
        yield stack.enter_context(running), lambda: tap.ledger


def records_of(stack: Stack) -> list[CallRecord]:
    return [r for path in stack.settings.store.root.glob("log/*/*.wal") for r in read_segment(path).records]


def hold(records: list[CallRecord], ledger: Ledger) -> None:
    """Every record's tokens, logprobs and versions are those that the engine sampled, in the order of its pieces."""
    for record in records:
        truth = [sampled for rid in record.engine_rids for sampled in ledger[rid]]
        assert unpack_ids(record.output_ids).tolist() == [sampled.token for sampled in truth]
        expected = [sampled.logprob for sampled in truth]
        assert unpack_logprobs(record.output_logprobs).tolist() == pytest.approx(expected, abs=1e-6)
        labels = [span.label for span in record.spans for _ in range(span.start, span.end)]
        assert labels == [sampled.version for sampled in truth]


def texts_in(events: str) -> str:
    """The text of a Messages stream."""
    data = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    assert data[-1]["type"] == "message_stop", data[-1]
    return "".join(one["delta"].get("text", "") for one in data if one["type"] == "content_block_delta")


def hold_title(text: str) -> None:
    assert json.loads(text).keys() == {"title"}
    assert json.loads(text)["title"] in TITLES


@pytest.mark.parametrize(
    "kind",
    [
        "embedded",
        pytest.param("xgrammar", marks=[needs_sglang, pytest.mark.sglang]),
        pytest.param("llguidance", marks=[needs_sglang, pytest.mark.sglang]),
    ],
)
def test_a_format_is_kept_in_every_dialect(tmp_path: Path, tiny_model_dir: Path, kind: str) -> None:
    with opened(kind, tmp_path, tiny_model_dir) as (stack, ledger):

        def ask(route: str, **body: Any) -> httpx.Response:
            answer = stack.proxy.client.post(route, json={"model": "weir"} | body)
            assert answer.status_code == 200, answer.text
            return answer

        hold_title(texts_in(ask("/v1/messages", **TITLE_CALL).text))
        older = {"max_tokens": 400, "messages": USER, "output_format": {"type": "json_schema", "schema": SCHEMA}}
        hold_title(ask("/v1/messages", **older).json()["content"][0]["text"])
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
        chat = ask("/v1/chat/completions", messages=USER, max_tokens=400, response_format=form, logprobs=True)
        hold_title(chat.json()["choices"][0]["message"]["content"])
        named = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
        answered = ask("/v1/responses", input="Name it.", max_output_tokens=400, text=named).json()["output"]
        hold_title(answered[-1]["content"][0]["text"])
        hold_title(
            ask("/v1/completions", prompt="Name it.", max_tokens=400, response_format=form).json()["choices"][0]["text"]
        )
        anything = ask("/v1/chat/completions", messages=USER, max_tokens=60, response_format={"type": "json_object"})
        assert anything.json()["choices"][0]["message"]["content"].startswith("{")
        if kind != "xgrammar":  # reads Lark grammars
            told = ask("/v1/chat/completions", messages=USER, max_tokens=400, tools=[TOOL], tool_choice="required")
            (call,) = told.json()["choices"][0]["message"]["tool_calls"]
            assert call["function"]["name"] == "rename"
            hold_title(call["function"]["arguments"])
        records = records_of(stack)
        assert len(records) == (6 if kind == "xgrammar" else 7)
        assert all("json_schema" in record.sampling or "ebnf" in record.sampling for record in records)
        hold(records, ledger())


ENDING = {
    "type": "object",
    "properties": {"of": {"enum": ["a", "b"]}},
    "required": ["of"],
    "additionalProperties": False,
}
SUM = {"type": "function", "function": {"name": "sum", "parameters": ENDING, "strict": True}}


@pytest.mark.parametrize("kind", ["embedded", pytest.param("llguidance", marks=[needs_sglang, pytest.mark.sglang])])
def test_beside_tools_an_answer_is_in_the_format_or_calls_of_their_schemas(
    tmp_path: Path, tiny_model_dir: Path, kind: str
) -> None:
    mark = Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json")).token_to_id("<tool_call>")
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    asked = {"model": "weir", "messages": USER, "max_tokens": 400, "response_format": form}
    with opened(kind, tmp_path, tiny_model_dir) as (stack, ledger):

        def message(bias: int, **fields: Any) -> Any:
            """The answer of a model that is inclined to call tools, or not to."""
            body = asked | {"tools": [TOOL], "logit_bias": {str(mark): bias}} | fields
            answer = stack.proxy.client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"][0]["message"]

        for parallel in (True, False):
            said = message(-100, parallel_tool_calls=parallel)
            hold_title(said["content"])
            assert "tool_calls" not in said
            called = message(8 if parallel else 100, parallel_tool_calls=parallel)["tool_calls"]
            assert {call["function"]["name"] for call in called} == {"rename"}
            for call in called:
                hold_title(call["function"]["arguments"])
            assert parallel or len(called) == 1
        (required,) = message(0, tools=[TOOL, SUM], tool_choice="required", parallel_tool_calls=False)["tool_calls"]
        if required["function"]["name"] == "rename":
            hold_title(required["function"]["arguments"])
        records = records_of(stack)
        assert all("ebnf" in record.sampling and "json_schema" not in record.sampling for record in records)
        hold(records, ledger())


def test_an_answer_in_a_format_begins_anew_when_weights_change_under_it(tmp_path: Path) -> None:
    """An engine cannot start a grammar in the middle: what the abort left is dropped, and no agent has seen it."""
    first, second = (make_tiny_model(tmp_path / str(n), vocab_size=512, seed=n) for n in range(2))
    with opened("embedded", tmp_path, first) as (stack, ledger):
        texts = asyncio.run(asked_while_publishing(stack, second))
        records, truth = records_of(stack), ledger()
    for text in texts:
        assert 300 <= len(json.loads(text)["title"]) <= 320
    assert len(records) == len(texts)
    hold(records, truth)
    claimed = {rid for record in records for rid in record.engine_rids}
    assert truth.keys() - claimed, "no answer was in flight while weights changed"
    assert {span.label for record in records for span in record.spans} == {"0", "1"}


async def asked_while_publishing(stack: Stack, weights: Path) -> list[str]:
    """The texts of calls, streamed and not, without pause until new weights were published among them."""
    texts: list[str] = []
    some, done = asyncio.Event(), asyncio.Event()

    async def agent(http: aiohttp.ClientSession, stream: bool) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": LONG}}
        body = {"model": "weir", "messages": USER, "max_tokens": 800, "response_format": form, "stream": stream}
        while not done.is_set():
            async with http.post("/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                if stream:
                    chunks = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: {")]
                    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
                    texts.append("".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks))
                else:
                    texts.append((await answer.json())["choices"][0]["message"]["content"])
            some.set()

    async def publisher() -> None:
        await some.wait()
        await asyncio.to_thread(publish_weights, stack, weights)
        done.set()

    http = aiohttp.ClientSession(stack.proxy.url, timeout=aiohttp.ClientTimeout(total=300))
    async with http, asyncio.TaskGroup() as group:
        group.create_task(publisher())
        for number in range(4):
            group.create_task(agent(http, stream=number % 2 == 0))
    return texts


def publish_weights(stack: Stack, folder: Path) -> None:
    config = TrainerConfig(proxy_urls=[stack.proxy.url], engine_urls=stack.engine_urls)
    catalog = Catalog.open(stack.settings.store)
    try:
        assert not publish(folder, 1, config, CONTROL_KEY, catalog).failed
    finally:
        catalog.close()


@pytest.mark.parametrize(
    ("route", "fields", "param"),
    [
        ("/v1/chat/completions", {"messages": USER, "response_format": {"type": "json_object"}}, "response_format"),
        ("/v1/completions", {"prompt": "a", "response_format": {"type": "json_object"}}, "response_format"),
        ("/v1/responses", {"input": "a", "text": {"format": {"type": "json_object"}}}, "text.format"),
        ("/v1/messages", TITLE_CALL, "output_config.format"),
    ],
)
def test_an_engine_without_grammars_is_not_asked_for_one(
    without_grammars: Stack, route: str, fields: dict[str, Any], param: str
) -> None:
    before = len(records_of(without_grammars))
    answer = without_grammars.proxy.client.post(route, json={"model": "weir"} | fields)
    assert answer.status_code == 400
    assert param in answer.json()["error"]["message"]
    assert "grammar" in answer.json()["error"]["message"]
    assert len(records_of(without_grammars)) == before


@pytest.fixture(scope="module")
def without_grammars(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[Stack]:
    """A stack whose engine serves a folder without a tokenizer, so that it keeps no grammars."""
    folder = tmp_path_factory.mktemp("bare")
    bare = folder / "model"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((tiny_model_dir / name).read_bytes())
    engine = start_engine(bare, folder=folder)
    try:
        with running_stack(folder, model=tiny_model_dir, engine_urls=[engine.url]) as stack:
            yield stack
    finally:
        engine.stop()
