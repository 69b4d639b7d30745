"""The client of the kernel-evaluation server, for agents and the trainer: sends a task and an answer, gets a verdict.

Invariant: `evaluate` returns only verdicts on the candidate. Failures that it did not cause (an unreachable server, a
reference that does not run) are retried a bounded number of times if a retry can help, and then raised. This module
does not import torch.
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from weir.kernel_eval.errors import KernelEvalRejected, KernelEvalUnavailable, KernelUnsupported
from weir.kernel_eval.exec_result import decode_reply
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

Reply = TypeVar("Reply", EvalReply, TaskCheck)
_decode_check = msgspec.json.Decoder(TaskCheck).decode


@dataclass(frozen=True, slots=True)
class _NoReply:
    """The reason why an attempt gave no usable reply, and the server's Retry-After."""

    reason: str
    retry_after_s: float = 0.0


def candidate_source(task: KernelTask, answer_text: str) -> str:
    """The module to judge: the last fenced block of the answer, in the task's template; without a block, all of it.

    A block without a closing fence, in an answer that was cut off, counts too.
    """
    blocks = _FENCED.findall(answer_text)
    code: str = blocks[-1] if blocks else answer_text
    return code if task.candidate_template is None else task.candidate_template.replace("{kernel}", code)


def feedback(result: EvalResult) -> str:
    """A message to the model about its last attempt: one line, and the end of the traceback if there is one."""
    if result.correct:
        return f"Correct on all {result.trials} trials."
    text = f"{result.fault}: {result.fault_message}"
    traceback = result.details.get("traceback")
    if isinstance(traceback, str) and traceback.strip():
        text += "\n" + "\n".join(traceback.strip().splitlines()[-_DETAIL_LINES:])
    return text


@functools.cache
def tls_context() -> ssl.SSLContext:
    """One TLS context for the process: loading the certificates takes 18 ms, more than all calls of a session."""
    return ssl.create_default_context()


def _in_one_line(error: Exception) -> str:
    """The type and the first line of an error."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}".removesuffix(": ")


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
        num_perf_trials: int = 100,
        recompile: bool = False,
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
            num_perf_trials=num_perf_trials,
            recompile=recompile,
            job_id=uuid.uuid4().hex,  # a retry after a lost connection joins the evaluation instead of repeating it
        )
        return _verdict(task, await self._post_with_retries("/eval", request, decode_reply, task))

    async def mode(self) -> str:
        """What judges run on: `gpu` or `interpreter`. Raises `KernelEvalUnavailable`.

        A server that still starts its processes says it too.
        """
        url = f"{self._http.base_url}/health"
        try:
            mode = (await self._http.get("/health")).json()["mode"]
        except (httpx.TransportError, ValueError, KeyError, TypeError) as error:
            raise KernelEvalUnavailable(f"{url} does not say what judges run on ({_in_one_line(error)})") from error
        return str(mode)

    async def check_task(self, task: KernelTask) -> TaskCheck:
        """Whether a task can be judged at all. Raises `KernelEvalUnavailable` or `KernelEvalRejected`."""
        request = TaskCheckRequest(reference_src=task.reference_src, relax_rules=tuple(task.relax_rules))
        return await self._post_with_retries("/tasks/check", request, _decode_check, task)

    async def _post_with_retries(
        self, path: str, request: msgspec.Struct, decode: Callable[[bytes], Reply], task: KernelTask
    ) -> Reply:
        """The first usable reply. Raises `KernelEvalUnavailable` after the last attempt, and `KernelEvalRejected`."""
        body, failure = msgspec.json.encode(request), _NoReply("no attempt was made")
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(max(self._backoff_s * 2 ** (attempt - 1), failure.retry_after_s))
            reply = await self._post(path, body, decode)
            if not isinstance(reply, _NoReply):
                return reply
            failure = reply
        raise KernelEvalUnavailable(
            f"no verdict on task {task.task_id} from {self._http.base_url}{path} after {self._attempts} attempts: "
            f"{failure.reason}; look at the server's /health"
        )

    async def _post(self, path: str, body: bytes, decode: Callable[[bytes], Reply]) -> Reply | _NoReply:
        """One attempt. Raises `KernelEvalRejected` on HTTP 4xx."""
        try:
            async with asyncio.timeout(self._timeout_s):  # httpx limits each read, not their sum
                response = await self._http.post(path, content=body, headers={"content-type": "application/json"})
            if response.status_code != 200:
                return self._failed_attempt(response)
            reply = decode(response.content)
        except TimeoutError:
            return _NoReply(f"TimeoutError: no complete answer within {self._timeout_s:g} s")
        except (httpx.TransportError, msgspec.DecodeError) as error:
            return _NoReply(f"{type(error).__name__}: {error}")
        if isinstance(reply, EvalReply) and reply.fault is not None and reply.fault.retryable:
            return _NoReply(f"{reply.fault}: {reply.fault_message}")
        return reply

    def _failed_attempt(self, response: httpx.Response) -> _NoReply:
        """Raises `KernelEvalRejected` if the status says that a retry cannot help."""
        if 400 <= response.status_code < 500 and response.status_code not in (408, 429):
            raise KernelEvalRejected(
                f"{response.url} refused the request with HTTP {response.status_code}: "
                f"{response.text[:500]}; check kernel_eval's url and api_key"
            )
        retry_after = response.headers.get("retry-after", "")
        wait_s = min(float(retry_after), _LONGEST_WAIT_S) if retry_after.isdigit() else 0.0
        return _NoReply(f"HTTP {response.status_code}: {response.text[:200]}", wait_s)

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        await self._http.aclose()


def _verdict(task: KernelTask, reply: EvalReply) -> EvalResult:
    if reply.fault is not None and reply.fault.ours:
        raise KernelUnsupported(f"task {task.task_id} cannot be judged: {reply.fault}: {reply.fault_message}")
    if reply.raw_reward is None:
        raise KernelEvalUnavailable(f"task {task.task_id}: the server reported neither a reward nor a fault of its own")
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
