"""`weir bench kernel-eval --hostile N`: N candidates of which most attack the server, mixed with honest ones.

Fork bombs, 100 GB allocations, endless output, sleeping, signals, writes everywhere, daemons, threads, forged messages.
Counted: attacks that were judged correct, honest candidates that were judged wrongly, requests without a reply, and
leftover processes, files and shared memory. All must be 0.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from weir.scripts.bench.kernel_eval import server
from weir.scripts.bench.kernel_eval.server import descendants, evaluate, running_server

_TASK, _CANDIDATE = (source.format(factor=1.0) for source in (server.TASK, server.CANDIDATE))

_LIMITS = {"port": 0, "call_timeout_s": 5.0, "load_timeout_s": 10.0, "memory_bytes": 1 << 29, "max_queue": 100_000}
_SETTLE_S = 20.0
_HONEST_SHARE = 0.4
_WRONG = ("tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0)", "tl.load(x_ptr + offsets, mask=mask)")
_RETURN = "        return out\n"
OUTSIDE = ("/", "/tmp", "/dev/shm", "/usr", "/etc", "/root", "/home", "/var/tmp")
ATTACKS = {
    "fork bomb": "while True: os.fork()",
    "forks despite refusals": "\n".join(
        ("while True:", "    try: os.fork()", "    except OSError: time.sleep(0.001)"),
    ),
    "double fork and setsid": "\n".join(
        ("if os.fork() == 0:", "    os.setsid()", "    if os.fork() == 0: time.sleep(3600)", "    os._exit(0)"),
    ),
    "100 GB": "torch.ones(25_000_000_000)",
    "memory in pieces": "held = [bytearray(1 << 24) for _ in range(10_000)]",
    "endless output": "while True: os.write(1, b'x' * 65536)",
    "endless file": "file = open('filler', 'wb')\nwhile True: file.write(bytes(1 << 20)); file.flush()",
    "many files": "for i in range(10**7): open(f'f{i}', 'wb').write(bytes(1 << 16))",
    "sleeps": "time.sleep(3600)",
    "spins": "while True: pass",
    "kills its parent": "os.kill(os.getppid(), 9)",
    "kills everybody": "os.kill(-1, 9)",
    "aborts": "os.abort()",
    "stops itself": "os.kill(os.getpid(), 19)",
    "crashes": "ctypes.string_at(0)",
    "writes everywhere": "\n".join(
        (
            f"for folder in (*{OUTSIDE}, os.path.dirname(torch.__file__)):",
            "    try: open(os.path.join(folder, 'weir-hostile'), 'wb').write(b'x')",
            "    except OSError: refused = True",
            "if refused: open('/weir-hostile', 'wb')",
        )
    ),
    "shared memory": "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=1 << 20)",
    "threads": "while True: threading.Thread(target=time.sleep, args=(3600,)).start()",
    "descriptors": "held = [os.open('/dev/null', 0) for _ in range(10**6)]",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', 80), timeout=1)",
    "starts a program": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'sleep 3600 &'])",
    "forges messages": "\n".join(
        (
            "for fd in range(3, 64):",
            "    try: os.write(fd, bytes([4, 0, 0, 0, 255, 255, 255, 255]))",
            "    except OSError: 0",
        ),
    ),
    "closes all": "os.closerange(0, 64)\ntime.sleep(3600)",
    "leaves": "os._exit(0)",
    "ignores signals": "\n".join(
        ("for n in range(1, 32):", "    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)", "time.sleep(3600)"),
    ),
    "recursion": "sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
}


class Tally(NamedTuple):
    """The result of a run; everything but `seconds` and `outcomes` must be 0."""

    attacks_called_correct: int
    honest_judged_wrongly: int
    without_an_answer: int
    processes_left: int
    files_left: int
    left_elsewhere: int  # candidates' files outside of their own folders, shared memory among them
    seconds: float
    outcomes: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether no attack had an effect."""
        return not any(self[:6])


def run_hostile(count: int, level: str | None = None, seed: int = 0) -> Tally:
    """Start a server, send `count` candidates, 8 at a time, and count the leftovers."""
    with tempfile.TemporaryDirectory(prefix="weir-hostile-") as folder:
        settings = {**_LIMITS, **({"sandbox": level} if level else {})}
        with running_server(settings, {"TMPDIR": folder}) as (url, pid):
            return asyncio.run(_attack(url, pid, Path(folder), count, level, random.Random(seed)))


async def _attack(url: str, pid: int, folder: Path, count: int, level: str | None, chance: random.Random) -> Tally:
    outside_before = _outside()
    async with server.client(url) as http:
        await asyncio.gather(*(_evaluate(http, _CANDIDATE) for _ in range(8)))
        before = _count(pid, folder)
        started, gate = time.monotonic(), asyncio.Semaphore(8)

        async def one(kind: str | None) -> tuple[str | None, dict[str, Any] | None]:
            async with gate:
                return kind, await _evaluate(http, _source(kind))

        kinds = [None if chance.random() < _HONEST_SHARE else chance.choice(_attacks(level)) for _ in range(count)]
        answers = await asyncio.gather(*(one(kind) for kind in kinds))
        seconds = time.monotonic() - started
        await _settle(pid, folder, before)
    processes, files = (now - then for now, then in zip(_count(pid, folder), before, strict=True))
    return Tally(
        sum(1 for kind, reply in answers if kind and reply and reply["correct"]),
        sum(1 for kind, reply in answers if kind is None and reply and not reply["correct"]),
        sum(1 for _, reply in answers if reply is None or reply["fault"] == "server_error"),
        max(0, processes),
        max(0, files),
        len(_outside() - outside_before),
        round(seconds, 1),
        dict(Counter(f"{kind or 'honest'}: {reply and reply['fault']}" for kind, reply in answers)),
    )


async def _settle(pid: int, folder: Path, before: tuple[int, int]) -> None:
    """Wait for processes that are ending: a worker is killed after its verdict was sent."""
    deadline = time.monotonic() + _SETTLE_S
    while _count(pid, folder) != before and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.1)


def _attacks(level: str | None) -> list[str]:
    """The attacks that a level contains: at `rlimits`, files and shared memory can be left behind."""
    uncontained = {"writes everywhere", "shared memory"} if level == "rlimits" else set()
    return [name for name in (*ATTACKS, "wrong") if name not in uncontained]


def _outside() -> set[Path]:
    """Files that attacks left outside of their own folder."""
    paths = {Path(folder) / "weir-hostile" for folder in OUTSIDE}
    return {path for path in paths if path.exists()} | set(Path("/dev/shm").glob("psm_*"))


async def _evaluate(http: httpx.AsyncClient, candidate: str) -> dict[str, Any] | None:
    return await evaluate(http, _TASK, candidate, trials=2)


def _source(kind: str | None) -> str:
    if kind is None:
        return _CANDIDATE
    if kind == "wrong":
        return _CANDIDATE.replace(*_WRONG)
    attack = "".join(f"        {line}\n" for line in ATTACKS[kind].splitlines())
    return "import ctypes, os, signal, sys, threading, time\n" + _CANDIDATE.replace(_RETURN, attack + _RETURN)


def _count(pid: int, folder: Path) -> tuple[int, int]:
    """Processes below the server, and files in its temporary folder, which may disappear meanwhile."""
    return len(descendants(pid)), sum(len(files) for _, _, files in os.walk(folder))


def main(count: int) -> None:
    """Print the result. Raises SystemExit with status 1 if an attack had an effect."""
    tally = run_hostile(count)
    for outcome, number in sorted(tally.outcomes.items()):
        print(f"{number:6} {outcome}")
    figures = {name: value for name, value in tally._asdict().items() if name != "outcomes"}
    print(json.dumps({"evaluations": count, **figures}))
    if not tally.ok:
        raise SystemExit(1)
