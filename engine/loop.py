"""The engine loop: the only thread that uses model, cache, running batch and ledger.

Other threads hand over requests (`submit`) and functions to run between two steps (`ask`). Invariants: weights,
versions and pauses change between steps only, so every token has exactly one version; a token is in the ledger before
any client gets it. The loop knows nothing of HTTP; `announce` gets the requests with new output.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal, TypeVar

import torch

from weir.engine.batch import Batch, Drawn
from weir.engine.decoder import Decoder, Prepared
from weir.engine.errors import BadRequest
from weir.engine.ledger import Ledger
from weir.engine.request import Finish, Request, finish_abort, finish_length, finish_stop
from weir.engine.texts import Texts

PauseMode = Literal["abort", "retract", "in_place"]
T = TypeVar("T")
log = logging.getLogger(__name__)

# Prompt tokens in a step: before the speed is known; at least; at most of one prompt, for the memory of its mask.
_FIRST_PIECE, _LEAST_PIECE, _MOST_PIECE = 128, 16, 2048
# How long an idle engine waits for prompts that come with the first: of the time that theirs will take; at most.
_GATHER_SHARE, _GATHER_MOST_S = 0.05, 0.01


class PrefillBudget:
    """How many prompt tokens a step computes: few enough that running requests wait only for so long.

    Learned from how long earlier steps took.
    """

    def __init__(self, most: int, limit_s: float) -> None:
        self._most = most
        self._limit_s = limit_s
        self._tokens_s = _FIRST_PIECE / limit_s

    def now(self, *, others_run: bool) -> int:
        """The tokens of the next step."""
        piece = max(_LEAST_PIECE, int(self._tokens_s * self._limit_s))
        return min(self._most, piece) if others_run else self._most

    def gathering_s(self, num_tokens: int) -> float:
        """How long prompts of so many tokens may wait for others, to be computed in one pass with them."""
        return min(_GATHER_MOST_S, _GATHER_SHARE * num_tokens / self._tokens_s)

    def took(self, num_tokens: int, seconds: float) -> None:
        """A step computed so many tokens in so many seconds."""
        self._tokens_s += (num_tokens / seconds - self._tokens_s) / 4


class EngineLoop:
    """Continuous batching over one model: requests join and leave at every step."""

    def __init__(
        self,
        decoder: Decoder,
        texts: Texts,
        *,
        version: str,
        max_running: int,
        prefill_tokens: int,
        prefill_ms: float,
        prefix_tokens: int,
        seed: int,
        ledger: Ledger | None,
        announce: Callable[[Sequence[Request]], None],
    ) -> None:
        self.decoder = decoder
        self.version = version
        self.paused: PauseMode | None = None
        self.released: set[str] = set()  # what of "weights" and "kv_cache" holds no memory
        self.has_weights = True  # since they were given back last
        self.num_steps = 0
        self.num_tokens = 0
        self._texts = texts
        self._batch = Batch(decoder, prefix_tokens=prefix_tokens)
        self._waiting: deque[Request] = deque()
        self._stepping: list[Request] = []  # the requests of the current step
        self._max_running = max_running
        self._prefill = PrefillBudget(prefill_tokens, prefill_ms / 1000)
        self._seeds = random.Random(seed)
        self._ledger = ledger
        self._announce = announce
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine-loop", daemon=True)

    # -- from any thread ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the loop's thread."""
        self._thread.start()

    def ask(self, action: Callable[[], T]) -> Future[T]:
        """Run `action` on the loop's thread between two steps."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except Exception as error:  # handed to whoever asked
                future.set_exception(error)

        self._inbox.put(run)
        return future

    def submit(self, request: Request) -> None:
        """Queue a request; it is admitted as soon as there is room and no pause."""
        self._inbox.put(lambda: self._waiting.append(request))

    def close(self) -> None:
        """Abort what runs and end the thread. May be called twice."""
        self.ask(self._close)
        self._thread.join()

    # -- through `ask` only ------------------------------------------------------------------------------------------

    def abort(self, wanted: Callable[[Request], bool]) -> int:
        """End the running and waiting requests that `wanted` selects, with partial output; returns their number."""
        found = [request for request in (*self._batch.running, *self._waiting) if wanted(request)]
        self._finish({request: finish_abort("Aborted") for request in found})
        return len(found)

    def pause(self, mode: PauseMode) -> None:
        """Stop stepping until `resume`. abort: end all requests; retract: recompute them later; in_place: keep them."""
        if mode == "abort":
            self.abort(lambda _: True)
        elif mode == "retract":
            self._waiting.extendleft(reversed(self._batch.retract()))
        self.paused = mode

    def resume(self) -> None:
        """Resume stepping. Raises BadRequest without weights."""
        if not self.has_weights:
            raise BadRequest("the weights were given back, and none have come since: update them, then continue")
        self.take_again({"kv_cache"})
        self.paused = None

    def release(self, tags: set[str]) -> None:
        """Give back the memory of the weights, of the cache, or of both; only in a pause in which nothing runs."""
        if "kv_cache" in tags:
            self.flush()
        if "weights" in tags - self.released:
            self._batch.forget_prefixes()
            self.decoder.release()
            self.has_weights = False
        self.released |= tags

    def take_again(self, tags: set[str]) -> None:
        """Have memory again; weights stay undefined until `swap`. The cache takes memory as it is written."""
        if "weights" in tags & self.released:
            self.decoder.take_again()
        self.released -= tags

    def swap(self, prepared: Prepared, version: str | None, *, flush: bool) -> None:
        """Serve prepared weights from the next step on; running requests continue with them and their old cache."""
        self.take_again({"weights"})
        self.decoder.adopt(prepared)
        self.has_weights = True
        self._batch.forget_prefixes()
        if version is not None:
            self.version = version
        if flush:
            self.flush()

    def rename(self, version: str) -> None:
        """Change the version of the served weights."""
        self.version = version

    def flush(self) -> bool:
        """Clear the cache; False, without effect, while requests use it."""
        if self._batch.running:
            return False
        self._batch.forget_prefixes()
        self.decoder.cache.clear()
        return True

    def load(self) -> dict[str, int]:
        """Numbers of running and waiting requests."""
        return {"num_running": len(self._batch.running), "num_waiting": len(self._waiting)}

    # -- the loop's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with torch.inference_mode():
            while not self._closing:
                self._take_in()
                if self._closing or self.paused or not (self._waiting or self._batch.running):
                    continue
                try:
                    self._step()
                except Exception as error:
                    log.exception("a step failed; its requests end here")
                    self._fail(error)

    def _take_in(self) -> None:
        """Run the queued functions; waits for one only when there is nothing to step."""
        idle = self.paused or not (self._waiting or self._batch.running)
        while True:
            try:
                action = self._inbox.get(block=bool(idle))
            except queue.Empty:
                return
            action()
            if idle and self._waiting and not self.paused:
                self._gather()
            idle = False

    def _gather(self) -> None:
        """An idle engine got a request: wait a moment for those that were sent together with it."""
        began_s = time.perf_counter()
        while not self._closing and len(self._waiting) < self._max_running:
            wait_s = self._prefill.gathering_s(sum(map(self._batch.num_missing, self._waiting)))
            left_s = began_s + wait_s - time.perf_counter()
            try:
                self._inbox.get(timeout=max(0.0, left_s))()
            except queue.Empty:
                return

    def _step(self) -> None:
        """Some prefill, then one token for every running request."""
        self.num_steps += 1
        started_s, before = time.perf_counter(), self._batch.num_prefilled
        self._fill()
        if num_tokens := self._batch.num_prefilled - before:
            self._prefill.took(num_tokens, time.perf_counter() - started_s)
        self._stepping = list(self._batch.running)
        if self._stepping:
            self._take(self._stepping, self._batch.step())

    def _fill(self) -> None:
        """Admit waiting requests, or compute a piece of the first one's prompt."""
        budget = self._prefill.now(others_run=bool(self._batch.running))
        self._stepping = self._newcomers(budget)
        if self._stepping:
            self._take(self._stepping, self._batch.admit(self._stepping))
        elif self._waiting and len(self._batch.running) < self._max_running:
            self._stepping = [self._waiting[0]]
            self._batch.advance(self._waiting[0], min(budget, _MOST_PIECE))

    def _newcomers(self, budget: int) -> list[Request]:
        """The waiting requests that fit free rows and, padded, the budget; none where the first needs more pieces."""
        chosen: list[Request] = []
        longest = 0
        self._batch.drop_begun(unless=self._waiting[0] if self._waiting else None)
        while self._waiting and len(self._batch.running) + len(chosen) < self._max_running:
            request = self._waiting[0]
            if request.sampling.max_new_tokens == 0:
                self._waiting.popleft()
                self._finish({request: finish_length(0)})
                continue
            longest = max(longest, self._batch.num_missing(request))
            if longest * (len(chosen) + 1) > budget and chosen:
                break
            # Logprobs of a prompt come from one pass over all of it.
            if longest > min(budget, _MOST_PIECE) and request.logprob_start is None:
                break
            chosen.append(self._waiting.popleft())
        return chosen

    def _take(self, requests: list[Request], drawn: Drawn) -> None:
        """Record sampled tokens, finish complete requests, announce new output."""
        version = self.version
        if self._ledger is not None:
            self._ledger.write(requests, drawn, version)
        truncated, top = drawn.sampling_logprobs or drawn.logprobs, drawn.top or [None] * len(requests)
        rows = zip(requests, drawn.tokens, drawn.logprobs, truncated, top, strict=True)
        for request, token, logprob, sampled, likeliest in rows:
            request.record(token, logprob, version, sampling_logprob=sampled, top=likeliest)
            if request.matcher is not None and token not in request.sampling.stop_ids:
                request.matcher.consume(token)
        self.num_tokens += len(requests)
        finished = {request: finish for request in requests if (finish := self._finish_of(request))}
        self._announce([request for request in requests if request.stream and request not in finished])
        self._finish(finished)

    def _finish_of(self, request: Request) -> Finish | None:
        sampling = request.sampling
        if request.matcher is not None and request.matcher.error is not None:
            return finish_abort(f"The grammar cannot be kept: {request.matcher.error}", 500, "InternalServerError")
        if sampling.stop:
            # A stop string of B bytes lies within the last B tokens that have bytes, and begins in one of them.
            tail = request.output_ids[-1 - max(len(stop.encode()) for stop in sampling.stop) :]
            text = self._texts.decode(tail, skip_special=False)
            for stop in sampling.stop:
                if stop in text:
                    return finish_stop(stop)
        if request.output_ids[-1] in sampling.stop_ids:
            return finish_stop(request.output_ids[-1])
        if len(request.output_ids) >= sampling.max_new_tokens:
            return finish_length(sampling.max_new_tokens)
        return None

    def _finish(self, finished: dict[Request, Finish]) -> None:
        """Remove requests from batch and queue, set their finish reasons, announce them."""
        if not finished:
            return
        self._batch.remove([request for request in self._batch.running if request in finished])
        if any(request in finished for request in self._waiting):
            self._waiting = deque(request for request in self._waiting if request not in finished)
        for request, finish in finished.items():
            request.weight_version = request.weight_version or self.version
            request.finish = finish
        self._announce(list(finished))

    def _fail(self, error: Exception) -> None:
        """After a failed step: end its requests with status 500; others stay for the next step."""
        finish = finish_abort(f"{type(error).__name__}: {error}", 500, "InternalServerError")
        self._finish({request: finish for request in self._stepping if request.finish is None})

    def _close(self) -> None:
        self.abort(lambda _: True)
        self._closing = True
        if self._ledger is not None:
            self._ledger.close()

    def next_seed(self) -> int:
        """A seed for a request without one."""
        return self._seeds.getrandbits(63)
