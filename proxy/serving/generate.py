"""One answer in as many pieces as it takes: past the gate, to an engine, retried after an abort or an engine's failure.

Invariants: every piece has a request id of its own; a piece starts from the prompt and everything captured before it,
except where a grammar holds the answer: engines cannot start one in the middle, so the answer starts anew; no more than
`max_new_tokens` are captured in all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator

import msgspec

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import ToolUse
from weir.proxy.engines.capture import Capture, Finish, MalformedChunk
from weir.proxy.engines.client import Upstream
from weir.proxy.engines.routed_experts import RoutedExperts
from weir.proxy.errors import BadRequest, UpstreamFailed, UpstreamLost, UpstreamNotTaken, UpstreamRejected
from weir.proxy.metrics import Metrics
from weir.proxy.pipeline.dispatch import Dispatch
from weir.proxy.serving.call import Call, sampling_params, wants_mask
from weir.proxy.sessions.budgets import within
from weir.store.clock import now_us
from weir.store.records.call_record import unpack_ids
from weir.store.records.ids import new_id

_encode = msgspec.json.Encoder().encode
logger = logging.getLogger("weir.proxy.serving.generate")


class Generation:
    """Generates answers through one router."""

    def __init__(self, config: ProxyConfig, upstream: Upstream, dispatch: Dispatch, metrics: Metrics) -> None:
        self._upstream = upstream
        self._adapter = {} if config.adapter_name is None else {"lora_path": config.adapter_name}  # that calls name
        self._dispatch = dispatch
        self._metrics = metrics
        self._sampling_masks = config.sampling_masks
        self._said_no_mask = self._said_no_experts = False

    def run(self, call: Call) -> AsyncGenerator[int, None]:
        """The pieces of `_run`, as far as the budget of the call's session allows."""
        pieces = self._run(call)
        return pieces if call.allowance is None else within(pieces, call.capture, call.allowance)

    async def _run(self, call: Call) -> AsyncGenerator[int, None]:
        """Fill the call's capture; yields the number of new tokens each time some came.

        Ends when the answer is complete. Raises `BadRequest`, `Unavailable` or `UpstreamFailed`; what was captured
        stays.
        """
        dispatch = self._dispatch
        attempts = dispatch.attempts(call)
        while True:
            had = len(call.capture.ids)
            try:
                async with dispatch.flight(call, attempts), contextlib.aclosing(self._piece(call)) as piece:
                    async for num_new in piece:
                        yield num_new
            except (UpstreamNotTaken, UpstreamLost) as error:
                await dispatch.wait_after(error, attempts)
            else:
                if not _was_cut(call):
                    return
                await asyncio.sleep(attempts.pause_after_abort(progressed=len(call.capture.ids) > had))
            if len(call.capture.ids) >= call.max_new_tokens:
                call.capture.finish = Finish(type="length")
                return

    async def _piece(self, call: Call) -> AsyncGenerator[int, None]:
        """Send the call once, from where it stands."""
        capture = call.capture
        if call.keeps_grammar:
            capture.restart()
        rid = new_id("rid")
        stream = call.request.stream or call.may_be_cut
        options = {
            "rid": rid,
            "sampling_params": sampling_params(call),
            "return_logprob": True,
            "logprob_start_len": call.logprob_start,
            "stream": stream,
        } | self._adapter
        if capture.num_top:
            options["top_logprobs_num"] = capture.num_top
        masked = self._sampling_masks and wants_mask(call)
        if masked:
            options["return_sampling_mask"] = True
        if capture.routed is not None:
            options |= {"return_routed_experts": True, "routed_experts_start_len": capture.routed.end}
        body = [_encode(options)[:-1], b',"input_ids":[', *call.sent_ids.json(capture.ids), b"]}"]
        asked_for_prompt = call.logprob_start >= 0
        capture.begin_piece(rid)
        try:
            async with contextlib.aclosing(
                self._upstream.generate(body, stream, call.membership.session_id, past_router=call.needs_engine)
            ) as batches:
                async for chunks in batches:
                    num_new = sum(map(capture.feed, chunks))
                    if asked_for_prompt:
                        _check_prompt(call)
                    if num_new:
                        if call.first_token_us is None:
                            call.first_token_us = now_us()
                        yield num_new
            if masked:
                self._check_mask(call)
            if capture.routed is not None and not _was_cut(call):
                self._check_experts(capture, capture.routed)
        except (UpstreamRejected, UpstreamLost) as error:
            if self._adapter and "LoRA adapter" in str(error):  # of an engine that has just started, or never got one
                name = self._adapter["lora_path"]
                raise UpstreamLost(f"{error}; publish a version with publish.adapter_name = {name!r}") from error
            if isinstance(error, UpstreamLost):
                raise
            raise BadRequest(f"the engine refused the call: {error}", param=_left_to_engine(call)) from error
        except MalformedChunk as error:
            raise UpstreamFailed(f"the engine's answer contradicts itself: {error}") from error

    def _check_mask(self, call: Call) -> None:
        """Say once that an answer lacks what `sampling_masks` asks for."""
        if call.capture.sampling_logprobs is None and not self._said_no_mask:
            self._said_no_mask = True
            logger.warning(
                "proxy.sampling_masks: answers come without output_token_sampling_logprobs, so rounds compute which "
                "tokens were kept: the router drops return_sampling_mask (sglang-router does, smg does not), or the "
                "engine does not know it"
            )

    def _check_experts(self, capture: Capture, routed: RoutedExperts) -> None:
        """Count an answer without the experts that were asked for, and say so once."""
        if routed.of(len(capture.ids)) is not None:
            return
        self._metrics.routed_experts_missing.inc()
        if not self._said_no_experts:
            self._said_no_experts = True
            logger.warning(
                "proxy.record_routed_experts: an answer came without the experts that its tokens went to (%s), so no "
                "round can replay them: start SGLang with --enable-return-routed-experts, and serve a mixture of "
                "experts; weir_routed_experts_missing_total counts such answers",
                routed.why or "none were asked for",
            )


def _check_prompt(call: Call) -> None:
    """Raise `MalformedChunk` unless the engine's prompt logprobs are those of the tokens that were sent."""
    found = call.capture.prompt
    if found is not None and found.ids != unpack_ids(call.sent_ids.packed)[call.prompt_from :].tolist():
        raise MalformedChunk("the ids beside the prompt's logprobs are not the prompt's")


def _left_to_engine(call: Call) -> str | None:
    """The agent's field that only the engine can check: what it cannot compile of a schema or another grammar."""
    if not call.keeps_grammar:
        return None
    return "tools" if call.request.tool_use is ToolUse.REQUIRED else call.request.format_field


def _was_cut(call: Call) -> bool:
    finish = call.capture.finish
    return finish is None or finish.type == "abort"
