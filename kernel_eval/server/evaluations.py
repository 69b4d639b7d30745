"""Evaluates requests: checks them, joins those with a known job id, answers from the cache, or has them judged.

Invariants: a request is refused (`Refused`) before anything is started for it; the number of waiting evaluations is
bounded; a job id stands for one content, is evaluated once, and always gets the same answer, for any client.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from typing import Any

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.ipc.job import Job, Judged
from weir.kernel_eval.judge.source import rules
from weir.kernel_eval.machines.job_table import JobTable
from weir.kernel_eval.machines.local import Machines
from weir.kernel_eval.protocol import EvalReply, EvalRequest, Fault, Problem, TaskCheck, TaskCheckRequest
from weir.kernel_eval.reward import Outcome, Stage, find_reward, raw_reward
from weir.kernel_eval.server.bounded_reply import bounded, bounded_text
from weir.kernel_eval.server.metrics import Counts
from weir.kernel_eval.server.result_cache import ResultCache, content_key

_MAX_ENDED_JOBS = 4096
_JOB_ID_LENGTH = 200
_GPUS = range(1024)  # valid GPU numbers
_SEEDS = range(-(2**63), 2**64)
_MOST_PERF_TRIALS = 10_000
_BYTE_ORDER_MARK = "\ufeff"  # editors put it before a file; Python takes it away when it reads one
_decode = msgspec.json.Decoder(EvalRequest).decode
_decode_check = msgspec.json.Decoder(TaskCheckRequest).decode


class Refused(Exception):
    """A request that is not evaluated, with the HTTP status and Retry-After of its answer."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


class Evaluations:
    """The evaluations of one server."""

    def __init__(self, config: KernelEvalConfig, machines: Machines, counts: Counts) -> None:
        self._config = config
        self._machines = machines
        self._counts = counts
        self._reward = find_reward(config.reward)
        self._cache = ResultCache(config.cache_entries, config.cache_bytes)
        self._in_progress: dict[str, asyncio.Event] = {}  # by content: judged now, for the cache
        self._jobs: JobTable[EvalReply] = JobTable(_MAX_ENDED_JOBS)

    def read(self, body: bytes | msgspec.Raw) -> EvalRequest:
        """Decode and check a request; its sources become text. Raises `Refused` (400)."""
        try:
            return self._checked(_decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"not an evaluation request: {error}") from error

    async def evaluate(self, request: EvalRequest) -> EvalReply:
        """The verdict on a request. Raises `Refused` if the queue is full, or if its job id has another content."""
        if request.job_id is None:
            return await self._fresh(request)
        content, known = content_key(request), self._jobs.find(request.job_id)
        if known is not None and known.content != content:
            raise Refused(409, f"job_id {request.job_id!r:.220} was given to another request; use a new one")
        if known is None or _must_be_repeated(known.work):
            work = asyncio.create_task(self._fresh(request))
            self._jobs.keep(request.job_id, work, content)
        else:
            work = known.work
            self._counts.joined.inc()
        return await asyncio.shield(work)

    async def check_task(self, body: bytes) -> TaskCheck:
        """Whether a task can be judged. Raises `Refused` if the body is malformed or the check did not finish."""
        try:
            check = _decode_check(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"not a task to check: {error}") from error
        _check_seed(check.seed_num)
        unknown = rules.refusal(check.relax_rules)
        if unknown is not None:
            return TaskCheck(judgeable=False, problem=Problem.UNKNOWN_RULE, message=unknown)
        self._refuse_beyond_queue()
        request = EvalRequest(original_model_src=check.reference_src, custom_model_src="", seed_num=check.seed_num)
        judgement = (await self._machines.evaluate(self._job(request, checks_task=True))).judgement
        if judgement.fault is not None and judgement.fault is not Fault.INVALID_REFERENCE:
            raise Refused(503, f"the task was not checked: {judgement.fault}: {judgement.message}", retry_after_s=1)
        judgeable = judgement.fault is None
        return TaskCheck(
            judgeable=judgeable,
            problem=None if judgeable else Problem(judgement.details.get("problem", Problem.DOES_NOT_RUN)),
            message=judgement.message,
            call_s=judgement.details.get("call_s"),
            outputs=judgement.details.get("outputs", []),
        )

    async def _fresh(self, request: EvalRequest) -> EvalReply:
        if not request.use_cache or self._config.cache_entries == 0:
            return await self._judged(request)
        content = content_key(request)
        while (reply := self._cache.find(request)) is None:
            if content not in self._in_progress:
                return await self._judged_for_all(content, request)
            await self._in_progress[content].wait()
        self._counts.cached.inc()
        return reply

    async def _judged_for_all(self, content: str, request: EvalRequest) -> EvalReply:
        """Judge once for all equal requests that arrive meanwhile; if this fails, one of them judges next."""
        ended = self._in_progress[content] = asyncio.Event()
        try:
            reply = await self._judged(request)
            self._cache.keep(request, reply)
            return reply
        finally:
            del self._in_progress[content]
            ended.set()

    async def _judged(self, request: EvalRequest) -> EvalReply:
        self._refuse_beyond_queue()
        reply = self._reply(await self._machines.evaluate(self._job(request)))
        self._counts.ended(reply)
        return reply

    def _refuse_beyond_queue(self) -> None:
        waiting = self._machines.waiting
        if waiting >= self._config.max_queue:
            self._counts.refused.inc()
            raise Refused(
                503,
                f"{waiting} evaluations are waiting already (kernel_eval.max_queue); retry later",
                retry_after_s=max(1, round(waiting * self._counts.mean_seconds() / self._machines.num_slots)),
            )

    def _checked(self, request: EvalRequest) -> EvalRequest:
        most = self._config.max_trials
        if not 1 <= request.num_correct_trials <= most:
            raise Refused(400, f"num_correct_trials is {request.num_correct_trials}, expected 1 to {most}")
        if not 0 <= request.num_perf_trials <= _MOST_PERF_TRIALS:
            raise Refused(400, f"num_perf_trials is {request.num_perf_trials}, expected 0 to {_MOST_PERF_TRIALS}")
        _check_seed(request.seed_num)
        if request.job_id is not None and not 1 <= len(request.job_id) <= _JOB_ID_LENGTH:
            raise Refused(400, f"job_id has {len(request.job_id)} characters, expected 1 to {_JOB_ID_LENGTH}")
        unknown = rules.refusal(request.relax_rules)
        if unknown is not None:
            raise Refused(400, unknown)
        names = ("original_model_src", "custom_model_src")
        sources = {name: getattr(request, name) for name in names}
        if request.encoding != "utf-8":
            sources = {name: _decoded(name, text) for name, text in sources.items()}
        sources = {name: text.removeprefix(_BYTE_ORDER_MARK) for name, text in sources.items()}
        return msgspec.structs.replace(request, encoding="utf-8", **sources)

    def _job(self, request: EvalRequest, *, checks_task: bool = False) -> Job:
        measures = request.measure_performance
        return Job(
            reference_src=request.original_model_src,
            candidate_src=request.custom_model_src,
            secret=self._secret(request),
            num_correct_trials=request.num_correct_trials,
            num_perf_trials=request.num_perf_trials if measures else 0,
            preferred_gpu=_number(request.preferred_device),
            limits=self._config.limits,
            relaxed_rules=request.relax_rules,
            backend=request.backend,
            torch_operators=self._config.torch_operators,
            reward_compiled=self._config.reward_compiled,
            checks_task=checks_task,
            recompiles=request.recompile,
            cross_checks=self._config.cross_check,
        )

    def _secret(self, request: EvalRequest) -> bytes:
        """A fresh one, so that nothing that one evaluation showed helps in the next; with `draws_from`, the same."""
        if self._config.draws_from is None:
            return os.urandom(32)
        content = f"{request.original_model_src}\0{request.custom_model_src}"
        return hashlib.blake2b(content.encode(), key=self._config.draws_from.encode()[:64], digest_size=32).digest()

    def _reply(self, judged: Judged) -> EvalReply:
        judgement = judged.judgement
        share = judgement.kernel_share if self._config.hybrid == "scale" else 1.0
        return EvalReply(
            compiled=judgement.stage >= Stage.LOADED,
            correct=judgement.fault is None,
            fault=judgement.fault,
            fault_message=None if judgement.fault is None else bounded_text(judgement.message),
            raw_reward=raw_reward(
                Outcome(judgement.stage, judgement.speedup, judgement.timed, share), judgement.fault, self._reward
            ),
            sandbox=judged.sandbox,
            mode=judged.mode,
            trials=judgement.trials,
            seconds=judgement.seconds,
            speedup=judgement.speedup,
            details=bounded(judgement.details if self._config.draws_from is None else _marked(judgement.details)),
        )


def _marked(details: dict[str, Any]) -> dict[str, Any]:
    return {**details, "draws": "fixed"}  # a verdict that nobody should train on


def _must_be_repeated(work: asyncio.Task[EvalReply]) -> bool:
    """Whether an evaluation ended without a final verdict: refused, cancelled, or with a retryable fault."""
    if not work.done():
        return False
    if work.cancelled() or work.exception() is not None:
        return True
    fault = work.result().fault
    return fault is not None and fault.retryable


def _check_seed(seed: int) -> None:
    if seed not in _SEEDS:
        raise Refused(400, "seed_num is an integer that 64 bits do not hold")


def _number(device: int | str | None) -> int | None:
    """The number of a GPU named as 1, "1" or "cuda:1"; None for any other name."""
    number = device.rpartition(":")[2] if isinstance(device, str) else device
    return next((gpu for gpu in _GPUS if number in (gpu, str(gpu))), None)


def _decoded(name: str, text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise Refused(
            400, f"{name} is not base64 of UTF-8 text ({error}); send it so, or leave encoding out"
        ) from error
