"""How a call's tokens were drawn: the distribution behind its sampling parameters, beside the policy's own.

Invariant: pure. The trained policy is softmax(logits / temperature) over the whole vocabulary. Sampling that draws from
anything else is off-policy: greedy, or changed (penalties, bias, grammar) or truncated (top_k, top_p, min_p). The
parameters are read as SGLang does: a temperature below 1e-6 or a top_k of 1 is greedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_TEMPERATURE = 1.0
GREEDY_BELOW = 1e-6
WHOLE_VOCABULARY = 1 << 30
# A grammar, a bias, tokens that may not come yet: the engine changed the logits, and the record does not show how.
_CONSTRAINTS = (
    *("json_schema", "regex", "ebnf", "structural_tag", "logit_bias", "min_new_tokens", "min_tokens"),
    *("response_format", "tool_choice", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    "structured_outputs",
)
_FREE: tuple[Any, ...] = ("auto", "none", "text", {"type": "text"})  # values of those that constrain nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The distribution that a call's tokens were drawn from."""

    temperature: float = DEFAULT_TEMPERATURE
    greedy: bool = False
    top_k: int = WHOLE_VOCABULARY
    top_p: float = 1.0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    constrained: bool = False

    @property
    def truncates(self) -> bool:
        """Whether some tokens could not be drawn, because others were more probable."""
        return not self.greedy and (self.top_k < WHOLE_VOCABULARY or self.top_p < 1.0 or self.min_p > 0.0)

    @property
    def penalises(self) -> bool:
        """Whether the logits depended on the output so far."""
        return (self.frequency_penalty, self.presence_penalty, self.repetition_penalty) != (0.0, 0.0, 1.0)

    @property
    def is_changed(self) -> bool:
        """Whether the tokens, if not greedy, were drawn from another distribution than the trained policy's."""
        return not self.greedy and (self.truncates or self.penalises or self.constrained)

    @property
    def is_off_policy(self) -> bool:
        """Whether the tokens were drawn from another distribution than the trained policy's."""
        return self.greedy or self.is_changed

    @property
    def is_unknown(self) -> bool:
        """Whether its probabilities cannot be found: top_k or min_p of logits that a constraint changed."""
        return self.truncates and self.constrained and (self.top_k < WHOLE_VOCABULARY or self.min_p > 0.0)


ON_POLICY = Behaviour()


def behaviour_of(sampling: Mapping[str, Any]) -> Behaviour:
    """The behaviour behind recorded sampling parameters; a greedy call is trained on at temperature 1."""
    temperature = _number(sampling, "temperature", DEFAULT_TEMPERATURE)
    top_k = int(_number(sampling, "top_k", -1))
    greedy = temperature < GREEDY_BELOW or top_k == 1
    return Behaviour(
        temperature=DEFAULT_TEMPERATURE if greedy else temperature,
        greedy=greedy,
        top_k=top_k if 0 < top_k < WHOLE_VOCABULARY else WHOLE_VOCABULARY,
        top_p=_number(sampling, "top_p", 1.0),
        min_p=_number(sampling, "min_p", 0.0),
        frequency_penalty=_number(sampling, "frequency_penalty", 0.0),
        presence_penalty=_number(sampling, "presence_penalty", 0.0),
        repetition_penalty=_number(sampling, "repetition_penalty", 1.0),
        constrained=any(sampling.get(name) and sampling[name] not in _FREE for name in _CONSTRAINTS),
    )


def _number(sampling: Mapping[str, Any], key: str, default: float) -> float:
    value = sampling.get(key)
    return default if value is None else float(value)
