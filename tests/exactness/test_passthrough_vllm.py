"""At level passthrough in front of a real vLLM: the ids are its own, and the agent gets what it gets without us."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support_model import make_tiny_model
from support_proxy import RunningProxy, running_proxy
from support_servers import ServerProcess
from vllm_server import needs_vllm, start_vllm

from weir.store.records.call_record import CaptureLevel, VersionSpan, unpack_ids, unpack_logprobs

pytestmark = needs_vllm
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Add two vectors"}]},
    "/v1/completions": {"prompt": "Add two vectors"},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("vllm")
    model = make_tiny_model(folder / "model", vocab_size=512, hidden_size=128)  # a head's width that its kernels have
    server = start_vllm(model, folder=folder)
    yield server
    server.stop()


@pytest.fixture
def proxy(engine: ServerProcess, tmp_path: Path) -> Iterator[RunningProxy]:
    with running_proxy(tmp_path / "store", None, engine.url, level="passthrough", assumed_version="0") as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_ids_and_answers_are_those_of_vllm_itself(
    engine: ServerProcess, proxy: RunningProxy, path: str, stream: bool
) -> None:
    body = {"model": "weir", "max_tokens": 24, "temperature": 0, "stream": stream, **ASKED[path]}
    proxied = objects(proxy.post(path, body))
    alone = objects(httpx.post(engine.url + path, json=body, trust_env=False, timeout=None))
    assert said(proxied) == said(alone)
    assert members(proxied) == members(alone)
    told = objects(
        httpx.post(
            engine.url + path,
            json=body | {"return_token_ids": True, "logprobs": True if "chat" in path else 0},
            trust_env=False,
            timeout=None,
        )
    )
    choices = [choice for item in told for choice in item["choices"]]
    (prompt_ids,) = [ids for item in (*told, *choices) if (ids := item.get("prompt_token_ids"))]
    (record,) = proxy.records()
    assert record.level is CaptureLevel.TOKENS and record.spans == (VersionSpan(0, 24, "0"),)
    assert unpack_ids(record.prompt_ids).tolist() == prompt_ids
    assert unpack_ids(record.output_ids).tolist() == [n for choice in choices for n in choice.get("token_ids") or ()]
    assert unpack_logprobs(record.output_logprobs).tolist() == pytest.approx(list(logprobs(choices)), abs=1e-4)


def objects(answer: httpx.Response) -> list[dict[str, Any]]:
    """The JSON objects of an answer: one, or those of its events."""
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"].startswith("application/json"):
        return [answer.json()]
    assert answer.text.endswith("data: [DONE]\n\n")
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]


def said(items: list[dict[str, Any]]) -> str:
    choices = [choice for item in items for choice in item["choices"]]
    return "".join(c["text"] if "text" in c else (c.get("message") or c["delta"]).get("content") or "" for c in choices)


def members(items: list[dict[str, Any]]) -> set[str]:
    """Every member of an object, and the value of the empty ones."""
    holders = [*items, *(choice for item in items for choice in item["choices"])]
    return {f"{name}: null" if value is None else name for holder in holders for name, value in holder.items()}


def logprobs(choices: list[dict[str, Any]]) -> Iterator[float]:
    for choice in choices:
        told = choice.get("logprobs") or {}
        yield from told.get("token_logprobs") or [entry["logprob"] for entry in told.get("content") or ()]
