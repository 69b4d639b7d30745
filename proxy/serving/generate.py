"""One answer from as many pieces as it takes: past the gate, to an engine, and again after an abort or a death.

The proxy owns retries, because it alone knows what may be sent again. Invariants: every piece has a request id of its
own; a piece starts from the prompt and everything captured before it; no more than max_new_tokens are captured in
all; a piece that an engine may have taken is repeated rarely, so that a call which kills engines cannot kill them
all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable

import msgspec

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.prompt_ids import ids_json, joined
from weir.proxy.engines.capture import Finish, MalformedChunk
from weir.proxy.engines.client import Upstream
from weir.proxy.engines.gate import Gate
from weir.proxy.errors import (
    BadRequest,
    Unavailable,
    UpstreamFailed,
    UpstreamLost,
    UpstreamNotTaken,
    UpstreamRejected,
)
from weir.proxy.metrics import Metrics
from weir.proxy.recording.call import Call, now_us, sampling_params
from weir.proxy.sessions.budgets import within
from weir.store.records.ids import new_id

MAX_BACKOFF_S = 1.0  # between two tries of a call that no engine took
_encode = msgspec.json.Encoder().encode

logger = logging.getLogger("weir.proxy.serving.generate")


class Generation:
    """Gate, router and the budgets for trying again."""

    def __init__(
        self,
        upstream: Upstream,
        gate: Gate,
        config: ProxyConfig,
        metrics: Metrics,
        on_trouble: Callable[[], None],
    ) -> None:
        self._upstream = upstream
        self._gate = gate
        self._config = config
        self._metrics = metrics
        self._on_trouble = on_trouble

    def run(self, call: Call) -> AsyncGenerator[int, None]:
        """The pieces of `_run`, as far as the budget of the call's session allows."""
        pieces = self._run(call)
        return pieces if call.allowance is None else within(pieces, call.capture, call.allowance)

    async def _run(self, call: Call) -> AsyncGenerator[int, None]:
        """Fill the call's capture; yields the number of new tokens each time some came.

        Ends when the answer is complete. Raises `BadRequest`, `Unavailable` or `UpstreamFailed`; what was captured
        stays.
        """
        attempts = _Attempts(self._config)
        while True:
            await self._pass_gate(call)
            try:
                with self._gate.passing():
                    async with contextlib.aclosing(self._piece(call)) as piece:
                        async for num_new in piece:
                            yield num_new
            except (UpstreamNotTaken, UpstreamLost) as error:
                self._metrics.upstream_errors.labels(kind=type(error).__name__).inc()
                if self._gate.is_open:
                    self._on_trouble()
                pause_s = attempts.after(error, gate_is_open=self._gate.is_open)
            else:
                if not _was_cut(call):
                    return
                pause_s = attempts.after_abort(gate_is_open=self._gate.is_open)
            if len(call.capture.ids) >= call.max_new_tokens:
                call.capture.finish = Finish(type="length")
                return
            await asyncio.sleep(pause_s)

    async def _pass_gate(self, call: Call) -> None:
        call.waiting = True
        try:
            held_us = await self._gate.wait_open()
        finally:
            call.waiting = False
        if held_us:
            call.held_us += held_us
            self._metrics.hold_seconds.observe(held_us / 1e6)

    async def _piece(self, call: Call) -> AsyncGenerator[int, None]:
        """Send the call once, from where it stands."""
        capture = call.capture
        rid = new_id("rid")
        stream = call.request.stream or call.may_be_cut
        options = {
            "rid": rid,
            "sampling_params": sampling_params(call),
            "return_logprob": True,
            "logprob_start_len": -1,
            "stream": stream,
        }
        body = b'%b,"input_ids":[%b]}' % (_encode(options)[:-1], joined(call.sent_ids.json, ids_json(capture.ids)))
        capture.begin_piece(rid)
        try:
            async with contextlib.aclosing(
                self._upstream.generate(body, stream, call.membership.session_id)
            ) as batches:
                async for chunks in batches:
                    num_new = sum(map(capture.feed, chunks))
                    if num_new:
                        if call.first_token_us is None:
                            call.first_token_us = now_us()
                        yield num_new
        except UpstreamRejected as error:
            raise BadRequest(f"the engine refused the call: {error}") from error
        except MalformedChunk as error:
            raise UpstreamFailed(f"the engine's answer contradicts itself: {error}") from error


class _Attempts:
    """How often one call was sent again, by cause. While the gate is not open trouble is expected, and not counted."""

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._refused = 0
        self._refused_since: float | None = None
        self._lost = 0
        self._aborted = 0

    def after(self, error: UpstreamNotTaken | UpstreamLost, *, gate_is_open: bool) -> float:
        """How long to pause before sending again. Raises `Unavailable` or `UpstreamFailed` when it was enough."""
        if not gate_is_open:
            return 0.0
        if isinstance(error, UpstreamNotTaken):
            self._refused += 1
            self._refused_since = self._refused_since or time.monotonic()
            if time.monotonic() - self._refused_since >= self._config.refused_limit_s:
                raise Unavailable(f"no engine took the call, tried {self._refused} times: {error}") from error
            return min(self._backoff_s(self._refused), MAX_BACKOFF_S)
        self._refused_since = None  # one took it
        self._lost += 1
        if self._lost > self._config.lost_retries:
            raise UpstreamFailed(f"engines failed during the call, {self._lost} times: {error}") from error
        return self._backoff_s(self._lost)

    def after_abort(self, *, gate_is_open: bool) -> float:
        """The same after an engine aborted the call."""
        if not gate_is_open:
            return 0.0
        self._aborted += 1
        if self._aborted > self._config.abort_retries:
            raise UpstreamFailed(f"the engine aborted the call {self._aborted} times while the gate was open")
        return self._backoff_s(self._aborted)

    def _backoff_s(self, times: int) -> float:
        return float(self._config.retry_backoff_s * 2 ** (times - 1))


def _was_cut(call: Call) -> bool:
    finish = call.capture.finish
    return finish is None or finish.type == "abort"
