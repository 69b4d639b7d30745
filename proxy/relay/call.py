"""A relayed call in progress, and the records of its answers: one for each.

Invariant: a record has level `tokens` only with ids, a logprob and a version for each, all as the engine gave them; a
record below the level that its route was certified for comes with the reason (`Lowered`). Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weir.proxy.conversation.digests import Digest, extend
from weir.proxy.engines.version_labels import version_label
from weir.proxy.engines.versions import Served
from weir.proxy.recording.call import CallInProgress
from weir.proxy.relay.chat_answer import AnswerParser, ParsedChoice
from weir.proxy.relay.levels import Level, RouteForm
from weir.proxy.sampling_config import SamplingOverride
from weir.proxy.stitching.call_cache import KnownCall, first_difference
from weir.store.clock import now_us
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    Stitch,
    VersionSpan,
    pack_ids,
    pack_logprobs,
    unpack_ids,
)
from weir.store.records.ids import new_id

_encode = msgspec.json.Encoder().encode
_OUTPUT_TOKENS = ("completion_tokens", "output_tokens")
_ASKED = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "top_p", "top_k", "min_p", "seed"),
    *("stop", "stop_sequences", "frequency_penalty", "presence_penalty", "repetition_penalty", "n"),
    *("response_format", "tool_choice", "logit_bias", "min_tokens", "json_schema", "regex", "ebnf", "structural_tag"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
)


class Lowered(enum.StrEnum):
    """Why a record is below the level that its route was certified for."""

    ROUTE = "route"  # its route gives less than the proxy's level, which proxy.below_level allows
    CUT = "cut"  # it ended before its answer was complete
    UNREAD = "unread"  # the answer could not be parsed
    NO_IDS = "no_ids"
    NO_LOGPROBS = "no_logprobs"
    LOGPROBS_MISSING = "logprobs_missing"  # some tokens came without one
    STRADDLED = "straddled"  # weights changed in the middle, at a token that is not reported
    NO_VERSION = "no_version"


@dataclass(slots=True, kw_only=True)
class RelayedCall(CallInProgress):
    """One request on its way upstream and its answers on their way back."""

    call_ids: list[str]  # one for each answer
    override: SamplingOverride  # of the agent's sampling
    fields: dict[str, Any]
    promised: Level  # the level of the proxy
    form: RouteForm
    digests: list[Digest]
    known: KnownCall | None
    retry_count: int
    answer: AnswerParser
    served: Served | None = None
    answered: bool = False  # completely, and recorded

    def name_choices(self) -> None:
        """Give every answer that came its own call id."""
        while len(self.call_ids) <= max(self.answer.choices, default=0):
            self.call_ids.append(new_id("call"))

    @property
    def overrides(self) -> dict[str, Any]:
        """Fields that the upstream gets instead of the agent's; None: it gets none of that name."""
        return self.override.set.values() | dict.fromkeys(self.override.drop)

    @property
    def sampled_with(self) -> dict[str, Any]:
        """The sampling fields of the body that the upstream gets."""
        fields = self.fields | self.overrides
        return {name: fields[name] for name in _ASKED if fields.get(name) is not None}

    @property
    def asked_sampling(self) -> dict[str, Any]:
        """The fields that the override changed, as the agent had them."""
        asked = {name: (value, self.fields.get(name)) for name, value in self.overrides.items()}
        return {name: own for name, (value, own) in asked.items() if value != own}

    @property
    def streamed(self) -> bool:
        """Whether the agent asked for a stream."""
        return self.fields.get("stream") is True


def level_of(
    call: RelayedCall, parsed: ParsedChoice, spans: tuple[VersionSpan, ...] | None, *, version_known: bool
) -> tuple[CaptureLevel, Lowered | None]:
    """The level of one answer, and why it is below what was certified."""
    best = call.form.level.best_record
    short = None if call.promised.best_record is best else Lowered.ROUTE
    if best is CaptureLevel.TEXT:
        return best, short
    complete = parsed.finish is not None and call.answer.is_complete
    below = Lowered.CUT if not complete else Lowered.UNREAD if call.answer.unread else None
    if parsed.logprobs is None:
        return CaptureLevel.TEXT, below or Lowered.NO_LOGPROBS
    if best is CaptureLevel.LOGPROBS:
        return best, short
    if parsed.output_ids is None or parsed.prompt_ids is None:
        return CaptureLevel.LOGPROBS, below or Lowered.NO_IDS
    if len(parsed.logprobs) != len(parsed.output_ids):
        return CaptureLevel.TEXT, below or Lowered.LOGPROBS_MISSING
    if spans is None:
        return CaptureLevel.LOGPROBS, below or (Lowered.NO_VERSION if version_known else Lowered.STRADDLED)
    return CaptureLevel.TOKENS, None


def spans_of(parsed: ParsedChoice, served: Served | None, *, held_on: bool) -> tuple[VersionSpan, ...] | None:
    """Versions of the output: the engine's own spans, else the one version that was served during the whole call.

    None where neither is known.
    """
    num_tokens = len(parsed.output_ids or ())
    if parsed.spans and parsed.spans[-1].end == num_tokens:
        assumed = served.assumed if served is not None else None
        return tuple(VersionSpan(s.start, s.end, version_label(s.version, assumed)) for s in parsed.spans)
    if served is None or served.version is None or not held_on:
        return None
    return (VersionSpan(0, num_tokens, served.version),) if num_tokens else ()


def records_of(
    call: RelayedCall, *, held_on: bool, cut: FinishReason | None = None, error: str | None = None
) -> list[tuple[CallRecord, Lowered | None]]:
    """A record for each answer, with the reason where it is below the certified level.

    `held_on`: the weights did not change during the call. `cut`: how the call ended early.
    """
    call.name_choices()
    choices: Sequence[tuple[int, ParsedChoice]] = sorted(call.answer.choices.items()) or [(0, ParsedChoice())]
    return [_record(call, index, parsed, held_on, cut, error) for index, parsed in choices]


def _record(
    call: RelayedCall, index: int, parsed: ParsedChoice, held_on: bool, cut: FinishReason | None, error: str | None
) -> tuple[CallRecord, Lowered | None]:
    spans = spans_of(parsed, call.served, held_on=held_on)
    level, lowered = level_of(call, parsed, spans, version_known=held_on)
    trusted = lowered is not Lowered.LOGPROBS_MISSING
    prompt = pack_ids(parsed.prompt_ids or [])
    record = CallRecord(
        call_id=call.call_ids[index],
        session_id=call.membership.session_id,
        session_source=call.membership.source,
        group_id=call.membership.group_id,
        dialect=call.dialect,
        level=level,
        model=_model(call.fields),
        stream=call.streamed,
        started_us=call.started_us,
        first_token_us=call.first_token_us,
        finished_us=now_us(),
        held_us=call.held_us,
        prompt_ids=prompt,
        output_ids=pack_ids(parsed.output_ids or []),
        output_logprobs=pack_logprobs(parsed.logprobs or []) if trusted else b"",
        spans=spans or (),
        finish=cut or parsed.finish or FinishReason.ERROR,
        finish_matched=parsed.matched,
        **_stitch(call, parsed, prompt),
        request=call.body,
        answer=_encode(parsed.message()) if parsed.content or parsed.tool_calls or parsed.finish else b"",
        sampling=call.sampled_with,
        asked_sampling=call.asked_sampling,
        ignored_fields=call.form.ignored_fields(call.fields),
        agent_ids=call.agent_ids,
        user_agent=call.user_agent,
        engine_rids=(call.answer.response_id,) if call.answer.response_id else (),
        error=error,
        request_id=call.request_id,
        choice=index,
        cached_tokens=_cached_tokens(call.answer.usage),
        counted_prompt=_counted(call.answer.usage, "prompt_tokens", "input_tokens") if index == 0 else None,
        counted_output=_counted(call.answer.usage, *_OUTPUT_TOKENS) if index == 0 else None,
        digest=extend(call.digests[-1], parsed.message()) if cut is None and call.dialect != "completions" else b"",
        num_messages=len(call.digests) - 1,
        retry_count=call.retry_count,
    )
    return record, None if cut is FinishReason.ERROR and not call.answer.choices else lowered


def output_tokens(usage: dict[str, Any] | None) -> int:
    """The number of output tokens in the upstream's usage; 0 where it has none."""
    return _counted(usage, *_OUTPUT_TOKENS) or 0


def _counted(usage: dict[str, Any] | None, *names: str) -> int | None:
    """A count over all answers, by the names that chat, Responses and Anthropic give it; None where it is absent."""
    counts = [(usage or {}).get(name) for name in names]
    return next((count for count in counts if isinstance(count, int)), None)


def _cached_tokens(usage: dict[str, Any] | None) -> int:
    """The number of cached prompt tokens, by the names that chat, Responses and Anthropic give it."""
    details = (usage or {}).get("prompt_tokens_details") or (usage or {}).get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else (usage or {}).get("cache_read_input_tokens")
    return cached if isinstance(cached, int) else 0


def _model(fields: dict[str, Any]) -> str:
    model = fields.get("model")
    return model if isinstance(model, str) else ""


def _stitch(call: RelayedCall, parsed: ParsedChoice, prompt: bytes) -> dict[str, Any]:
    """How the engine's own prompt continues the call that the messages continue; empty where ids are unknown."""
    if parsed.prompt_ids is None:
        return {}
    if call.known is None:
        return {"stitch": Stitch.NEW_ROOT}
    differs_at = first_difference(unpack_ids(prompt), call.known.exact)
    stitch = Stitch.BRIDGED if differs_at is None else Stitch.RETOKENISED
    return {"stitch": stitch, "stitch_call": call.known.call_id, "stitch_differs_at": differs_at}
