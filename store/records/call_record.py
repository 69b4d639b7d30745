"""The record of a call: frozen, complete when it is built, encoded as msgpack.

Invariants: `output_ids`, `output_logprobs` and the version spans describe the same tokens, in the order in which the
engine sampled them; the spans cover them without gap or overlap. Nothing that can be derived is stored: readers compute
parents, branches, masks and texts. Token ids are little-endian int32 bytes and logprobs little-endian float32 bytes,
because a list of Python ints takes fifty times longer to encode.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

SCHEMA_VERSION = 9

ASSUMED = "assumed:"  # before a version that no engine reported: proxy.assumed_version names it

TokenIds = npt.NDArray[np.int32]
Logprobs = npt.NDArray[np.float32]
Experts = npt.NDArray[np.unsignedinteger[Any]]


class CaptureLevel(enum.StrEnum):
    """How much of a call is recorded: only `tokens` can be trained on."""

    TOKENS = "tokens"
    LOGPROBS = "logprobs"
    TEXT = "text"


class SessionSource(enum.StrEnum):
    """What determined the session of a call, strongest first."""

    PATH = "path"
    KEY = "key"
    HEADER = "header"
    DIALECT = "dialect"
    INFERRED = "inferred"


class Stitch(enum.StrEnum):
    """How the prompt ids of a call relate to earlier calls."""

    BRIDGED = "bridged"  # exact ids of an earlier call, then the rendering of the new messages only
    NEW_ROOT = "new_root"  # continues no known call: rendered in full
    HISTORY_REWRITTEN = "history_rewritten"  # another answer stands in place of that of an earlier call
    TEMPLATE_STRIP = "template_strip"  # the renderer cannot keep the earlier ids (e.g. it drops old reasoning)
    RETOKENISED = "retokenised"  # rendered in full, and the ids differ from the earlier call's
    COMPACTED = "compacted"  # the agent replaced its session's history by a shorter one, e.g. a summary


class FinishReason(enum.StrEnum):
    """Why the output of a call ended."""

    STOP = "stop"  # end of turn, or a stop string or id
    LENGTH = "length"  # max_tokens or the context
    ABORT = "abort"  # stopped from outside and not continued; what is recorded is partial
    DISCONNECT = "disconnect"  # the client left
    ERROR = "error"  # the upstream failed


class VersionSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Output tokens `start:end` were sampled by the weights that the engine named `label`.

    A label that begins with `ASSUMED` is a version of the settings, where the engine named no integer.
    """

    start: int
    end: int
    label: str

    @property
    def version(self) -> int | None:
        """The weight version; None where the label is not an integer, or is above 2**31 - 1."""
        named = self.label.removeprefix(ASSUMED)
        number = int(named) if named.isdecimal() else None
        return number if number is None or number < 2**31 else None


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One request to the model and its answer. Times are unix microseconds, durations microseconds.

    Records are not tracked by the garbage collector: they cannot be part of a cycle, and compaction holds many.
    """

    schema: int = SCHEMA_VERSION
    call_id: str
    session_id: str
    session_source: SessionSource
    group_id: str
    dialect: str  # the agent's wire form: "chat", "completions", "responses", "messages"
    level: CaptureLevel
    model: str  # as the agent named it
    stream: bool
    started_us: int  # the request was read
    first_token_us: int | None = None
    finished_us: int
    held_us: int = 0  # total time held at the gate, or waiting for its turn

    prompt_ids: bytes = b""  # int32 LE
    output_ids: bytes = b""  # int32 LE
    output_logprobs: bytes = b""  # float32 LE, at the temperature, before truncation
    spans: tuple[VersionSpan, ...] = ()
    finish: FinishReason
    finish_matched: int | str | None = None  # the stop id or string, where the engine names one
    stitch: Stitch | None = None
    stitch_call: str | None = None  # the call that the prompt continues or was compared with
    stitch_differs_at: int | None = None  # first differing position in the prompt ids

    request: bytes  # the agent's body, as it came
    answer: bytes = b""  # JSON of the answer's message: role, content, reasoning_content, tool_calls
    sampling: dict[str, Any] = {}  # sampling parameters sent to the engine
    agent_ids: dict[str, str] = {}  # the agent's identifiers that did not determine the session
    user_agent: str | None = None
    engine_rids: tuple[str, ...] = ()  # request ids at the engine, one for each send
    error: str | None = None

    # Since schema version 2.
    request_id: str | None = None  # shared by the calls of one request (n > 1, several prompts)
    choice: int = 0  # index among them
    cached_tokens: int = 0  # prompt tokens from the engine's cache
    digest: bytes = b""  # 16 bytes, hash of the history including the answer; a continuing request has the same
    num_messages: int = 0  # in the request's history
    retry_count: int = 0  # earlier attempts, as reported by the agent's client
    counted_prompt: int | None = None  # prompt tokens as reported by the upstream
    counted_output: int | None = None  # output tokens, likewise
    forced: int = 0  # ids at the end of the prompt that force a tool call

    # Since schema version 3.
    tokenizer: str = ""  # digest of the ids' vocabulary (`vocabulary_digest`), where it is known

    # Since schema version 4.
    asked_sampling: dict[str, Any] = {}  # fields of `sampling` that the proxy overrode, as the agent asked for them
    prompt_from: int | None = None  # first position of `prompt_logprobs`; None: not asked for
    prompt_logprobs: bytes = b""  # float32 LE, of prompt_ids[prompt_from:], at temperature 1

    # Since schema version 5.
    sampling_logprobs: bytes = b""  # float32 LE, after truncation, renormalised; empty: the engine gave none

    # Since schema version 6.
    ignored_fields: tuple[str, ...] = ()  # paths in `request` of wishes that the proxy knows and could not fulfil

    # Since schema version 7.
    top_ids: bytes = b""  # int32 LE, as many of the likeliest tokens for each output token as the agent asked for
    top_logprobs: bytes = b""  # float32 LE, of these, at the temperature, before truncation

    # Since schema version 8.
    engine_settings: str = ""  # JSON: the settings of the engines that could take it, those that differ; "": not known

    # Since schema version 9, of a mixture of experts.
    routed_from: int | None = None  # first position of `routed_experts`; None: not known
    routed_choices: int | None = None  # of each token: layers × experts that a layer chooses
    routed_experts: bytes = b""  # of all tokens from there to the last but one; `pack_experts`

    def __post_init__(self) -> None:
        num_tokens, rest = divmod(len(self.output_ids), 4)
        if rest or len(self.prompt_ids) % 4:
            raise ValueError(f"call {self.call_id}: token ids must be int32 bytes")
        start = self.prompt_from
        wanted = len(self.prompt_ids) - 4 * start if start is not None else 0
        if len(self.prompt_logprobs) != max(wanted, 0):
            raise ValueError(
                f"call {self.call_id}: {len(self.prompt_logprobs) / 4:g} prompt logprobs from position {start} on, but "
                f"{len(self.prompt_ids) / 4:g} prompt ids"
            )
        if len(self.sampling_logprobs) not in (0, 4 * num_tokens):
            given = len(self.sampling_logprobs) / 4
            raise ValueError(f"call {self.call_id}: {num_tokens} output ids but {given:g} sampling logprobs")
        if len(self.top_ids) != len(self.top_logprobs) or len(self.top_ids) % max(4 * num_tokens, 1):
            raise ValueError(
                f"call {self.call_id}: {num_tokens} output ids but {len(self.top_ids) / 4:g} likeliest ids and "
                f"{len(self.top_logprobs) / 4:g} logprobs of them"
            )
        if self.routed_from is not None:
            num_routed = len(self.prompt_ids) // 4 + num_tokens - 1 - self.routed_from
            one_byte = num_routed * (self.routed_choices or 0)
            if one_byte <= 0 or len(self.routed_experts) not in (one_byte, 2 * one_byte):
                raise ValueError(
                    f"call {self.call_id}: {len(self.routed_experts)} bytes of experts, of {self.routed_choices} "
                    f"choices for each of {num_routed} tokens"
                )
        if self.level is CaptureLevel.TOKENS:
            if len(self.output_logprobs) != 4 * num_tokens:
                raise ValueError(
                    f"call {self.call_id}: {num_tokens} output ids but {len(self.output_logprobs) / 4:g} logprobs"
                )
            check_spans(self.call_id, self.spans, num_tokens)


def check_spans(call_id: str, spans: tuple[VersionSpan, ...], num_tokens: int) -> None:
    """Raise ValueError unless the spans cover 0..num_tokens in order, without gap or overlap."""
    end = 0
    for span in spans:
        if span.start != end or span.end < span.start:
            raise ValueError(f"call {call_id}: version spans {spans} leave a gap or overlap at token {end}")
        end = span.end
    if end != num_tokens:
        raise ValueError(f"call {call_id}: version spans end at {end}, the output has {num_tokens} tokens")


def pack_ids(ids: list[int] | TokenIds) -> bytes:
    """Token ids as int32 little-endian bytes."""
    return np.asarray(ids, dtype="<i4").tobytes()


def unpack_ids(packed: bytes) -> TokenIds:
    """The inverse of `pack_ids`; shape (T,), read-only."""
    return np.frombuffer(packed, dtype="<i4")


def pack_logprobs(logprobs: list[float] | Logprobs) -> bytes:
    """Logprobs as float32 little-endian bytes: the precision of engines, so nothing is lost."""
    return np.asarray(logprobs, dtype="<f4").tobytes()


def unpack_logprobs(packed: bytes) -> Logprobs:
    """The inverse of `pack_logprobs`; shape (T,), read-only."""
    return np.frombuffer(packed, dtype="<f4")


def pack_experts(choices: npt.NDArray[np.integer[Any]]) -> bytes:
    """Experts, (tokens, choices), in one byte each, or two little-endian ones where one is above 255."""
    wide = choices.size > 0 and choices.max() > 255
    return choices.astype("<u2" if wide else "u1").tobytes()


def unpack_experts(packed: bytes, num_tokens: int, num_choices: int) -> Experts:
    """The inverse of `pack_experts`; shape (num_tokens, num_choices), read-only."""
    narrow = len(packed) == num_tokens * num_choices
    return np.frombuffer(packed, "u1" if narrow else "<u2").reshape(num_tokens, num_choices)


encode_record = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(CallRecord)


def decode_record(payload: bytes) -> CallRecord:
    """Decode one payload. Raises msgspec.ValidationError where it is not a call record of this schema."""
    return _decoder.decode(payload)
