"""A call at level `tokens` in progress, and its record.

Invariant: a record holds exactly the tokens that were received, whatever ended the call. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import Answer, CallRequest, Raw, Sampling
from weir.proxy.conversation.digests import extend, under
from weir.proxy.conversation.prompt_ids import PromptIds
from weir.proxy.engines.capture import Capture
from weir.proxy.recording.call import CallInProgress
from weir.proxy.rendering.forced_output import GRAMMARS
from weir.proxy.stitching.continuation import Prompt
from weir.store.clock import now_us
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    pack_experts,
    pack_ids,
    pack_logprobs,
)

_GREEDY_BELOW = 1e-6  # temperature, as SGLang reads it
_MASKED_TOP_K = 1024  # a quarter of SGLang's --sampling-mask-max-tokens, above which it aborts a request: room for ties
_SEEDS_APART = 1_000_003

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, kw_only=True)
class Call(CallInProgress):
    """One requested answer, and the token ids that are sent to the engine."""

    choice: int = 0
    request: CallRequest
    sampling: Sampling  # that the engine gets
    asked_sampling: dict[str, Any] = field(default_factory=dict)  # fields that were overridden, as the agent had them
    prompt: Prompt
    raw_prompt: Raw | None = None  # where it answers no conversation
    max_new_tokens: int
    stop_ids: list[int]  # token ids that end the answer
    forced_ids: list[int] = field(default_factory=list)  # behind the prompt, to force how the answer begins
    capture: Capture = field(default_factory=Capture)
    prompt_from: int | None = None  # first prompt token whose logprob is wanted
    engine_settings: str = ""  # of the engines when it began, as it is recorded

    @property
    def logprob_start(self) -> int:
        """SGLang's logprob_start_len for the next piece: the position before the first wanted one; -1: none."""
        wanted = self.prompt_from is not None and self.prompt_from < len(self.sent_ids)
        if self.prompt_from is None or not wanted or self.capture.ids or self.capture.prompt is not None:
            return -1
        return self.prompt_from - 1

    @property
    def sent_ids(self) -> PromptIds:
        """The ids before the output: the prompt and the forced beginning of the answer."""
        return self.prompt.ids.and_forced(self.forced_ids) if self.forced_ids else self.prompt.ids

    @property
    def answer_ids(self) -> list[int]:
        """The ids of the answer: its forced beginning and the output."""
        return self.forced_ids + self.capture.ids if self.forced_ids else self.capture.ids

    @property
    def keeps_grammar(self) -> bool:
        """Whether the engine holds the answer to a grammar, which starts anew with every piece."""
        return not GRAMMARS.isdisjoint(self.sampling.extra)

    @property
    def needs_engine(self) -> bool:
        """Whether it must not pass a router: sglang-router (0.3.2) takes these fields out of what it forwards."""
        return "logit_bias" in self.sampling.extra or self.capture.routed is not None

    @property
    def may_be_cut(self) -> bool:
        """Whether a time limit may end it in the middle of the answer, so that its tokens are wanted as they come."""
        return self.allowance is not None and self.allowance.deadline is not None


def sampling_params(call: Call) -> dict[str, object]:
    """The engine's sampling parameters for the part of the answer that is still missing."""
    sampling = call.sampling
    done = len(call.capture.ids)
    params: dict[str, object] = {
        "max_new_tokens": call.max_new_tokens - done,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop_token_ids": call.stop_ids,
        **sampling.extra,
    }
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        # A continuation must not draw the random numbers of the first tokens again, nor one choice those of another.
        params["sampling_seed"] = (sampling.seed + done + call.choice * _SEEDS_APART) % 2**31
    return params


def wants_mask(call: Call) -> bool:
    """Whether its sampling truncates in a way for which SGLang can name the kept tokens: by a top_k that is no more."""
    sampling = call.sampling
    return sampling.temperature >= _GREEDY_BELOW and 1 < sampling.top_k <= _MASKED_TOP_K


def _history(call: Call, finish: FinishReason, answer: Answer | None) -> bytes:
    """History digest of a call; empty if it gave no complete answer, or answered no messages."""
    digests, variables = call.prompt.digests, call.request.template_variables
    if answer is None or finish not in (FinishReason.STOP, FinishReason.LENGTH) or not digests:
        return b""
    return under(extend(under(digests[-1], variables), answer.message()), variables)


def _prompt_logprobs(call: Call) -> dict[str, Any]:
    found = call.capture.prompt
    return {} if found is None else {"prompt_from": call.prompt_from, "prompt_logprobs": pack_logprobs(found.logprobs)}


def _sampling_logprobs(call: Call) -> dict[str, Any]:
    found = call.capture.sampling_logprobs
    return {"sampling_logprobs": pack_logprobs(found)} if found else {}


def _top_logprobs(call: Call) -> dict[str, Any]:
    entries = [entry for row in call.capture.top for entry in row]
    if not entries:
        return {}
    return {"top_ids": pack_ids([n for n, _ in entries]), "top_logprobs": pack_logprobs([lp for _, lp in entries])}


def _routed_experts(call: Call) -> dict[str, Any]:
    routed = call.capture.routed
    rows = None if routed is None else routed.of(len(call.capture.ids))
    if routed is None or rows is None:
        return {}
    return {"routed_from": routed.start, "routed_choices": rows.shape[1], "routed_experts": pack_experts(rows)}


def _requested_sampling(call: Call) -> dict[str, object]:
    """The sampling parameters of a call, as its record keeps them."""
    sampling = call.sampling
    requested: dict[str, object] = {
        "max_new_tokens": call.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        **sampling.extra,
    }
    if sampling.stop:
        requested["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        requested["seed"] = sampling.seed
    return requested


def _retry_count(header: str) -> int:
    return int(header) if header.isdecimal() and len(header) < 6 else 0


def record_of(
    call: Call,
    finish: FinishReason,
    *,
    matched: int | str | None = None,
    answer: Answer | None,
    error: str | None = None,
    tokenizer: str,
) -> CallRecord:
    """The record of a call that has ended."""
    capture, request, prompt = call.capture, call.request, call.prompt
    return CallRecord(
        call_id=call.call_id,
        session_id=call.membership.session_id,
        session_source=call.membership.source,
        group_id=call.membership.group_id,
        dialect=call.dialect,
        level=CaptureLevel.TOKENS,
        model=request.model,
        stream=request.stream,
        started_us=call.started_us,
        first_token_us=call.first_token_us,
        finished_us=now_us(),
        held_us=call.held_us,
        prompt_ids=call.sent_ids.packed,
        output_ids=pack_ids(capture.ids),
        output_logprobs=pack_logprobs(capture.logprobs),
        spans=capture.spans,
        finish=finish,
        finish_matched=matched,
        stitch=prompt.stitch,
        stitch_call=prompt.known.call_id if prompt.known else None,
        stitch_differs_at=prompt.differs_at,
        request=call.body,
        answer=_encode(answer.message()) if answer else b"",
        sampling=_requested_sampling(call),
        asked_sampling=call.asked_sampling,
        **_prompt_logprobs(call),
        **_sampling_logprobs(call),
        **_top_logprobs(call),
        **_routed_experts(call),
        ignored_fields=request.ignored_fields,
        agent_ids=call.agent_ids,
        user_agent=call.user_agent,
        engine_rids=tuple(capture.rids),
        engine_settings=call.engine_settings,
        error=error,
        request_id=call.request_id,
        choice=call.choice,
        forced=len(call.forced_ids),
        tokenizer=tokenizer,
        cached_tokens=capture.cached_tokens,
        num_messages=len(request.messages),
        digest=_history(call, finish, answer),
        retry_count=_retry_count(call.agent_ids.get("x-stainless-retry-count", "")),
    )
