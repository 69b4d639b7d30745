"""The client of the kernel-evaluation server, for agents and the trainer: a task and an answer in, a verdict out.

Invariant: `evaluate` returns only verdicts on the candidate. What is not the candidate's doing (a server that is
away, a reference that does not run) is retried a bounded number of times where that can help, and then raised.
Importing this costs no torch.
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
import uuid
from dataclasses import dataclass

import httpx
import msgspec

from weir.kernel_eval.errors import KernelEvalRejected, KernelEvalUnavailable, KernelUnsupported
from weir.kernel_eval.protocol import (
    EvalReply,
    EvalRequest,
    EvalResult,
    Fault,
    KernelTask,
    Problem,
    TaskCheck,
    TaskCheckRequest,
)

__all__ = [
    "EvalResult",
    "Fault",
    "KernelEvalClient",
    "KernelEvalRejected",
    "KernelEvalUnavailable",
    "KernelTask",
    "KernelUnsupported",
    "Problem",
    "TaskCheck",
    "candidate_source",
    "feedback",
    "tls_context",
]

_FENCED = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_DETAIL_LINES = 12
_LONGEST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class _NoReply:
    """Why an attempt gave no reply, and how long the server asks to be left alone."""

    reason: str
    retry_after_s: float = 0.0


def candidate_source(task: KernelTask, answer_text: str) -> str:
    """The module to judge: the last fenced block of the answer (all of it where there is none) in the task's template.

    A block that the answer does not close, because it was cut off, counts as one.
    """
    blocks = _FENCED.findall(answer_text)
    code: str = blocks[-1] if blocks else answer_text
    return code if task.candidate_template is None else task.candidate_template.replace("{kernel}", code)


def feedback(result: EvalResult) -> str:
    """What an agent tells the model about its last attempt: one line, and the end of the traceback if there is one."""
    if result.correct:
        return f"Correct on all {result.trials} trials."
    text = f"{result.fault}: {result.fault_message}"
    traceback = result.details.get("traceback")
    if isinstance(traceback, str) and traceback.strip():
        text += "\n" + "\n".join(traceback.strip().splitlines()[-_DETAIL_LINES:])
    return text


@functools.cache
def tls_context() -> ssl.SSLContext:
    """The process's one TLS context: loading the certificates costs 18 ms, more than a session's calls do."""
    return ssl.create_default_context()


class KernelEvalClient:
    """Sends candidates to one server. Safe to share between the tasks of one event loop."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        attempts: int = 4,
        backoff_s: float = 0.5,
    ) -> None:
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=32)
        self._http = httpx.AsyncClient(
            base_url=base_url.rstrip("/"),
            headers=headers,
            timeout=timeout_s,
            limits=limits,
            trust_env=False,
            verify=tls_context(),
        )
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._backoff_s = backoff_s

    async def evaluate(
        self,
        task: KernelTask,
        candidate_src: str,
        *,
        seed: int = 42,
        num_correct_trials: int = 3,
        use_cache: bool = False,
        measure_performance: bool = False,
    ) -> EvalResult:
        """Judge one candidate. Raises `KernelEvalUnavailable`, `KernelUnsupported` or `KernelEvalRejected`."""
        request = EvalRequest(
            original_model_src=task.reference_src,
            custom_model_src=candidate_src.encode(errors="replace").decode(),
            seed_num=seed,
            num_correct_trials=num_correct_trials,
            backend=task.backend,
            relax_rules=tuple(task.relax_rules),
            use_cache=use_cache,
            measure_performance=measure_performance,
            job_id=uuid.uuid4().hex,  # an attempt that lost its connection is joined by the next, not judged twice
        )
        body = msgspec.json.encode(request)
        failure, wait_s = "it was never asked", 0.0
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(max(self._backoff_s * 2 ** (attempt - 1), wait_s))
            reply = await self._post(body)
            if isinstance(reply, EvalReply) and not (reply.fault and reply.fault.retryable):
                return _verdict(task, reply)
            failure = reply.reason if isinstance(reply, _NoReply) else f"{reply.fault}: {reply.fault_message}"
            wait_s = reply.retry_after_s if isinstance(reply, _NoReply) else 0.0
        raise KernelEvalUnavailable(
            f"no verdict on task {task.task_id} from {self._http.base_url} after {self._attempts} attempts: {failure}; "
            "look at the server's /health"
        )

    async def check_task(self, task: KernelTask) -> TaskCheck:
        """Whether a task can be judged at all. Raises `KernelEvalUnavailable` or `KernelEvalRejected`."""
        body = msgspec.json.encode(
            TaskCheckRequest(reference_src=task.reference_src, relax_rules=tuple(task.relax_rules))
        )
        failure = "it was never asked"
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(self._backoff_s * 2 ** (attempt - 1))
            try:
                response = await self._http.post("/tasks/check", content=body)
            except httpx.TransportError as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            if response.status_code == 200:
                return msgspec.json.decode(response.content, type=TaskCheck)
            failure = f"HTTP {response.status_code}: {response.text[:200]}"
            if response.status_code < 500:
                raise KernelEvalRejected(f"{self._http.base_url} did not check task {task.task_id}: {failure}")
        raise KernelEvalUnavailable(
            f"task {task.task_id} was not checked by {self._http.base_url} in {self._attempts} attempts: {failure}; "
            "look at the server's /health"
        )

    async def _post(self, body: bytes) -> EvalReply | _NoReply:
        """One attempt. Raises `KernelEvalRejected` on HTTP 4xx."""
        try:
            async with asyncio.timeout(self._timeout_s):  # httpx bounds each read, not all of them
                response = await self._http.post("/eval", content=body, headers={"content-type": "application/json"})
            if 400 <= response.status_code < 500 and response.status_code not in (408, 429):
                raise KernelEvalRejected(
                    f"{self._http.base_url} refused the evaluation with HTTP {response.status_code}: "
                    f"{response.text[:500]}; check kernel_eval's url and api_key"
                )
            if response.status_code != 200:
                asked_s = response.headers.get("retry-after", "")
                wait_s = min(float(asked_s), _LONGEST_WAIT_S) if asked_s.isdigit() else 0.0
                return _NoReply(f"HTTP {response.status_code}: {response.text[:200]}", wait_s)
            return msgspec.json.decode(response.content, type=EvalReply)
        except TimeoutError:
            return _NoReply(f"TimeoutError: no whole answer within {self._timeout_s:g} s")
        except (httpx.TransportError, msgspec.ValidationError, msgspec.DecodeError) as error:
            return _NoReply(f"{type(error).__name__}: {error}")

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        await self._http.aclose()


def _verdict(task: KernelTask, reply: EvalReply) -> EvalResult:
    if reply.fault is not None and reply.fault.ours:
        raise KernelUnsupported(f"task {task.task_id} cannot be judged: {reply.fault}: {reply.fault_message}")
    if reply.raw_reward is None:
        raise KernelEvalUnavailable(f"task {task.task_id}: the server gave neither a reward nor a fault of its own")
    return EvalResult(
        compiled=reply.compiled,
        correct=reply.correct,
        fault=None if reply.fault is None else str(reply.fault),
        fault_message=reply.fault_message,
        raw_reward=reply.raw_reward,
        sandbox=reply.sandbox,
        mode=reply.mode,
        trials=reply.trials,
        seconds=reply.seconds,
        speedup=reply.speedup,
        details=reply.details,
    )
