"""A mixture of experts: its tokens and logprobs, and `routed_experts`, are those of transformers' own forward pass."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support_calls import PROMPT, body_of, logprobs_of, streamed
from support_logits import chosen, reference_logits, reference_routes
from support_model import make_tiny_model
from support_servers import EngineFactory, ServerProcess

NUM_LAYERS, NUM_CHOSEN = 2, 2


@pytest.fixture(scope="module")
def mixture_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("mixture"), family="qwen3_moe")


def ask(server: ServerProcess, prompt: list[int], *, start: int = 0, **sampling: Any) -> dict[str, Any]:
    more = {"return_routed_experts": True, "routed_experts_start_len": start}
    answer: dict[str, Any] = server.post("/generate", body_of(prompt, **sampling) | more)
    return answer


def routed(answer: dict[str, Any]) -> np.ndarray:
    """(tokens, layers, chosen)."""
    flat = np.frombuffer(base64.b64decode(answer["meta_info"]["routed_experts"]), "<i4")
    return flat.reshape(-1, NUM_LAYERS, NUM_CHOSEN)


def assert_exact(answer: dict[str, Any], folder: Path, prompt: list[int], start: int = 0) -> None:
    output = answer["output_ids"]
    expected = chosen(reference_logits(folder, prompt, output), output)
    torch.testing.assert_close(torch.tensor(logprobs_of(answer)), expected, atol=1e-5, rtol=0)
    np.testing.assert_array_equal(routed(answer), reference_routes(folder, prompt + output)[start:])


def test_tokens_logprobs_and_experts_are_those_of_transformers(engine_server: EngineFactory, mixture_dir: Path) -> None:
    server = engine_server(model=mixture_dir)
    for prompt in (PROMPT, [5], [(31 * place) % 500 for place in range(300)]):
        assert_exact(ask(server, prompt, max_new_tokens=24), mixture_dir, prompt)
    with streamed(server, body_of(PROMPT) | {"return_routed_experts": True}) as call:
        last = call.last()
    assert ["routed_experts" in chunk["meta_info"] for chunk in call.chunks[:-1]] == [False] * (len(call.chunks) - 1)
    assert_exact(last, mixture_dir, PROMPT)


def test_experts_of_a_copied_beginning_are_given_from_where_they_are_wanted(
    engine_server: EngineFactory, mixture_dir: Path
) -> None:
    server = engine_server(model=mixture_dir)
    first = ask(server, PROMPT)
    prompt = PROMPT + first["output_ids"] + [7, 8, 9]
    whole = ask(server, prompt)
    assert whole["meta_info"]["cached_tokens"] == len(PROMPT) + 15
    assert_exact(whole, mixture_dir, prompt)
    assert_exact(ask(server, prompt, start=35), mixture_dir, prompt, start=35)
    assert routed(ask(server, prompt, start=len(prompt), max_new_tokens=1)).shape[0] == 0


def test_new_weights_route_anew(engine_server: EngineFactory, mixture_dir: Path, tmp_path: Path) -> None:
    server = engine_server(model=mixture_dir)
    ask(server, PROMPT)
    other = make_tiny_model(tmp_path / "other", family="qwen3_moe", seed=9)
    server.post("/update_weights_from_disk", {"model_path": str(other), "weight_version": "1"})
    assert_exact(ask(server, PROMPT), other, PROMPT)


def test_experts_are_given_where_they_are_asked_for_and_the_model_has_some(
    engine_server: EngineFactory, mixture_dir: Path, tiny_model_dir: Path
) -> None:
    server = engine_server(model=mixture_dir)
    assert "routed_experts" not in server.post("/generate", body_of(PROMPT))["meta_info"]
    body = body_of(PROMPT) | {"return_routed_experts": True, "routed_experts_start_len": len(PROMPT) + 1}
    answer = server.client.post("/generate", json=body)
    assert answer.status_code == 400 and "routed_experts_start_len must be in [0, 20]" in answer.text
    assert "routed_experts" not in ask(engine_server(model=tiny_model_dir), PROMPT)["meta_info"]
