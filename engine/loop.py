"""The engine loop: the one thread that owns model, cache, running batch and ledger.

Everybody else asks it: `submit` hands over a request, `ask` runs a function on the loop's thread between two steps.
Invariants: weights, versions and pauses change between steps only, so every token has exactly one version; a token
is in the ledger before anyone hears of it. The loop knows nothing of HTTP; `announce` gets the requests that have
news.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal, TypeVar

import torch

from weir.engine.batch import Batch, Drawn
from weir.engine.decoder import Decoder
from weir.engine.ledger import Ledger
from weir.engine.request import Finish, Request, finish_abort, finish_length, finish_stop
from weir.engine.texts import Texts
from weir.engine.weights import apply_weights

PauseMode = Literal["abort", "retract", "in_place"]
T = TypeVar("T")
log = logging.getLogger(__name__)


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
        seed: int,
        ledger: Ledger | None,
        announce: Callable[[Sequence[Request]], None],
    ) -> None:
        self.decoder = decoder
        self.version = version
        self.paused: PauseMode | None = None
        self.num_steps = 0
        self.num_tokens = 0
        self._texts = texts
        self._batch = Batch(decoder)
        self._waiting: deque[Request] = deque()
        self._stepping: list[Request] = []  # whom the step now in progress works for
        self._max_running = max_running
        self._prefill_tokens = prefill_tokens
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
        """End the requests that `wanted` names, running or waiting, with what they have; returns how many."""
        found = [request for request in (*self._batch.running, *self._waiting) if wanted(request)]
        self._finish({request: finish_abort("Aborted") for request in found})
        return len(found)

    def pause(self, mode: PauseMode) -> None:
        """No more steps until `resume`. abort: everything known ends; retract: to be computed again; in_place: kept."""
        if mode == "abort":
            self.abort(lambda _: True)
        elif mode == "retract":
            self._waiting.extendleft(reversed(self._batch.retract()))
        self.paused = mode

    def resume(self) -> None:
        """Go on."""
        self.paused = None

    def swap(self, tensors: dict[str, torch.Tensor], version: str | None, *, flush: bool) -> None:
        """Serve checked weights from the next step on; a running request goes on under them with its old cache."""
        apply_weights(self.decoder.model, tensors)
        if version is not None:
            self.version = version
        if flush:
            self.flush()

    def rename(self, version: str) -> None:
        """Give the served weights another version."""
        self.version = version

    def flush(self) -> bool:
        """Drop what the cache holds; False, and nothing done, while requests need it."""
        if self._batch.running:
            return False
        self.decoder.cache.clear()
        return True

    def load(self) -> dict[str, int]:
        """How many requests run and wait."""
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
        """Run what was asked; wait for it only when there is nothing else to do."""
        idle = self.paused or not (self._waiting or self._batch.running)
        while True:
            try:
                action = self._inbox.get(block=bool(idle))
            except queue.Empty:
                return
            action()
            idle = False

    def _step(self) -> None:
        self.num_steps += 1
        self._stepping = self._newcomers()
        if self._stepping:
            self._take(self._stepping, self._batch.admit(self._stepping))
        elif self._batch.running:
            self._stepping = list(self._batch.running)
            self._take(self._stepping, self._batch.step())

    def _newcomers(self) -> list[Request]:
        """Waiting requests that fit: rows are free, and the padded prompts stay within the budget (one always fits)."""
        chosen: list[Request] = []
        longest = 0
        while self._waiting and len(self._batch.running) + len(chosen) < self._max_running:
            request = self._waiting[0]
            if request.sampling.max_new_tokens == 0:
                self._waiting.popleft()
                self._finish({request: finish_length(0)})
                continue
            longest = max(longest, request.num_tokens)
            if chosen and longest * (len(chosen) + 1) > self._prefill_tokens:
                break
            chosen.append(self._waiting.popleft())
        return chosen

    def _take(self, requests: list[Request], drawn: Drawn) -> None:
        """Record what was drawn, end what is complete, tell those who wait."""
        version = self.version
        if self._ledger is not None:
            self._ledger.write(requests, drawn, version)
        for request, token, logprob in zip(requests, *drawn, strict=True):
            request.record(token, logprob, version)
        self.num_tokens += len(requests)
        finished = {request: finish for request in requests if (finish := self._finish_of(request))}
        self._announce([request for request in requests if request.stream and request not in finished])
        self._finish(finished)

    def _finish_of(self, request: Request) -> Finish | None:
        sampling = request.sampling
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
        """Let requests go, wherever they are, and tell those who wait for them."""
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
        """A step could not be done: its requests end with status 500, the others wait for the next one."""
        finish = finish_abort(f"{type(error).__name__}: {error}", 500, "InternalServerError")
        self._finish({request: finish for request in self._stepping if request.finish is None})

    def _close(self) -> None:
        self.abort(lambda _: True)
        self._closing = True
        if self._ledger is not None:
            self._ledger.close()

    def next_seed(self) -> int:
        """A seed for a request that brings none."""
        return self._seeds.getrandbits(63)
