"""What is recorded of a call: one frozen record, complete when it is built, encoded as msgpack.

Invariants: `output_ids`, `output_logprobs` and the version spans describe the same tokens, in the order in which the
engine sampled them; the spans cover them without gap or overlap. Nothing here is derived from anything else: parents,
branches, masks and texts are computed by readers. Token ids travel as little-endian int32 bytes and logprobs as
little-endian float32 bytes, because a list of Python ints costs fifty times more to encode.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

SCHEMA_VERSION = 3

TokenIds = npt.NDArray[np.int32]
Logprobs = npt.NDArray[np.float32]


class CaptureLevel(enum.StrEnum):
    """How much of a call is known: only `tokens` can be trained on."""

    TOKENS = "tokens"
    LOGPROBS = "logprobs"
    TEXT = "text"


class SessionSource(enum.StrEnum):
    """What decided the session of a call, strongest first."""

    PATH = "path"
    KEY = "key"
    HEADER = "header"
    DIALECT = "dialect"
    INFERRED = "inferred"


class Stitch(enum.StrEnum):
    """How the prompt ids of a call were made from what is known of the calls before it."""

    BRIDGED = "bridged"  # exact ids of an earlier call, then the rendering of the new messages only
    NEW_ROOT = "new_root"  # nothing known continues here: rendered in full
    HISTORY_REWRITTEN = "history_rewritten"  # the messages match an earlier call only in part
    TEMPLATE_STRIP = "template_strip"  # the renderer cannot keep the earlier ids (it drops old reasoning, say)
    RETOKENISED = "retokenised"  # rendered in full, and the ids differ from the earlier call's
    COMPACTED = "compacted"  # the agent put a shorter history, a summary say, in place of its session's


class FinishReason(enum.StrEnum):
    """Why the tokens of a call end where they end."""

    STOP = "stop"  # end of turn, or a stop string or id
    LENGTH = "length"  # max_tokens or the context
    ABORT = "abort"  # stopped from outside and not continued; what is recorded is partial
    DISCONNECT = "disconnect"  # the client left
    ERROR = "error"  # the upstream failed


class VersionSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Output tokens `start:end` were sampled by the weights that the engine named `label`."""

    start: int
    end: int
    label: str

    @property
    def version(self) -> int | None:
        """The weight version, or None where the engine's name for its weights is no integer, or one above 2**31 - 1."""
        number = int(self.label) if self.label.isdecimal() else None
        return number if number is None or number < 2**31 else None


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One request to the model and its answer. Times are unix microseconds, durations microseconds.

    Outside the garbage collector's view: a record cannot be part of a cycle, and compaction holds many.
    """

    schema: int = SCHEMA_VERSION
    call_id: str
    session_id: str
    session_source: SessionSource
    group_id: str
    dialect: str  # the wire form the agent spoke: "chat", later "completions", "responses", "messages"
    level: CaptureLevel
    model: str  # as the agent named it
    stream: bool
    started_us: int  # the request was read
    first_token_us: int | None = None
    finished_us: int
    held_us: int = 0  # spent waiting at the gate, in sum

    prompt_ids: bytes = b""  # int32 LE
    output_ids: bytes = b""  # int32 LE
    output_logprobs: bytes = b""  # float32 LE, of the distribution that was sampled from
    spans: tuple[VersionSpan, ...] = ()
    finish: FinishReason
    finish_matched: int | str | None = None  # the stop id or string, where the engine names one
    stitch: Stitch | None = None
    stitch_call: str | None = None  # the call that the prompt was bridged from or compared with
    stitch_differs_at: int | None = None  # first differing position in the prompt ids, where they were compared

    request: bytes  # the agent's body, as it came
    answer: bytes = b""  # JSON of the message that was given: role, content, reasoning_content, tool_calls
    sampling: dict[str, Any] = {}  # what the engine was asked for
    agent_ids: dict[str, str] = {}  # identifiers that the agent sent and that did not decide
    user_agent: str | None = None
    engine_rids: tuple[str, ...] = ()  # what the engine knew this call by, one for each time it was sent
    error: str | None = None

    # Since schema version 2.
    request_id: str | None = None  # shared by the calls that one request asked for (n > 1, several prompts)
    choice: int = 0  # which of them this is
    cached_tokens: int = 0  # prompt tokens that the engine had in its cache
    digest: bytes = b""  # 16 bytes: names the history that ends with the answer; what a continuing request is found by
    num_messages: int = 0  # in the request's history
    retry_count: int = 0  # how often the agent's client had tried before, as it says itself
    counted_prompt: int | None = None  # prompt tokens as the upstream counts them, where it says so
    counted_output: int | None = None  # output tokens, likewise
    forced: int = 0  # how many ids at the end of the prompt were put there to force a tool call

    # Since schema version 3.
    tokenizer: str = ""  # digest of the vocabulary that the ids are of (vocabulary_digest.py), where it is known

    def __post_init__(self) -> None:
        num_tokens, rest = divmod(len(self.output_ids), 4)
        if rest or len(self.prompt_ids) % 4:
            raise ValueError(f"call {self.call_id}: token ids must be int32 bytes")
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
    """Logprobs as float32 little-endian bytes: what engines compute, so nothing is lost."""
    return np.asarray(logprobs, dtype="<f4").tobytes()


def unpack_logprobs(packed: bytes) -> Logprobs:
    """The inverse of `pack_logprobs`; shape (T,), read-only."""
    return np.frombuffer(packed, dtype="<f4")


encode_record = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(CallRecord)


def decode_record(payload: bytes) -> CallRecord:
    """Decode one payload. Raises `msgspec.ValidationError` on anything that is not a call record of this schema."""
    return _decoder.decode(payload)
