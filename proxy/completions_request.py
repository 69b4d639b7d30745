"""Completions, inbound: a body of POST /v1/completions becomes a `CallRequest` with raw prompts.

Invariant: every field is honoured, known to be harmless, or refused with a 400 that names it. No input makes it raise
anything but `BadRequest`. Not here: what answers look like (completions.py), what prompts become (raw_prompts.py).
"""

from __future__ import annotations

from typing import Any

from weir.proxy.chat_request import grammar_in, include_usage
from weir.proxy.dialect import CallRequest, Raw
from weir.proxy.errors import BadRequest
from weir.proxy.json_fields import integer, kind_of, optional, required
from weir.proxy.request_body import (
    ENGINE_SAMPLING,
    decoded,
    names_in,
    refuse_unknown,
    refuse_values,
    sampling_in,
    stops_in,
)

READ = ENGINE_SAMPLING | {
    *("model", "prompt", "n", "max_tokens", "temperature", "top_p", "stop", "stream", "stream_options", "logprobs"),
    *("response_format", "user", "metadata"),
}
HARMLESS = frozenset({"store", "service_tier", "safety_identifier", "prompt_cache_key"})
# Fields with a value that asks for nothing: any other value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "logit_bias": ({},),
    "suffix": ("",),
}
DEFAULT_MAX_TOKENS = 16  # OpenAI's
MAX_PROMPTS = 256
MAX_ANSWERS = 128
MAX_CALLS = 1024
_MAX_ID = 2**31 - 1


def parse(body: bytes) -> CallRequest:
    """Read a body. Raises `BadRequest`."""
    fields = decoded(body)
    refuse_unknown(fields, READ | HARMLESS | NEUTRAL.keys())
    refuse_values(fields, NEUTRAL)
    prompts = prompts_in(fields)
    num_answers = integer(fields, "n", low=1, high=MAX_ANSWERS) or 1
    if num_answers * len(prompts) > MAX_CALLS:
        raise BadRequest(f"n times the number of prompts must not be above {MAX_CALLS}.", param="n")
    hint = (optional(fields, "metadata", dict) or {}).get("session_id")
    return CallRequest(
        model=required(fields, "model", str),
        messages=[],
        raw_prompts=prompts,
        num_answers=num_answers,
        stream=optional(fields, "stream", bool) or False,
        include_usage=include_usage(fields),
        logprobs=_wants_logprobs(fields),
        sampling=sampling_in(
            fields,
            max_tokens=integer(fields, "max_tokens", low=1) or DEFAULT_MAX_TOKENS,
            stop=stops_in(fields, "stop"),
            extra=grammar_in(fields),
        ),
        session_hint=hint if isinstance(hint, str) else optional(fields, "user", str),
        agent_ids=names_in(fields, "user"),
    )


def prompts_in(fields: dict[str, Any]) -> tuple[Raw, ...]:
    """One prompt, or a list of them; each a text or a list of token ids."""
    given = fields.get("prompt")
    if given is None:
        raise BadRequest("you must provide prompt.", param="prompt", code="missing_required_parameter")
    is_one = isinstance(given, str) or (isinstance(given, list) and bool(given) and type(given[0]) is int)
    prompts = [given] if is_one else given
    if not isinstance(prompts, list):
        raise BadRequest(f"prompt must be a string or a list, not {kind_of(given)}.", param="prompt")
    if not 0 < len(prompts) <= MAX_PROMPTS:
        raise BadRequest(f"prompt must hold 1 to {MAX_PROMPTS} prompts, not {len(prompts)}.", param="prompt")
    return tuple(_checked(prompt, "prompt" if is_one else f"prompt[{i}]") for i, prompt in enumerate(prompts))


def _checked(prompt: Any, where: str) -> Raw:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(n) is int and 0 <= n <= _MAX_ID for n in prompt):
        return prompt
    raise BadRequest(f"{where} must be a non-empty string or a non-empty list of token ids.", param=where)


def _wants_logprobs(fields: dict[str, Any]) -> bool:
    """Only those of the tokens themselves are known, so `logprobs` may be 0; alternatives would have to be invented."""
    number = optional(fields, "logprobs", int)
    if number is not None and number != 0:
        raise BadRequest(
            f"logprobs = {number} asks for the most likely alternatives, which are not kept; "
            "send 0 for the logprobs of the tokens themselves.",
            param="logprobs",
            code="unsupported_parameter",
        )
    return number is not None
