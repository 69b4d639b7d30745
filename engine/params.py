"""The parameters of /generate: validates a body and resolves it into frozen values.

Invariant: a body that passes can be served; any other raises `BadRequest` with a message for the client. Names,
defaults and limits are SGLang's (0.5.23). SGLang's features that this engine lacks (several samples, images, LoRA) are
refused, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from weir.engine.errors import BadRequest

GREEDY_BELOW = 1e-6  # SGLang treats a smaller temperature as 0
MAX_STOP_STRINGS = 32
DEFAULT_MAX_NEW_TOKENS = 128


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sampling_params` as received; null means the default."""

    max_new_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    min_new_tokens: int | None = 0
    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = -1
    min_p: float | None = 0.0
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    repetition_penalty: float | None = 1.0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    spaces_between_special_tokens: bool | None = True
    no_stop_trim: bool | None = False
    sampling_seed: int | None = None
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    logit_bias: dict[str, float] | None = None
    n: int | None = 1

    @property
    def has_grammar(self) -> bool:
        """Whether the output must keep to a grammar."""
        return any(grammar is not None for grammar in (self.json_schema, self.regex, self.ebnf))


class GenerateBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of /generate as received; other fields are ignored, as in SGLang."""

    input_ids: list[int] | None = None
    text: str | None = None
    sampling_params: SamplingParams | None = None
    rid: str | None = None
    stream: bool = False
    return_logprob: bool = False
    logprob_start_len: int | None = -1
    top_logprobs_num: int | None = 0
    token_ids_logprob: list[int] | None = None
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_hidden_states: bool = False
    return_text_in_logprobs: bool = False
    input_embeds: Any = None
    image_data: Any = None
    audio_data: Any = None
    video_data: Any = None
    lora_path: Any = None
    custom_logit_processor: Any = None


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved sampling parameters and stop conditions of a request."""

    greedy: bool
    temperature: float
    top_p: float
    top_k: int  # the vocabulary's size where nothing is cut
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    max_new_tokens: int
    min_new_tokens: int
    stop: tuple[str, ...]
    stop_ids: frozenset[int]  # end-of-turn ids of the model included; empty with ignore_eos
    suppressed_ids: tuple[int, ...]  # never drawn before min_new_tokens
    skip_special_tokens: bool
    no_stop_trim: bool
    seed: int | None
    bias: tuple[tuple[int, float], ...]  # (token id, what is added to its logit)

    @property
    def truncates(self) -> bool:
        """Whether top_p, top_k or min_p truncate the distribution; never for greedy sampling."""
        return not self.greedy and (self.top_p < 1.0 or self.min_p > 0.0 or self.top_k > 0)

    @property
    def penalises(self) -> bool:
        """Whether the logits depend on earlier output tokens."""
        return (
            self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
            or self.repetition_penalty != 1.0
            or self.min_new_tokens > 0
        )


_decode_body = msgspec.json.Decoder(GenerateBody).decode


def parse_body(raw: bytes) -> GenerateBody:
    """Decode the body of /generate. Raises BadRequest for invalid JSON and for features that this engine lacks."""
    try:
        body = _decode_body(raw)
    except msgspec.DecodeError as error:
        raise BadRequest(str(error)) from error
    asked = (
        ("return_hidden_states", body.return_hidden_states),
        ("return_text_in_logprobs", body.return_text_in_logprobs),
        *(
            (name, getattr(body, name) is not None)
            for name in (
                "token_ids_logprob",
                "input_embeds",
                "image_data",
                "audio_data",
                "video_data",
                "lora_path",
                "custom_logit_processor",
            )
        ),
    )
    for name, wanted in asked:
        if wanted:
            raise BadRequest(f"{name} is not offered by the embedded engine; leave it out or use SGLang.")
    if (body.top_logprobs_num or 0) < 0:
        raise BadRequest(f"top_logprobs_num must be at least 0, got {body.top_logprobs_num}.")
    return body


def check_prompt(ids: list[int], *, vocab_size: int, context_len: int) -> None:
    """Raise BadRequest unless every id is a token of the model and one more token fits behind them."""
    if not ids:
        raise BadRequest("input_ids cannot be empty.")
    if len(ids) >= context_len:
        raise BadRequest(
            f"The input ({len(ids)} tokens) is longer than the model's context length ({context_len} tokens)."
        )
    if min(ids) < 0 or max(ids) >= vocab_size:
        wrong = next(token for token in ids if not 0 <= token < vocab_size)
        raise BadRequest(f"input_ids must be in [0, {vocab_size - 1}], got {wrong}.")


def resolve_sampling(
    asked: SamplingParams | None, *, prompt_len: int, context_len: int, vocab_size: int, eos_ids: frozenset[int]
) -> Sampling:
    """Defaults filled in, ranges checked, limits of the context applied. Raises BadRequest."""
    params = asked or SamplingParams()
    temperature = _default(params.temperature, 1.0)
    top_k = _default(params.top_k, -1)
    greedy = 0.0 <= temperature < GREEDY_BELOW or top_k == 1
    ignores_eos = params.ignore_eos and not params.has_grammar  # a grammar's end is the end of the output, as in SGLang
    stop_ids = frozenset() if ignores_eos else eos_ids | frozenset(params.stop_token_ids or ())
    sampling = Sampling(
        greedy=greedy,
        temperature=1.0 if greedy else temperature,
        top_p=_default(params.top_p, 1.0),
        top_k=top_k,
        min_p=_default(params.min_p, 0.0),
        frequency_penalty=_default(params.frequency_penalty, 0.0),
        presence_penalty=_default(params.presence_penalty, 0.0),
        repetition_penalty=_default(params.repetition_penalty, 1.0),
        max_new_tokens=_max_new_tokens(params.max_new_tokens, prompt_len, context_len),
        min_new_tokens=_default(params.min_new_tokens, 0),
        stop=_stop_strings(params.stop),
        stop_ids=stop_ids,
        suppressed_ids=tuple(sorted(eos_ids | frozenset(params.stop_token_ids or ()))),
        skip_special_tokens=params.skip_special_tokens is not False,
        no_stop_trim=bool(params.no_stop_trim),
        seed=params.sampling_seed,
        bias=_bias(params.logit_bias, vocab_size),
    )
    _check_ranges(sampling, _default(params.n, 1))
    if params.has_grammar and sampling.min_new_tokens:
        raise BadRequest("min_new_tokens cannot be kept with a grammar, which may end earlier; leave out one of them.")
    return sampling


def _default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _bias(asked: dict[str, float] | None, vocab_size: int) -> tuple[tuple[int, float], ...]:
    bias = {}
    for key, value in (asked or {}).items():
        if not key.isdecimal() or not 0 <= int(key) < vocab_size:
            raise BadRequest(f"logit_bias must have keys in [0, {vocab_size - 1}], got {key!r:.50}.")
        if not math.isfinite(value):
            raise BadRequest(f"logit_bias must have finite values, got {value} for {key}.")
        bias[int(key)] = value
    return tuple(bias.items())


def _max_new_tokens(asked: int | msgspec.UnsetType | None, prompt_len: int, context_len: int) -> int:
    if asked is None:
        return context_len - prompt_len
    if isinstance(asked, msgspec.UnsetType):
        return min(DEFAULT_MAX_NEW_TOKENS, context_len - prompt_len)
    if asked < 0:
        raise BadRequest(f"max_new_tokens must be at least 0, got {asked}.")
    if prompt_len + asked > context_len:
        raise BadRequest(
            f"Requested token count exceeds the model's maximum context length of {context_len} tokens. You requested "
            f"a total of {prompt_len + asked} tokens: {prompt_len} tokens from the input messages and {asked} tokens "
            "for the completion. Please reduce the number of tokens in the input messages or the completion to fit "
            "within the limit."
        )
    return asked


def _stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MAX_STOP_STRINGS:
        raise BadRequest(f"at most {MAX_STOP_STRINGS} stop strings are allowed, got {len(strings)}")
    if "" in strings:
        raise BadRequest("stop strings cannot be empty.")
    return strings


def _check_ranges(sampling: Sampling, n: int) -> None:
    most = sampling.max_new_tokens
    rules: dict[str, tuple[str, Callable[[float], bool]]] = {
        "temperature": ("a non-negative finite number", lambda value: math.isfinite(value) and value >= 0.0),
        "top_p": ("in (0, 1]", lambda value: 0.0 < value <= 1.0),
        "top_k": ("-1 (disable) or at least 1", lambda value: value == -1 or value >= 1),
        "min_p": ("in [0, 1]", lambda value: 0.0 <= value <= 1.0),
        "frequency_penalty": ("in [-2, 2]", lambda value: -2.0 <= value <= 2.0),
        "presence_penalty": ("in [-2, 2]", lambda value: -2.0 <= value <= 2.0),
        "repetition_penalty": ("in (0, 2] (1.0 = no penalty)", lambda value: 0.0 < value <= 2.0),
        "min_new_tokens": (f"in [0, max_new_tokens({most})]", lambda value: 0 <= value <= most),
    }
    for name, (rule, holds) in rules.items():
        value = getattr(sampling, name)
        if not holds(value):
            raise BadRequest(f"{name} must be {rule}, got {value}.")
    if sampling.seed is not None and not -(2**63) <= sampling.seed < 2**63:
        raise BadRequest(f"sampling_seed must be in [-2**63, 2**63 - 1], got {sampling.seed}.")
    if n != 1:
        raise BadRequest(f"n must be 1, got {n}: the embedded engine draws one sample for each request.")
