"""The HTTP side: POST /eval, GET /health, GET /metrics.

Invariants: this process imports neither torch nor a candidate; a well-formed request is answered with HTTP 200 and a
structured result whatever the candidate does; /health answers while evaluations run. 4xx is for the caller's
mistakes, 503 for a full queue, both with the body {"error": {"message", "type"}}.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.kernel_eval import native_toolchain, rules, sandbox
from weir.kernel_eval.config import KernelEvalConfig
from weir.kernel_eval.errors import InsecureBinding
from weir.kernel_eval.judgement import Job, Judgement
from weir.kernel_eval.pool import Pool
from weir.kernel_eval.protocol import EvalReply, EvalRequest
from weir.kernel_eval.result_cache import ResultCache
from weir.kernel_eval.reward import Outcome, Stage, find_reward, raw_reward
from weir.kernel_eval.sandbox_level import SandboxLevel

_decode_request = msgspec.json.Decoder(EvalRequest).decode


class EvalServer:
    """The state of one server: its processes, its secret, its counts."""

    def __init__(self, config: KernelEvalConfig, level: SandboxLevel) -> None:
        self._config = config
        self._level = level
        self._secret = os.urandom(32)
        self._reward = find_reward(config.reward)
        self._cache = ResultCache(config.cache_entries)
        self._started = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._seconds = 0.0
        self.pool = Pool(config, level)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Processes live as long as the server answers."""
        self.pool.start()
        try:
            yield
        finally:
            await self.pool.close()

    async def eval(self, request: Request) -> Response:
        """POST /eval."""
        self._authorize(request)
        wanted = self._checked(await self._body(request))
        if self.pool.waiting >= self._config.max_queue:
            raise HTTPException(503, f"{self.pool.waiting} evaluations are waiting already; ask again later")
        reply = self._cache.find(wanted) if wanted.use_cache else None
        if reply is None:
            reply = self._reply(await self._judge(wanted))
            if wanted.use_cache:
                self._cache.keep(wanted, reply)
        self._outcomes[str(reply.fault or "correct")] += 1
        self._seconds += reply.seconds
        return _json(reply)

    async def health(self, request: Request) -> Response:
        """GET /health: 200 when evaluations are taken, 503 while processes start."""
        zygote = self.pool.zygote
        ready = all(server.is_up for server in self.pool.forkservers)
        state = {
            "ready": ready,
            "sandbox": self._level,
            "seccomp": bool(zygote.ready and zygote.ready.seccomp),
            "own_network": bool(zygote.ready and zygote.ready.own_network),
            "mode": "interpreter",
            "backends": ["triton", *native_toolchain.available()],
            "target": self._config.target,
            "rules": {name: rule.says for name, rule in rules.RULES.items()},
            "slots": self._config.num_slots,
            "running": self.pool.running,
            "queue": self.pool.waiting,
            "zygotes": [{"pid": p.pid, "up": p.is_up, "starts": p.num_starts} for p in self.pool.forkservers],
            "uptime_s": round(time.monotonic() - self._started, 3),
        }
        return _json(state, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics, in Prometheus' text form."""
        lines = [
            f'weir_kernel_eval_results_total{{outcome="{name}"}} {n}' for name, n in sorted(self._outcomes.items())
        ]
        lines += [
            f"weir_kernel_eval_seconds_total {self._seconds:.6f}",
            f"weir_kernel_eval_queue {self.pool.waiting}",
            f"weir_kernel_eval_running {self.pool.running}",
            f"weir_kernel_eval_zygote_starts_total {self.pool.zygote.num_starts}",
        ]
        return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    def _authorize(self, request: Request) -> None:
        key = self._config.api_key
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key is not None and not secrets.compare_digest(given.encode(), key.encode()):
            raise HTTPException(401, "a key is required: send Authorization: Bearer KEY")

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._config.max_body_bytes:
                raise HTTPException(413, f"the body is larger than {self._config.max_body_bytes} bytes")
        return bytes(body)

    def _checked(self, body: bytes) -> EvalRequest:
        try:
            wanted = _decode_request(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HTTPException(400, f"not an evaluation request: {error}") from error
        if not 1 <= wanted.num_correct_trials <= self._config.max_trials:
            raise HTTPException(
                400, f"num_correct_trials is {wanted.num_correct_trials}, expected 1 to {self._config.max_trials}"
            )
        if wanted.num_perf_trials < 0:
            raise HTTPException(400, f"num_perf_trials is {wanted.num_perf_trials}, expected 0 or more")
        unknown = rules.unknown_rules(wanted.relax_rules)
        if unknown:
            raise HTTPException(400, f"relax_rules names {unknown}; the rules are {sorted(rules.RULES)}")
        return wanted

    async def _judge(self, wanted: EvalRequest) -> Judgement:
        job = Job(
            reference_src=wanted.original_model_src,
            candidate_src=wanted.custom_model_src,
            secret=hashlib.blake2b(str(wanted.seed_num).encode(), key=self._secret).digest(),
            num_correct_trials=wanted.num_correct_trials,
            num_perf_trials=min(wanted.num_perf_trials, self._config.perf_trials) if wanted.measure_performance else 0,
            limits=self._config.limits,
            relaxed_rules=wanted.relax_rules,
            backend=wanted.backend,
            reward_compiled=self._config.reward_compiled,
        )
        return await self.pool.evaluate(job)

    def _reply(self, judgement: Judgement) -> EvalReply:
        return EvalReply(
            compiled=judgement.stage >= Stage.LOADED,
            correct=judgement.fault is None,
            fault=judgement.fault,
            fault_message=judgement.message,
            raw_reward=raw_reward(Outcome(judgement.stage, judgement.speedup), judgement.fault, self._reward),
            sandbox=self._level,
            mode="interpreter",
            trials=judgement.trials,
            seconds=judgement.seconds,
            details=judgement.details,
        )


def create_app(config: KernelEvalConfig) -> Starlette:
    """The application. Raises `SandboxUnavailable` and `InsecureBinding`: then nothing is started."""
    if config.api_key is None and not _is_loopback(config.host):
        raise InsecureBinding(
            f"kernel_eval.host is {config.host}, which others can reach; set kernel_eval.api_key too, or use 127.0.0.1"
        )
    level = sandbox.choose_level(config.sandbox, config.min_sandbox)
    server = EvalServer(config, level)
    app = Starlette(
        routes=[
            Route("/eval", server.eval, methods=["POST"]),
            Route("/health", server.health),
            Route("/metrics", server.metrics),
        ],
        exception_handlers={HTTPException: _error, Exception: _internal_error},
        lifespan=server.lifespan,
    )
    app.state.sandbox = level
    return app


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "unavailable" if error.status_code >= 500 else "invalid_request"
    return _json({"error": {"message": error.detail, "type": kind}}, error.status_code)


async def _internal_error(request: Request, error: Exception) -> Response:
    return _json({"error": {"message": f"{type(error).__name__}: {error}", "type": "server_error"}}, 500)


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
