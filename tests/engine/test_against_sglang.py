"""The embedded engine and a real SGLang, side by side on the same weights: tokens, logprobs, fields, forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from sglang_server import needs_sglang, start_sglang
from support_calls import PROMPT, body_of, generate, logprobs_of, streamed, versions_of
from support_logits import kept_logprobs, reference_logits
from support_model import make_tiny_model
from support_servers import ServerProcess, start_engine

pytestmark = [needs_sglang, pytest.mark.sglang]

LONG = 3000
# What SGLang reports of its own clocks and caches: the same keys, other values.
OWN_VALUES = ("e2e_latency", "response_sent_to_client_ts", "cached_tokens", "cached_tokens_details")


class Pair(NamedTuple):
    ours: ServerProcess
    sglang: ServerProcess


@pytest.fixture(scope="module")
def pair(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("engines")
    sglang = start_sglang(
        tiny_model_dir, folder=folder, arguments=("--weight-version", "0", "--grammar-backend", "llguidance")
    )
    ours = start_engine(tiny_model_dir, folder=folder)
    yield Pair(ours, sglang)
    ours.stop()
    sglang.stop()


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what may differ: logprobs, clocks, caches."""
    meta = {key: value for key, value in answer["meta_info"].items() if key not in OWN_VALUES}
    for key in ("output_token_logprobs", "input_token_logprobs"):
        if key in meta:
            meta[key] = [token for _, token, _ in meta[key]]
    return answer | {"meta_info": meta}


def both(pair: Pair, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return pair.ours.post("/generate", body), pair.sglang.post("/generate", body)


def prompts() -> list[list[int]]:
    return [[(start * 31 + place * 17) % 500 for place in range(1 + 9 * start)] for start in range(8)]


def test_greedy_tokens_and_logprobs_are_equal(pair: Pair) -> None:
    for prompt in prompts():
        ours, sglang = both(pair, body_of(prompt, max_new_tokens=48))
        assert ours["output_ids"] == sglang["output_ids"]
        assert logprobs_of(ours) == pytest.approx(logprobs_of(sglang), abs=1e-4)
        assert ours["text"] == sglang["text"]


def test_prompt_logprobs_are_equal(pair: Pair) -> None:
    ours, sglang = both(pair, body_of(prompts()[5]) | {"logprob_start_len": 7})
    entries = [answer["meta_info"]["input_token_logprobs"] for answer in (ours, sglang)]
    assert [token for _, token, _ in entries[0]] == [token for _, token, _ in entries[1]]
    assert entries[0][0][0] is entries[1][0][0] is None
    assert [logprob for logprob, *_ in entries[0][1:]] == pytest.approx([lp for lp, *_ in entries[1][1:]], abs=1e-4)


@pytest.mark.parametrize(
    "sampling",
    [
        {"max_new_tokens": 0},
        {"max_new_tokens": 20, "frequency_penalty": 1.5},
        {"max_new_tokens": 20, "presence_penalty": -1.5},
        {"max_new_tokens": 20, "repetition_penalty": 1.7},
        {"temperature": 0.5, "top_k": 1},
        {"stop_token_ids": [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 49], "ignore_eos": False},
        {"stop_token_ids": [378, 49], "ignore_eos": False, "min_new_tokens": 6},
        {"stop_token_ids": [49], "ignore_eos": False, "no_stop_trim": True},
    ],
)
def test_answers_have_the_same_fields_and_values(pair: Pair, sampling: dict[str, Any]) -> None:
    ours, sglang = both(pair, body_of(rid="same", **sampling))
    assert comparable(ours) == comparable(sglang)
    assert ours["meta_info"].keys() == sglang["meta_info"].keys()
    assert logprobs_of(ours) == pytest.approx(logprobs_of(sglang), abs=1e-4)


@pytest.mark.parametrize("grammar", [{"regex": "[abc]{1,3}"}, {"json_schema": '{"enum": ["yes", "no"]}'}])
def test_a_grammar_masks_the_distribution_that_logprobs_belong_to(pair: Pair, grammar: dict[str, str]) -> None:
    ours, sglang = both(pair, body_of(rid="grammar", max_new_tokens=30, ignore_eos=False, **grammar))
    assert ours["output_ids"] == sglang["output_ids"]
    assert logprobs_of(ours) == pytest.approx(logprobs_of(sglang), abs=1e-4)
    assert ours["text"] == sglang["text"]


@pytest.mark.parametrize("sampling", [{}, {"frequency_penalty": 1.0}, {"regex": "[abc]{1,3}", "ignore_eos": False}])
def test_a_bias_and_the_likeliest_tokens_are_equal(pair: Pair, sampling: dict[str, Any]) -> None:
    plain = generate(pair.sglang, max_new_tokens=20, **sampling)["output_ids"]
    bias = {"logit_bias": {str(plain[0]): -100, "97": 1.5}}
    asked = body_of(rid="likeliest", max_new_tokens=20, **sampling, **bias) | {"top_logprobs_num": 4}
    ours, sglang = both(pair, asked)
    assert plain[0] not in ours["output_ids"] and ours["output_ids"] == sglang["output_ids"]
    assert logprobs_of(ours) == pytest.approx(logprobs_of(sglang), abs=1e-4)
    rows = zip(ours["meta_info"]["output_top_logprobs"], sglang["meta_info"]["output_top_logprobs"], strict=True)
    for mine, theirs in rows:
        assert [logprob for logprob, *_ in mine] == pytest.approx([logprob for logprob, *_ in theirs], abs=1e-4)
        allowed = [
            token for logprob, token, _ in theirs if logprob > -1e9
        ]  # those that a grammar forbids are all alike
        assert [token for logprob, token, _ in mine if logprob > -1e9] == allowed


def test_stop_strings_cut_alike(pair: Pair) -> None:
    text = generate(pair.ours, max_new_tokens=40)["text"]
    pieces = [text[place : place + 3] for place in range(0, 36, 5)]
    for stop in [piece for piece in pieces if piece.isascii()]:
        for no_stop_trim in (False, True):
            ours, sglang = both(pair, body_of(rid="stop", max_new_tokens=40, stop=[stop], no_stop_trim=no_stop_trim))
            assert ours["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
            assert comparable(ours) == comparable(sglang)


@pytest.mark.parametrize("truncation", [{}, {"top_p": 0.5}, {"top_k": 5}, {"min_p": 0.3}])
def test_logprobs_after_temperature_are_equal_for_the_same_tokens(pair: Pair, truncation: dict[str, Any]) -> None:
    """What one drew is put to the other as a prompt: its logprob at temperature 1 must be the one reported.

    That is the logprob before truncation, in both engines.
    """
    for drawing, judging in (pair, pair[::-1]):
        drawn = generate(drawing, temperature=1.0, max_new_tokens=40, **truncation)
        judged = judging.post(
            "/generate",
            body_of(PROMPT + drawn["output_ids"], max_new_tokens=1) | {"logprob_start_len": len(PROMPT) - 1},
        )
        expected = [logprob for logprob, *_ in judged["meta_info"]["input_token_logprobs"][1:]]
        assert logprobs_of(drawn) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("truncation", [{"top_k": 5}, {"top_k": 50, "top_p": 0.6}, {"top_k": 50, "min_p": 0.4}])
def test_logprobs_among_the_kept_tokens_are_those_of_the_models_forward_pass(
    pair: Pair, tiny_model_dir: Path, truncation: dict[str, Any]
) -> None:
    """SGLang gives them on request, where a top_k bounds their number; the embedded engine unasked."""
    asked = body_of(temperature=1.3, max_new_tokens=20, **truncation) | {"return_sampling_mask": True}
    for server in pair:
        answer = server.post("/generate", asked)
        logits = reference_logits(tiny_model_dir, PROMPT, answer["output_ids"]) / 1.3
        expected = kept_logprobs(logits, answer["output_ids"], **truncation)
        assert answer["meta_info"]["output_token_sampling_logprobs"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("logprobs", [True, False])
def test_streams_have_the_same_chunks(pair: Pair, logprobs: bool) -> None:
    chunks = []
    for server in pair:
        with streamed(server, body_of(rid="stream", max_new_tokens=12) | {"return_logprob": logprobs}) as call:
            call.last()
        assert call.done
        chunks.append({len(chunk["output_ids"]): chunk for chunk in call.chunks})
    ours, sglang = chunks
    assert ours[12]["meta_info"].keys() - set(OWN_VALUES) == sglang[12]["meta_info"].keys() - set(OWN_VALUES)
    for length in ours.keys() & sglang.keys():
        assert comparable(ours[length]) == comparable(sglang[length])


def test_an_abort_and_a_pause_answer_alike(pair: Pair) -> None:
    finishes, answers = [], []
    for server in pair:
        with streamed(server, body_of(rid="aborted", max_new_tokens=LONG)) as call:
            call.wait_for(3)
            assert server.post("/abort_request", {"rid": "aborted"}) is None
            finishes.append(call.last()["meta_info"]["finish_reason"])
        with streamed(server, body_of(rid="paused", max_new_tokens=LONG)) as call:
            call.wait_for(3)
            answers.append([server.post("/pause_generation", {"mode": "abort"}), server.post("/continue_generation")])
            finishes.append(call.last()["meta_info"]["finish_reason"])
    assert finishes[:2] == finishes[2:]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("mode", ["retract", "in_place"])
def test_an_update_in_a_pause_splits_the_answer_alike(
    pair: Pair, tiny_model_dir: Path, tmp_path: Path, mode: str
) -> None:
    other = make_tiny_model(tmp_path / "other", vocab_size=512, seed=42)
    answers = []
    for server in pair:
        with streamed(server, body_of(rid=f"split-{mode}", max_new_tokens=600)) as call:
            call.wait_for(3)
            server.post("/pause_generation", {"mode": mode})
            update = {"model_path": str(other), "weight_version": "2", "flush_cache": mode == "retract"}
            answers.append(server.post("/update_weights_from_disk", update))
            server.post("/continue_generation")
            answer = call.last()
        versions = versions_of(answer)
        assert versions == sorted(versions)
        assert set(versions) == {"0", "2"}
        assert answer["meta_info"]["weight_version"] == "2"
        assert answer["meta_info"]["num_retractions"] == (1 if mode == "retract" else 0)
        while server.client.post("/flush_cache").status_code != 200:  # SGLang lets a call that has ended go later
            pass
        server.post("/update_weights_from_disk", {"model_path": str(tiny_model_dir), "weight_version": "0"})
    assert answers[0] == answers[1]


def test_control_answers_have_the_same_keys(pair: Pair, tmp_path: Path) -> None:
    refused = [
        server.client.post("/update_weights_from_disk", json={"model_path": str(tmp_path / "none")}) for server in pair
    ]
    assert refused[0].status_code == refused[1].status_code == 400
    assert refused[0].json().keys() == refused[1].json().keys()
    renames = [server.post("/update_weight_version", {"new_version": "0"}) for server in pair]
    assert renames[0] == renames[1]
    sums = [server.post("/weights_checker", {"action": "checksum"}) for server in pair]
    assert sums[0].keys() - sums[1].keys() == set()
    infos = [server.get("/model_info") for server in pair]
    for key in infos[0]:
        assert infos[0][key] == infos[1][key], key
    assert [server.client.post("/flush_cache").status_code for server in pair] == [200, 200]


def test_wrong_requests_get_the_same_status(pair: Pair) -> None:
    for body in (
        {"input_ids": [], "sampling_params": {}},
        {"sampling_params": {}},
        {"input_ids": [1], "sampling_params": {"temperature": -1}},
        {"input_ids": [1], "sampling_params": {"bogus": 1}},
        {"input_ids": [1], "sampling_params": {"top_p": 0}},
        {"input_ids": [1] * 5000, "sampling_params": {}},
        {"input_ids": [1] * 4000, "sampling_params": {"max_new_tokens": 1000}},
    ):
        statuses = [httpx.post(f"{s.url}/generate", json=body, trust_env=False, timeout=120).status_code for s in pair]
        assert statuses == [400, 400], body
