"""Time limits: sources of rewards that never answer, or send a byte at a time, end as an outage with a name."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support_http import QuietHandler, listening
from support_reward_model import reward_model
from support_rounds import Judge, add_group, trainer_config

from weir.store.config import StoreConfig
from weir.trainer.errors import JudgeUnavailable
from weir.trainer.http_json import Refused, Unreachable, get, post
from weir.trainer.rewards.answers import Answer
from weir.trainer.trainer import Trainer


async def forever(answer: Answer) -> float:
    await asyncio.Event().wait()
    return 1.0


def forever_in_a_thread(answer: Answer) -> float:
    threading.Event().wait()
    return 1.0


def stops(answer: Answer) -> float:
    raise StopIteration


async def stops_in_the_loop(answer: Answer) -> float:
    raise StopIteration


def exits(answer: Answer) -> float:
    raise SystemExit(0)


async def cancels(answer: Answer) -> float:
    raise asyncio.CancelledError


def half(answer: Answer) -> float:
    return 0.5 if "reward=1.0" in answer.text else 0.0


@contextmanager
def dripping() -> Iterator[str]:
    """A server that sends a byte now and then and never ends its answer."""
    ended = threading.Event()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()
            while not ended.wait(0.02):
                self.wfile.write(b" ")

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # nobody listens any more
                ended.set()

    with listening(Handler) as url:
        yield url
    ended.set()


@contextmanager
def saying(body: bytes) -> Iterator[str]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.answer(200, body)

        def do_GET(self) -> None:
            self.answer(200, body)

    with listening(Handler) as url:
        yield url


def outage_of(store: StoreConfig, judge: Judge, model: Path, reward: dict[str, Any], timeout_s: float) -> str:
    config = trainer_config(judge, rewards={"odd": reward}, judge_timeout_s=timeout_s, judge_attempts=1)
    running = Trainer(config, store, model_path=model)
    with pytest.raises(JudgeUnavailable) as raised:
        running.run_round()
    open_round = running.catalog.open_round()
    assert open_round is not None and open_round.round_id == 1, "nothing is consumed"
    running.close()
    return str(raised.value)


@pytest.mark.parametrize("function", [forever, forever_in_a_thread])
def test_a_function_that_never_returns_is_an_outage(
    function: Any, tiny_model_dir: Path, store: StoreConfig, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    reward = {"function": f"{__name__}:{function.__name__}"}
    outage = outage_of(store, judge, tiny_model_dir, reward, 0.3)
    assert "returned nothing within judge_timeout_s = 0.3 s on call call-g1-" in outage
    monkeypatch.setattr(sys.modules[__name__], function.__name__, half)  # its author fixes it
    running = Trainer(trainer_config(judge, rewards={"odd": reward}), store, model_path=tiny_model_dir)
    report = running.run_round()
    assert report is not None and (report.round, report.metrics["samples"]) == (1, 2)
    running.close()


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (stops, "raised StopIteration (test_waits.py line"),
        (stops_in_the_loop, "raised RuntimeError: coroutine raised StopIteration"),
        (exits, "raised SystemExit: 0"),
        (cancels, "raised CancelledError"),
    ],
)
def test_a_function_that_raises_what_ends_loops_and_processes_is_an_outage(
    function: Any, told: str, tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    outage = outage_of(store, judge, tiny_model_dir, {"function": f"{__name__}:{function.__name__}"}, 600.0)
    assert f":{function.__name__}) {told}" in outage


def test_a_reward_model_that_sends_a_byte_now_and_then_is_an_outage(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    with dripping() as url:
        outage = outage_of(store, judge, tiny_model_dir, {"url": url}, 0.3)
    assert "after 1 attempts: TimeoutError no complete answer within 0.3 s" in outage


def test_a_judge_that_sends_a_byte_now_and_then_is_an_outage(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    with dripping() as url:
        config = trainer_config(judge, kernel_eval_url=url, judge_timeout_s=0.3, judge_attempts=1)
        running = Trainer(config, store, model_path=tiny_model_dir)
        with pytest.raises(JudgeUnavailable, match="after 1 attempts: TimeoutError: no complete answer within"):
            running.run_round()
        running.close()


def test_a_reward_model_at_no_port_and_one_that_nests_without_end_are_outages(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    outage = outage_of(store, judge, tiny_model_dir, {"url": "http://127.0.0.1:99999/rewards"}, 600.0)
    assert "OverflowError" in outage and "\n" not in outage
    with reward_model(float) as model:
        model.reply = lambda key, body: (200, b"[" * 100_000)  # type: ignore[method-assign]
        outage = outage_of(store, judge, tiny_model_dir, {"url": model.url}, 600.0)
    assert "RecursionError" in outage and "\n" not in outage


def test_a_server_of_a_publish_that_drips_nests_or_has_no_port_is_named() -> None:
    asyncio.run(ask_what_never_answers())


async def ask_what_never_answers() -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=120) as http:
        named = "TimeoutError no complete answer within 0.3 s"
        with dripping() as url, pytest.raises(Unreachable, match=f"POST {url}: {named}"):
            await post(http, url, {}, timeout_s=0.3)
        with pytest.raises(Refused, match=r"127\.0\.0\.1:99999/pause: OverflowError"):
            await get(http, "http://127.0.0.1:99999/pause")
        with saying(b"[" * 100_000) as url:
            assert await get(http, url) == {}, "it says nothing, as one that answers plain text"
