"""From a request to its calls: prompts, forced beginnings of answers, their limits, and the session they belong to.

Invariant: what cannot be served is refused before anything is charged to a session or sent to an engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from weir.proxy.conversation.call_request import CallRequest, Sampling
from weir.proxy.conversation.caller import Identity, Membership
from weir.proxy.conversation.parsed_history import num_characters
from weir.proxy.conversation.sampling_override import overridden
from weir.proxy.engines.capture import Capture
from weir.proxy.engines.context_length import ContextLength
from weir.proxy.engines.engine_settings import EngineSettings
from weir.proxy.engines.grammar_backends import LLGUIDANCE, NONE, GrammarBackends
from weir.proxy.engines.routed_experts import RoutedExperts
from weir.proxy.errors import BadRequest, ContextTooLong
from weir.proxy.metrics import Metrics
from weir.proxy.rendering.forced_output import GRAMMARS, EngineGrammars, Steering, asks_for_grammar, steered
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.sampling_config import SamplingConfig
from weir.proxy.serving.call import Call
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.sessions.session_book import SessionBook
from weir.proxy.stitching.continuation import Prompt, Stitching
from weir.proxy.stitching.raw_prompts import RawPrompts
from weir.store.records.call_record import Stitch
from weir.store.records.ids import new_id

_NORMALISED_SHORTER = 4  # how many characters a tokenizer's Unicode normalisation may make one of


def _routed_from(prompt: Prompt) -> int:
    """The first token whose experts are wanted: those before are recorded with the call that the prompt continues.

    The last token of that call was in no forward pass of it.
    """
    known = prompt.known
    follows = known is not None and known.routed and prompt.stitch is Stitch.BRIDGED and prompt.said is None
    return known.said.num_ids - 1 if known is not None and follows else 0


def _kept_to(sampling: Sampling, grammar: dict[str, Any]) -> Sampling:
    """The sampling of an answer that keeps to a grammar, which stands for the format that the agent asked for."""
    others = {name: value for name, value in sampling.extra.items() if name not in GRAMMARS}
    return msgspec.structs.replace(sampling, extra=others | grammar)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A request as it came, as far as it is recorded."""

    dialect: str
    body: bytes
    user_agent: str | None
    started_us: int
    prompt_from: int | None  # first prompt token whose logprob is wanted


class Opening:
    """Opens calls."""

    def __init__(
        self,
        *,
        context: ContextLength,
        assumed_version: int | None,
        rendering: Rendering,
        stitching: Stitching,
        raw_prompts: RawPrompts,
        sessions: SessionBook,
        budgets: Budgets,
        sampling: SamplingConfig,
        routed_experts: bool,
        grammars: GrammarBackends,
        settings: EngineSettings,
        metrics: Metrics,
    ) -> None:
        self.context = context
        self._assumed_version = assumed_version
        self._rendering = rendering
        self._stitching = stitching
        self._raw_prompts = raw_prompts
        self._sessions = sessions
        self._budgets = budgets
        self._sampling = sampling
        self._routed_experts = routed_experts
        self._overrides = bool(sampling)  # asked once, because asking walks the settings
        self._grammars = grammars
        self._settings = settings
        self._metrics = metrics

    async def calls(self, arrived: Arrived, request: CallRequest, identity: Identity) -> list[Call]:
        """`num_answers` calls for each prompt, one prompt after the other. Raises `CallError`."""
        self._refuse_unknown_tokens(request)
        prompts = await self.prompts(request, identity.session_id)
        grammars = await self._engine_grammars(request)
        await self._settings.learn()
        rendering = self._rendering.under(request.template_variables)
        steerings = [steered(rendering, request, prompt.ids.tail, grammars, prompt.said) for prompt in prompts]
        limits = [self._limit(request, prompt, by) for prompt, by in zip(prompts, steerings, strict=True)]
        members = [await self._sessions.membership(identity, prompt) for prompt in prompts]
        call_ids = [new_id("call") for _ in range(request.num_calls)]
        allowance = await self._budgets.begin(members[0], num_calls=len(call_ids))
        calls = []
        for choice, call_id in enumerate(call_ids):
            number = choice // request.num_answers
            limit = limits[number]
            wanted = _kept_to(request.sampling, steerings[number].grammar)
            sampling, asked = self._sampled(wanted, members[number], identity.access_key)
            call = Call(
                call_id=call_id,
                request_id=call_ids[0] if len(call_ids) > 1 else None,
                choice=choice,
                dialect=arrived.dialect,
                body=arrived.body,
                user_agent=arrived.user_agent,
                started_us=arrived.started_us,
                request=request,
                sampling=sampling,
                asked_sampling=asked,
                prompt=prompts[number],
                raw_prompt=request.raw_prompts[number] if request.raw_prompts else None,
                forced_ids=steerings[number].forced_ids,
                stop_ids=steerings[number].stop_ids,
                membership=members[number],
                access_key=identity.access_key,
                agent_ids=identity.agent_ids,
                max_new_tokens=limit if allowance is None else allowance.capped(limit),
                allowance=allowance,
                capture=Capture(self._assumed_version, request.top_logprobs),
                prompt_from=arrived.prompt_from,
                engine_settings=self._settings.json,
            )
            if self._routed_experts:
                call.capture.routed = RoutedExperts(_routed_from(call.prompt), len(call.sent_ids))
            calls.append(call)
        return calls

    async def _engine_grammars(self, request: CallRequest) -> EngineGrammars:
        """What the engines do with grammars; they are asked only where it matters."""
        backends = await self._grammars.now() if asks_for_grammar(request) else frozenset()
        return EngineGrammars(are_kept=NONE not in backends, take_lark=backends == {LLGUIDANCE})

    def _sampled(self, asked: Sampling, member: Membership, access_key: str | None) -> tuple[Sampling, dict[str, Any]]:
        """The sampling of a call, and the fields of it that were overridden, as the agent asked for them."""
        if not self._overrides:
            return asked, {}
        override = self._sampling.override(
            session_id=member.session_id, group_id=member.group_id, access_key=access_key
        )
        return overridden(asked, override)

    async def prompts(self, request: CallRequest, session_id: str | None) -> list[Prompt]:
        """The prompts of a request. Raises `BadRequest` or `ContextTooLong`."""
        self._rendering.under(request.template_variables).refuse_dropped(request.messages, request.tools)
        await self.context.learn()
        self._refuse_hopeless(request)
        if request.raw_prompts:
            prompts = [await self._raw_prompts.plan(raw, session_id) for raw in request.raw_prompts]
        else:
            prompts = [await self._stitching.plan(request, session_id)]
        for prompt in prompts:
            self._metrics.stitch.labels(result=prompt.stitch.value).inc()
        return prompts

    def _refuse_unknown_tokens(self, request: CallRequest) -> None:
        """Refuse a bias of tokens that the model's vocabulary lacks."""
        for token in request.sampling.extra.get("logit_bias", ()):
            if self._rendering.tokenizer.backend.id_to_token(int(token)) is None:
                raise BadRequest(
                    f"logit_bias: {token} is the id of no token of this model, whose vocabulary has "
                    f"{self._rendering.tokenizer.num_tokens}.",
                    param="logit_bias",
                    code="invalid_value",
                )

    def _refuse_hopeless(self, request: CallRequest) -> None:
        """Refuse texts that cannot fit even if every token were the longest one: tokenising them would take seconds."""
        lengths = [len(raw) for raw in request.raw_prompts if isinstance(raw, str)]
        lengths.append(num_characters(request.messages))
        least = max(lengths) // (self._rendering.tokenizer.longest_token * _NORMALISED_SHORTER)
        if least > self.context.tokens:
            raise self._too_long(request, f"at least {least}")

    def _limit(self, request: CallRequest, prompt: Prompt, steering: Steering) -> int:
        """The number of tokens that an answer may have."""
        num_prompt = len(prompt.ids) + len(steering.forced_ids)
        room, asked = self.context.tokens - num_prompt, request.sampling.max_tokens
        if room < 1:
            raise self._too_long(request, str(num_prompt))
        return room if asked is None else min(asked, room)

    def _too_long(self, request: CallRequest, num_tokens: str) -> ContextTooLong:
        given = "prompt" if request.raw_prompts else "messages"
        return ContextTooLong(
            f"This model's maximum context length is {self.context.tokens} tokens; the {given} alone have "
            f"{num_tokens}. Shorten them.",
            param=given,
        )
