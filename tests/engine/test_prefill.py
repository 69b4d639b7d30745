"""Prompts computed in pieces: the same tokens as in one pass, and running requests that go on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from support_calls import body_of, generate, logprobs_of, streamed
from support_model import make_tiny_model
from support_servers import EngineFactory, ServerProcess

from weir.engine.batch import Batch
from weir.engine.decoder import Decoder
from weir.engine.loop import EngineLoop, PrefillBudget
from weir.engine.params import SamplingParams, resolve_sampling
from weir.engine.request import Request
from weir.engine.texts import Texts
from weir.engine.weights import load_model, read_weights

LONG = [(7 * place) % 500 for place in range(900)]
SHORT = [[n + 3, n + 9, 40 + n] for n in range(4)]


@pytest.fixture(scope="module")
def decoder(tiny_model_dir: Path) -> Iterator[Decoder]:
    model = load_model(tiny_model_dir, dtype=torch.float32, device=torch.device("cpu"))
    with torch.inference_mode():
        yield Decoder(model, max_rows=8, max_length=1024)


def request_of(prompt: list[int]) -> Request:
    sampling = resolve_sampling(
        SamplingParams(max_new_tokens=50, temperature=0.0),
        prompt_len=len(prompt),
        context_len=1024,
        vocab_size=512,
        eos_ids=frozenset(),
    )
    return Request(
        rid=str(prompt[:3]),
        prompt_ids=prompt,
        sampling=sampling,
        seed=0,
        stream=False,
        return_logprob=True,
        logprob_start=None,
        changed=lambda: None,
    )


class Run:
    """A batch whose requests keep what is drawn for them."""

    def __init__(self, decoder: Decoder, prefix_tokens: int = 0) -> None:
        self.batch = Batch(decoder, prefix_tokens=prefix_tokens)

    def admit(self, *requests: Request) -> None:
        self._take(list(requests), self.batch.admit(requests))

    def step(self) -> None:
        self._take(list(self.batch.running), self.batch.step())

    def _take(self, requests: list[Request], drawn: object) -> None:
        for request, token, logprob in zip(requests, drawn.tokens, drawn.logprobs, strict=True):  # type: ignore[attr-defined]
            request.record(token, logprob, "0", sampling_logprob=logprob)


def alone(decoder: Decoder, prompt: list[int], steps: int) -> Request:
    run, request = Run(decoder), request_of(prompt)
    run.admit(request)
    for _ in range(steps - 1):
        run.step()
    return request


def hold(found: Request, expected: Request) -> None:
    assert found.output_ids == expected.output_ids
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


@pytest.mark.parametrize("piece", [1, 97, 400, 2000])
@torch.inference_mode()
def test_pieces_give_what_one_pass_gives(decoder: Decoder, piece: int) -> None:
    prompt = LONG[:60] if piece == 1 else LONG
    run, request = Run(decoder), request_of(prompt)
    pieces = 0
    while run.batch.num_missing(request) > 1:
        run.batch.advance(request, piece)
        pieces += 1
    assert pieces == -(-(len(prompt) - 1) // piece)
    assert run.batch.num_prefilled == len(prompt) - 1
    run.admit(request)
    for _ in range(4):
        run.step()
    hold(request, alone(decoder, prompt, 5))


@torch.inference_mode()
def test_rows_that_leave_between_pieces_leave_the_prompt_whole(decoder: Decoder) -> None:
    run, request = Run(decoder), request_of(LONG)
    running = [request_of(prompt) for prompt in SHORT]
    run.admit(*running)
    for leaving in ([running[1]], [running[3], running[0]], []):
        run.batch.advance(request, 250)
        run.step()
        run.batch.remove(leaving)
    run.batch.advance(request, 250)
    run.admit(request)
    run.step()
    hold(request, alone(decoder, LONG, 2))
    hold(running[2], alone(decoder, SHORT[2], 5))


@torch.inference_mode()
def test_a_prompt_begun_in_pieces_shares_its_beginning(decoder: Decoder) -> None:
    run, first = Run(decoder, prefix_tokens=2000), request_of(LONG)
    run.admit(first)
    second = request_of([*LONG[:800], 7, 7, 7, *LONG[800:850]])
    run.batch.advance(second, 30)
    assert (run.batch.num_missing(second), second.cached_tokens) == (853 - 830, 800)
    run.admit(second)
    run.step()
    hold(second, alone(decoder, second.prompt_ids, 2))


@torch.inference_mode()
def test_new_weights_drop_what_was_begun(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = load_model(tiny_model_dir, dtype=torch.float32, device=torch.device("cpu"))
    decoder = Decoder(model, max_rows=8, max_length=1024)
    run, request = Run(decoder), request_of(LONG)
    run.batch.advance(request, 500)
    other = make_tiny_model(tmp_path / "other", vocab_size=512, seed=42)
    decoder.adopt(decoder.prepare(read_weights(other, model)))
    run.batch.forget_prefixes()
    assert run.batch.num_missing(request) == len(LONG)
    run.batch.advance(request, 500)
    run.admit(request)
    run.step()
    fresh = Decoder(load_model(other, dtype=torch.float32, device=torch.device("cpu")), max_rows=8, max_length=1024)
    hold(request, alone(fresh, LONG, 2))


@torch.inference_mode()
def test_a_request_that_was_given_up_leaves_no_piece_to_another(decoder: Decoder) -> None:
    run, given_up, other = Run(decoder), request_of(LONG), request_of(LONG[::-1])
    run.batch.advance(given_up, 500)
    run.batch.drop_begun(unless=other)
    run.batch.advance(other, 500)
    run.admit(other)
    hold(other, alone(decoder, LONG[::-1], 1))


def test_a_step_computes_as_much_as_its_time_allows() -> None:
    budget = PrefillBudget(4096, 0.2)
    assert (budget.now(others_run=True), budget.now(others_run=False)) == (128, 4096)
    for _ in range(40):
        budget.took(100, 0.1)
    assert budget.now(others_run=True) == pytest.approx(200, abs=2)
    for _ in range(40):
        budget.took(100_000, 0.1)
    assert budget.now(others_run=True) == 4096
    for _ in range(80):
        budget.took(1, 10.0)
    assert budget.now(others_run=True) == 16


def test_an_idle_engine_waits_for_others_only_as_long_as_it_pays() -> None:
    budget = PrefillBudget(4096, 0.2)
    for _ in range(60):
        budget.took(100, 1.0)
    assert budget.gathering_s(10) == pytest.approx(0.005, rel=0.01)
    assert budget.gathering_s(4096) == 0.01


def test_prompts_that_come_while_an_idle_engine_waits_are_computed_in_one_pass(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[Request] = []
    done = threading.Event()

    def announce(requests: Sequence[Request]) -> None:
        finished.extend(request for request in requests if request.finish is not None)
        if len(finished) == 4:
            done.set()

    loop = loop_of(tiny_model_dir, announce)
    monkeypatch.setattr(PrefillBudget, "gathering_s", lambda *_: 120.0)  # until there are as many as may run
    loop.start()
    try:
        for n in range(4):
            loop.submit(request_of([n + 1] * (90 + n)))
            loop.ask(lambda: None).result(120)
        assert done.wait(120)
        assert loop.num_steps == 50 - 1, "some began later than others"
    finally:
        loop.close()


def loop_of(folder: Path, announce: Callable[[Sequence[Request]], None]) -> EngineLoop:
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    return EngineLoop(
        Decoder(model, max_rows=8, max_length=1024),
        Texts(folder),
        version="0",
        max_running=4,
        prefill_tokens=4096,
        prefill_ms=200,
        prefix_tokens=0,
        seed=0,
        ledger=None,
        announce=announce,
    )


def test_a_stream_goes_on_while_a_long_prompt_is_computed(engine_server: EngineFactory) -> None:
    server = engine_server(None, env={"WEIR_ENGINE__PREFILL_MS": "1"})
    expected = generate(server, LONG * 4, max_new_tokens=8)
    assert server.client.post("/flush_cache").status_code == 200
    with streamed(server, body_of(max_new_tokens=3000)) as call, ThreadPoolExecutor(1) as pool:
        call.wait_for(5)
        asked = pool.submit(generate, server, LONG * 4, max_new_tokens=8)
        while (begun := state_of(server))["num_waiting"] == 0:
            assert not asked.done(), "the prompt was computed in one pass"
        answer = asked.result()
        num_meanwhile = state_of(server)["num_tokens"] - begun["num_tokens"] - 8
    assert num_meanwhile > 50, "the stream stood still"
    assert answer["output_ids"] == expected["output_ids"]
    assert logprobs_of(answer) == pytest.approx(logprobs_of(expected), abs=1e-3)


def state_of(server: ServerProcess) -> dict[str, Any]:
    state: dict[str, Any] = server.get("/server_info")["internal_states"][0]
    return state
