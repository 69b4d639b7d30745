"""The calls of `weir bench store`, in the form that a proxy records for concurrent agents.

Sixty-four concurrent sessions take ten turns each, round-robin. A turn adds 80 tokens of the environment and 256
sampled ones to a first prompt of 1,000; requests and answers contain the texts of the tokens, the whole history in
every request, as agents send it. Weight versions increase over time. Each session has a task of its own, so that
nothing is saved by tokens that only the sessions of a group share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    Stitch,
    TokenIds,
    VersionSpan,
    pack_ids,
    pack_logprobs,
)

TURNS = 10
SIDE_BY_SIDE = 64
SESSIONS_PER_GROUP = 8
FIRST_PROMPT_TOKENS = 1000
OUTPUT_TOKENS = 256
NEW_TOKENS = 80  # added by the environment each turn
NUM_VERSIONS = 8
VOCABULARY = 50_000
SHORT_PROMPT, SHORT_OUTPUT = 64, 16  # tokens of a short call
TURN_US = 1_000_000

_encode = msgspec.json.Encoder().encode


def make_calls(num_calls: int, seed: int = 0) -> Iterator[CallRecord]:
    """Calls in the order in which they end. Fewer than 640 come from fewer concurrent sessions."""
    rng = np.random.default_rng(seed)
    words = _words(rng)
    at_once = min(SIDE_BY_SIDE, -(-num_calls // TURNS))
    calls = _side_by_side(rng, words, at_once, num_calls)
    return itertools.islice(calls, num_calls)


def _side_by_side(rng: np.random.Generator, words: list[str], at_once: int, num_calls: int) -> Iterator[CallRecord]:
    done = 0
    for first in itertools.count(step=at_once):
        sessions = [_Session(rng, words, number) for number in range(first, first + at_once)]
        for session in itertools.chain.from_iterable([sessions] * TURNS):
            yield session.turn(version=done * NUM_VERSIONS // num_calls)
            done += 1


def _words(rng: np.random.Generator) -> list[str]:
    """A text for each token, mostly of three or four letters, with its leading space."""
    letters = rng.integers(ord("a"), ord("z") + 1, (VOCABULARY, 6), np.uint8)
    lengths = rng.integers(1, 6, VOCABULARY)
    return [" " + row[:length].tobytes().decode() for row, length in zip(letters, lengths, strict=True)]


class _Session:
    """One agent's run, turn by turn."""

    def __init__(self, rng: np.random.Generator, words: list[str], number: int) -> None:
        self._rng, self._words = rng, words
        self._group_id = f"group_{number // SESSIONS_PER_GROUP:08d}"
        self._at_us = 1_700_000_000_000_000 + number // SIDE_BY_SIDE * TURNS * TURN_US + number % SIDE_BY_SIDE * 1000
        self._session_id = _id("session", self._at_us, rng)
        self._prompt = self._tokens(FIRST_PROMPT_TOKENS)
        self._messages: list[dict[str, str]] = [{"role": "user", "content": self._text(self._prompt)}]
        self._before: CallRecord | None = None

    def turn(self, version: int) -> CallRecord:
        output = self._tokens(OUTPUT_TOKENS)
        message = {"role": "assistant", "content": self._text(output)}
        self._before = self._record(output, message, version)
        new = self._tokens(NEW_TOKENS)
        self._messages += [message, {"role": "user", "content": self._text(new)}]
        self._prompt = np.concatenate([self._prompt, output, new])
        self._at_us += TURN_US
        return self._before

    def _tokens(self, count: int) -> TokenIds:
        """Ids with the frequency distribution of words (Zipf)."""
        return (self._rng.zipf(1.3, count) % VOCABULARY).astype(np.int32)

    def _text(self, ids: TokenIds) -> str:
        return "".join([self._words[i] for i in ids.tolist()])

    def _record(self, output: TokenIds, message: dict[str, str], version: int) -> CallRecord:
        rng, before = self._rng, self._before
        return CallRecord(
            call_id=_id("call", self._at_us, rng),
            session_id=self._session_id,
            session_source=SessionSource.PATH,
            group_id=self._group_id,
            dialect="chat",
            level=CaptureLevel.TOKENS,
            model="weir",
            stream=False,
            started_us=self._at_us,
            first_token_us=self._at_us + 50_000,
            finished_us=self._at_us + 900_000,
            prompt_ids=pack_ids(self._prompt),
            output_ids=pack_ids(output),
            output_logprobs=pack_logprobs(-rng.exponential(0.4, OUTPUT_TOKENS).astype(np.float32)),
            spans=_spans(version, spanning=rng.random() < 0.1),
            finish=FinishReason.STOP,
            finish_matched=151_645,
            stitch=Stitch.NEW_ROOT if before is None else Stitch.BRIDGED,
            stitch_call=before.call_id if before is not None else None,
            request=_encode({"model": "weir", "messages": self._messages, "temperature": 1.0}),
            answer=_encode(message),
            sampling={"max_new_tokens": 1024, "temperature": 1.0, "top_p": 1.0, "top_k": -1},
            agent_ids={"x-stainless-retry-count": "0"},
            user_agent="OpenAI/Python 2.8.1",
            engine_rids=(rng.bytes(16).hex(),),
            cached_tokens=len(self._prompt) - NEW_TOKENS if before is not None else 0,
            digest=rng.bytes(16),
            num_messages=len(self._messages),
        )


def _id(prefix: str, at_us: int, rng: np.random.Generator) -> str:
    """An identifier in the form of `weir.store.records.ids`."""
    return f"{prefix}_{at_us // 1000:012x}{rng.bytes(10).hex()}"


def _spans(version: int, spanning: bool) -> tuple[VersionSpan, ...]:
    """One version span, or two where the weights changed in the middle of the call."""
    if not spanning:
        return (VersionSpan(0, OUTPUT_TOKENS, str(version)),)
    half = OUTPUT_TOKENS // 2
    return (VersionSpan(0, half, str(version)), VersionSpan(half, OUTPUT_TOKENS, str(version + 1)))


def long_calls(num_calls: int, seed: int) -> Iterator[CallRecord]:
    """Calls of 28 KB: 4,096 prompt and 1,024 output tokens, and bodies of 3 KB."""
    rng = np.random.default_rng(seed)
    (like,) = make_calls(1, seed)
    request = _encode({"model": "weir", "messages": [{"role": "user", "content": "x" * 3000}]})
    for _ in range(num_calls):
        output: dict[str, Any] = {
            "output_ids": pack_ids(rng.integers(0, VOCABULARY, 1024, np.int32)),
            "output_logprobs": pack_logprobs(-rng.exponential(0.4, 1024).astype(np.float32)),
            "spans": (VersionSpan(0, 1024, "1"),),
        }
        prompt = pack_ids(rng.integers(0, VOCABULARY, 4096, np.int32))
        names = {"call_id": _id("call", like.started_us, rng), "digest": rng.bytes(16)}
        yield msgspec.structs.replace(like, **names, **output, prompt_ids=prompt, request=request, answer=b"{}")


def short_calls(num_calls: int) -> Iterator[CallRecord]:
    """Conversations of ten short turns, session after session, for stores of many calls."""
    (like,) = make_calls(1)
    rng = np.random.default_rng(0)
    logprobs = pack_logprobs(np.full(SHORT_OUTPUT, -0.5, np.float32))
    for number in range(num_calls):
        session, turn = divmod(number, TURNS)
        if turn == 0:
            prompt = pack_ids(rng.integers(0, VOCABULARY, SHORT_PROMPT, np.int32))
        output = pack_ids(rng.integers(0, VOCABULARY, SHORT_OUTPUT, np.int32))
        at = like.started_us + session * TURNS * TURN_US + turn * TURN_US
        names = {"call_id": f"call_{number:08d}", "session_id": f"session_{session:08d}", "digest": rng.bytes(16)}
        names["group_id"] = f"group_{session // SESSIONS_PER_GROUP:08d}"
        times = {"started_us": at, "first_token_us": at + 50_000, "finished_us": at + 900_000}
        spans = (VersionSpan(0, SHORT_OUTPUT, str(session * NUM_VERSIONS // max(num_calls // TURNS, 1))),)
        tokens = {"prompt_ids": prompt, "output_ids": output, "output_logprobs": logprobs, "spans": spans}
        yield msgspec.structs.replace(like, **names, **times, **tokens, request=b"{}", answer=b"{}")
        prompt += output + pack_ids([turn])
