"""/generate over real sockets: forms of the answer, finish reasons, invalid requests, disconnecting clients."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support_calls import body_of, generate, logprobs_of, read_ledger, streamed, versions_of
from support_model import make_tokenizer
from support_servers import EngineFactory, ServerProcess, start_engine


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One engine for all tests of this file that leave it as they found it."""
    started = start_engine(tiny_model_dir, folder=tmp_path_factory.mktemp("engine"))
    yield started
    started.stop()


def load_of(server: ServerProcess) -> tuple[int, int]:
    state = server.get("/server_info")["internal_states"][0]
    return state["num_running"], state["num_waiting"]


def wait_idle(server: ServerProcess) -> None:
    while load_of(server) != (0, 0):
        pass


def test_a_stream_is_cumulative_and_ends_with_the_whole_answer(server: ServerProcess) -> None:
    whole = generate(server, max_new_tokens=60)
    with streamed(server, body_of(max_new_tokens=60)) as call:
        last = call.last()
    assert call.done
    assert last["output_ids"] == whole["output_ids"]
    assert last["text"] == whole["text"]
    assert logprobs_of(last) == pytest.approx(logprobs_of(whole), abs=1e-5)
    for before, after in zip(call.chunks, call.chunks[1:], strict=False):
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert after["text"].startswith(before["text"])
        assert before["meta_info"]["finish_reason"] is None
        assert "weight_versions" not in before["meta_info"]


def test_an_incremental_stream_gives_each_token_once(engine_server: EngineFactory) -> None:
    server = engine_server(None, "--incremental-streaming-output")
    whole = generate(server, max_new_tokens=60)
    with streamed(server, body_of(max_new_tokens=60)) as call:
        call.last()
    assert [token for chunk in call.chunks for token in chunk["output_ids"]] == whole["output_ids"]
    assert [logprob for chunk in call.chunks for logprob in logprobs_of(chunk)] == pytest.approx(
        logprobs_of(whole), abs=1e-5
    )
    assert "".join(chunk["text"] for chunk in call.chunks) == whole["text"]
    assert call.chunks[-1]["meta_info"]["completion_tokens"] == 60


def test_text_prompts_are_the_tokenizers_ids(server: ServerProcess) -> None:
    ids = make_tokenizer(512).encode("<|im_start|>user\nadd two vectors<|im_end|>\n")
    params = {"temperature": 0.0, "max_new_tokens": 8}
    asked = {"text": "<|im_start|>user\nadd two vectors<|im_end|>\n", "sampling_params": params}
    from_text = server.post("/generate", asked)
    assert from_text["meta_info"]["prompt_tokens"] == len(ids)
    assert (
        from_text["output_ids"] == server.post("/generate", {"input_ids": ids, "sampling_params": params})["output_ids"]
    )


def test_a_stop_id_ends_the_output_and_is_its_last_token(server: ServerProcess) -> None:
    ids = generate(server)["output_ids"]
    stopped = generate(server, stop_token_ids=[ids[5]], ignore_eos=False)
    assert stopped["output_ids"] == ids[: ids.index(ids[5]) + 1]
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": ids[5]}
    shown = generate(server, stop_token_ids=[ids[5]], ignore_eos=False, no_stop_trim=True)
    assert len(shown["text"]) > len(stopped["text"])
    assert shown["text"].startswith(stopped["text"])


def test_the_models_end_of_turn_stops_unless_ignored(server: ServerProcess) -> None:
    eos = make_tokenizer(512).eos_token_id
    seen = [
        generate(server, [number], temperature=1.0, sampling_seed=number, max_new_tokens=900, ignore_eos=False)
        for number in range(1, 9)
    ]
    ended = [answer for answer in seen if answer["meta_info"]["finish_reason"]["type"] == "stop"]
    assert ended
    for answer in ended:
        assert answer["meta_info"]["finish_reason"]["matched"] == eos
        assert answer["output_ids"].index(eos) == len(answer["output_ids"]) - 1


def test_a_stop_string_may_span_tokens_and_is_cut_from_the_text(server: ServerProcess) -> None:
    whole = generate(server, max_new_tokens=40)
    text = whole["text"]
    place = next(
        i for i in range(4, len(text) - 6) if "\ufffd" not in text[i : i + 4] and text.find(text[i : i + 4]) == i
    )
    stop = text[place : place + 4]
    stopped = generate(server, max_new_tokens=40, stop=[stop, "never seen"])
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert stopped["text"] == text[:place]
    assert stopped["output_ids"] == whole["output_ids"][: len(stopped["output_ids"])]
    shown = generate(server, max_new_tokens=40, stop=stop, no_stop_trim=True)
    assert shown["text"] == text[: place + 4]


def test_special_tokens_are_left_out_of_the_text_unless_wanted(server: ServerProcess) -> None:
    eos = make_tokenizer(512).eos_token_id
    draws = ({"temperature": 1.0, "sampling_seed": seed, "max_new_tokens": 900} for seed in range(40))
    params, plain = next(
        (params, answer) for params in draws if eos in (answer := generate(server, **params))["output_ids"]
    )
    assert "<|im_end|>" not in plain["text"]
    shown = generate(server, **params, skip_special_tokens=False)["text"]
    assert shown.count("<|im_end|>") == plain["output_ids"].count(eos)


def test_zero_new_tokens_are_an_empty_answer(server: ServerProcess) -> None:
    answer = generate(server, max_new_tokens=0)
    assert (answer["output_ids"], answer["text"]) == ([], "")
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 0}


WRONG: dict[str, tuple[Any, str]] = {
    "malformed": (b"{bad", "malformed"),
    "no prompt": ({"sampling_params": {}}, "Either text or input_ids"),
    "empty prompt": ({"input_ids": []}, "input_ids cannot be empty"),
    "empty text": ({"text": ""}, "input_ids cannot be empty"),
    "several prompts": ({"input_ids": [[1], [2]]}, "Expected `int`"),
    "id of no token": ({"input_ids": [1, 512]}, "input_ids must be in [0, 511], got 512"),
    "negative id": ({"input_ids": [-1]}, "got -1"),
    "fraction": ({"input_ids": [1.5]}, "Expected `int`"),
    "longer than the context": ({"input_ids": [1] * 5000}, "longer than the model's context length (4096 tokens)"),
    "too many in all": (
        {"input_ids": [1] * 4000, "sampling_params": {"max_new_tokens": 1000}},
        "You requested a total of 5000 tokens",
    ),
    "unknown sampling field": ({"input_ids": [1], "sampling_params": {"bogus": 1}}, "unknown field `bogus`"),
    "wrong type": ({"input_ids": [1], "sampling_params": {"temperature": "x"}}, "Expected `float | null`"),
    "n": ({"input_ids": [1], "sampling_params": {"n": 0}}, "n must be 1"),
    "bias of no token": (
        {"input_ids": [1], "sampling_params": {"logit_bias": {"512": 1}}},
        "logit_bias must have keys in [0, 511], got '512'",
    ),
    "likeliest": ({"input_ids": [1], "top_logprobs_num": -1}, "top_logprobs_num must be at least 0, got -1"),
    "images": ({"input_ids": [1], "image_data": "x"}, "image_data is not offered"),
    "logprob start": (
        {"input_ids": [1], "return_logprob": True, "logprob_start_len": 1},
        "logprob_start_len must be -1 or in [0, 0], got 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_requests_are_400_with_a_reason_and_the_next_one_works(
    server: ServerProcess, name: str, stream: bool
) -> None:
    body, said = WRONG[name]
    if isinstance(body, bytes):
        answer = server.client.post("/generate", content=body)
    else:
        answer = server.client.post("/generate", json=body | {"stream": stream})
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert len(generate(server, max_new_tokens=2)["output_ids"]) == 2


def test_unknown_routes_and_methods_have_the_same_error_shape(server: ServerProcess) -> None:
    for method, path, status in (("GET", "/nowhere", 404), ("GET", "/generate", 405), ("POST", "/health", 405)):
        answer = server.client.request(method, path)
        assert answer.status_code == status
        assert path in answer.json()["error"]["message"]


def test_a_rid_in_flight_is_not_taken_twice(server: ServerProcess) -> None:
    with streamed(server, body_of(rid="twice", max_new_tokens=4000)) as call:
        call.wait_for(1)
        refused = server.client.post("/generate", json=body_of(rid="twice"))
        assert refused.status_code == 400
        assert refused.json() == {"error": {"message": "Duplicate request ID detected: twice"}}
    wait_idle(server)
    assert server.post("/generate", body_of(rid="twice"))["meta_info"]["id"] == "twice"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_costing(server: ServerProcess, stream: bool) -> None:
    body = body_of(rid=f"left-{stream}", max_new_tokens=4000)
    if stream:
        with streamed(server, body) as call:
            call.wait_for(5)
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/generate", json=body, timeout=0.2, trust_env=False)
    wait_idle(server)
    assert 0 < len(read_ledger(server, f"left-{stream}")) < 4000


def test_sixty_four_at_once_with_random_aborts_give_exactly_what_the_ledger_holds(
    engine_server: EngineFactory,
) -> None:
    server = engine_server(None, "--max-running", "16")
    chance = random.Random(1)
    bodies = [
        body_of(
            [chance.randrange(500) for _ in range(chance.randrange(1, 60))],
            rid=f"r{number}",
            temperature=chance.choice([0.0, 1.0]),
            max_new_tokens=chance.randrange(1, 200),
        )
        for number in range(64)
    ]

    def call(number: int) -> dict[str, Any]:
        if number % 5 == 0:
            with streamed(server, bodies[number]) as stream:
                return stream.last()
        answer: dict[str, Any] = server.post("/generate", bodies[number])
        return answer

    with ThreadPoolExecutor(80) as pool:
        calls = [pool.submit(call, number) for number in range(64)]
        for number in chance.sample(range(64), 16):
            pool.submit(server.post, "/abort_request", {"rid": f"r{number}"}).result()
        answers = [call.result() for call in calls]

    lines = read_ledger(server)
    for number, answer in enumerate(answers):
        mine = [line for line in lines if line["rid"] == f"r{number}"]
        assert [line["position"] for line in mine] == list(range(len(mine)))
        assert [line["token"] for line in mine] == answer["output_ids"]
        assert [line["logprob"] for line in mine] == logprobs_of(answer)
        assert [line["version"] for line in mine] == versions_of(answer)
        wanted = bodies[number]["sampling_params"]["max_new_tokens"]
        aborted = answer["meta_info"]["finish_reason"]["type"] == "abort"
        assert len(mine) < wanted if aborted else len(mine) == wanted
    assert len(lines) == sum(len(answer["output_ids"]) for answer in answers)
    assert load_of(server) == (0, 0)


def test_kill_minus_nine_leaves_every_token_that_was_seen_in_the_ledger(engine_server: EngineFactory) -> None:
    server = engine_server()
    with streamed(server, body_of(rid="killed", max_new_tokens=4000)) as call:
        seen = call.wait_for(50)
        server.kill()
    lines = read_ledger(server)
    assert [line["token"] for line in lines][: len(seen["output_ids"])] == seen["output_ids"]
    assert [line["logprob"] for line in lines][: len(seen["output_ids"])] == logprobs_of(seen)
