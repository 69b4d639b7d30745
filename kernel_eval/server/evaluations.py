"""Evaluations as requests ask for them: checked, joined to an equal job, answered from the cache, or judged.

Invariants: a request is refused (`Refused`) before anything is started for it; evaluations that wait are bounded; a job
id stands for one content, is evaluated once, and is answered the same again, whoever asks. Not here: HTTP (server.py,
batches.py), where they run (machine.py, ray_machines.py).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.judge.judge.channel.job import Job, Judged
from weir.kernel_eval.judge.judge.source import rules
from weir.kernel_eval.machines.local import Machines
from weir.kernel_eval.protocol import EvalReply, EvalRequest, Fault, Problem, TaskCheck, TaskCheckRequest
from weir.kernel_eval.reward import Outcome, Stage, find_reward, raw_reward
from weir.kernel_eval.server.app.metrics import Counts
from weir.kernel_eval.server.app.result_cache import ResultCache, content_key

_JOBS_KEPT = 4096
_JOB_ID_LENGTH = 200
_GPUS = range(1024)  # numbers that a GPU may have
_SEEDS = range(-(2**63), 2**64)
_MOST_PERF_TRIALS = 10_000
_decode = msgspec.json.Decoder(EvalRequest).decode
_decode_check = msgspec.json.Decoder(TaskCheckRequest).decode


class Refused(Exception):
    """A request that is not evaluated; `status` is HTTP's, `retry_after_s` says when to ask again."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class _Job:
    """One job id: what it stands for, and its evaluation, running or ended."""

    content: str
    work: asyncio.Task[EvalReply]


class Evaluating:
    """Evaluates requests on machines."""

    def __init__(self, config: KernelEvalConfig, machines: Machines, counts: Counts) -> None:
        self._config = config
        self._machines = machines
        self._counts = counts
        self._secret = os.urandom(32)
        self._reward = find_reward(config.reward)
        self._cache = ResultCache(config.cache_entries)
        self._underway: dict[str, asyncio.Event] = {}  # contents that are being judged for the cache
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def read(self, body: bytes | msgspec.Raw) -> EvalRequest:
        """The request in a JSON body, its sources as text. Raises `Refused`."""
        try:
            return self._checked(_decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"not an evaluation request: {error}") from error

    async def evaluate(self, wanted: EvalRequest) -> EvalReply:
        """The verdict on a request that was read. Raises `Refused` where it may not wait, or its job id is taken."""
        if wanted.job_id is None:
            return await self._fresh(wanted)
        content, known = content_key(wanted), self._jobs.get(wanted.job_id)
        if known is not None and known.content != content:
            raise Refused(409, f"job_id {wanted.job_id!r:.220} was given to another request; use a new one")
        if known is None or _is_to_be_repeated(known.work):
            known = _Job(content, asyncio.create_task(self._fresh(wanted)))
            self._keep(wanted.job_id, known)
        else:
            self._counts.joined.inc()
        return await asyncio.shield(known.work)

    async def check_task(self, body: bytes) -> TaskCheck:
        """Whether a task can be judged. Raises `Refused`."""
        try:
            wanted = _decode_check(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"not a task to check: {error}") from error
        _check_seed(wanted.seed_num)
        unknown = rules.refusal(wanted.relax_rules)
        if unknown is not None:
            return TaskCheck(judgeable=False, problem=Problem.UNKNOWN_RULE, message=unknown)
        self._refuse_beyond_queue()
        request = EvalRequest(original_model_src=wanted.reference_src, custom_model_src="", seed_num=wanted.seed_num)
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

    async def _fresh(self, wanted: EvalRequest) -> EvalReply:
        if not wanted.use_cache or self._config.cache_entries == 0:
            return await self._judged(wanted)
        content = content_key(wanted)
        while (reply := self._cache.find(wanted)) is None:
            if content not in self._underway:
                return await self._judged_for_all(content, wanted)
            await self._underway[content].wait()
        self._counts.cached.inc()
        return reply

    async def _judged_for_all(self, content: str, wanted: EvalRequest) -> EvalReply:
        """Judged once, for whoever asks for the same meanwhile; if nothing comes of it, one of those is next."""
        ended = self._underway[content] = asyncio.Event()
        try:
            reply = await self._judged(wanted)
            self._cache.keep(wanted, reply)
            return reply
        finally:
            del self._underway[content]
            ended.set()

    async def _judged(self, wanted: EvalRequest) -> EvalReply:
        self._refuse_beyond_queue()
        reply = self._reply(await self._machines.evaluate(self._job(wanted)))
        self._counts.ended(reply)
        return reply

    def _refuse_beyond_queue(self) -> None:
        waiting = self._machines.waiting
        if waiting >= self._config.max_queue:
            self._counts.refused.inc()
            raise Refused(
                503,
                f"{waiting} evaluations are waiting already (kernel_eval.max_queue); ask again later",
                retry_after_s=max(1, round(waiting * self._counts.mean_seconds() / self._machines.num_slots)),
            )

    def _keep(self, job_id: str, job: _Job) -> None:
        self._jobs[job_id] = job
        self._jobs.move_to_end(job_id)
        ended = [name for name, one in self._jobs.items() if one.work.done()]
        for name in ended[: max(0, len(self._jobs) - _JOBS_KEPT)]:
            del self._jobs[name]

    def _checked(self, wanted: EvalRequest) -> EvalRequest:
        most = self._config.max_trials
        if not 1 <= wanted.num_correct_trials <= most:
            raise Refused(400, f"num_correct_trials is {wanted.num_correct_trials}, expected 1 to {most}")
        if not 0 <= wanted.num_perf_trials <= _MOST_PERF_TRIALS:
            raise Refused(400, f"num_perf_trials is {wanted.num_perf_trials}, expected 0 to {_MOST_PERF_TRIALS}")
        _check_seed(wanted.seed_num)
        if wanted.job_id is not None and not 1 <= len(wanted.job_id) <= _JOB_ID_LENGTH:
            raise Refused(400, f"job_id has {len(wanted.job_id)} characters, expected 1 to {_JOB_ID_LENGTH}")
        unknown = rules.refusal(wanted.relax_rules)
        if unknown is not None:
            raise Refused(400, unknown)
        if wanted.encoding == "utf-8":
            return wanted
        sources = {name: _decoded(name, getattr(wanted, name)) for name in ("original_model_src", "custom_model_src")}
        return msgspec.structs.replace(wanted, encoding="utf-8", **sources)

    def _job(self, wanted: EvalRequest, *, checks_task: bool = False) -> Job:
        measures = wanted.measure_performance
        return Job(
            reference_src=wanted.original_model_src,
            candidate_src=wanted.custom_model_src,
            secret=hashlib.blake2b(str(wanted.seed_num).encode(), key=self._secret).digest(),
            num_correct_trials=wanted.num_correct_trials,
            num_perf_trials=wanted.num_perf_trials if measures else 0,
            preferred_gpu=_number(wanted.preferred_device),
            limits=self._config.limits,
            relaxed_rules=wanted.relax_rules,
            backend=wanted.backend,
            reward_compiled=self._config.reward_compiled,
            checks_task=checks_task,
        )

    def _reply(self, judged: Judged) -> EvalReply:
        judgement = judged.judgement
        return EvalReply(
            compiled=judgement.stage >= Stage.LOADED,
            correct=judgement.fault is None,
            fault=judgement.fault,
            fault_message=None if judgement.fault is None else judgement.message,
            raw_reward=raw_reward(
                Outcome(judgement.stage, judgement.speedup, judgement.timed), judgement.fault, self._reward
            ),
            sandbox=judged.sandbox,
            mode=judged.mode,
            trials=judgement.trials,
            seconds=judgement.seconds,
            speedup=judgement.speedup,
            details=judgement.details,
        )


def _is_to_be_repeated(work: asyncio.Task[EvalReply]) -> bool:
    """Whether a job ended without a verdict that will stay: refused, cancelled, or with a fault of ours."""
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
    """Of a device as clients name it: 1, "1" or "cuda:1"; any other name is none in particular."""
    number = device.rpartition(":")[2] if isinstance(device, str) else device
    return next((gpu for gpu in _GPUS if number in (gpu, str(gpu))), None)


def _decoded(name: str, text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise Refused(
            400, f"{name} is not base64 of UTF-8 text ({error}); send it so, or leave encoding out"
        ) from error
