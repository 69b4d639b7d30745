"""`weir bench kernel-eval --hostile N`: N candidates of which most attack the server, mixed with honest ones.

Fork bombs, 100 GB allocations, endless output, sleeping, signals, writes everywhere, daemons, threads, forged messages.
Counted: attacks that were called correct, honest neighbours that were judged wrongly, requests without an answer, and
what is left afterwards of processes, files and shared memory. All must be 0.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(1000)]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch, triton, triton.language as tl
@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""
_LIMITS = {"port": 0, "call_timeout_s": 5.0, "load_timeout_s": 10.0, "memory_bytes": 1 << 29, "max_queue": 100_000}
_SETTLE_S = 20.0
_HONEST_SHARE = 0.4
_WRONG = ("tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0)", "tl.load(x_ptr + offsets, mask=mask)")
_RETURN = "        return out\n"
OUTSIDE = ("/", "/tmp", "/dev/shm", "/usr", "/etc", "/root", "/home", "/var/tmp")
ATTACKS = {
    "fork bomb": "while True: os.fork()",
    "forks, whatever it is told": "\n".join(
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
    """What came of a run; everything but `seconds` and `outcomes` must be 0."""

    attacks_called_correct: int
    honest_judged_wrongly: int
    without_an_answer: int
    processes_left: int
    files_left: int
    left_elsewhere: int  # files of theirs in folders that are not theirs, shared memory among them
    seconds: float
    outcomes: dict[str, int]

    @property
    def ok(self) -> bool:
        """The server came through."""
        return not any(self[:6])


def run_hostile(count: int, level: str | None = None, seed: int = 0) -> Tally:
    """Start a server, send `count` candidates, 8 at a time, and look at what is left."""
    with tempfile.TemporaryDirectory(prefix="weir-hostile-") as folder:
        settings = {**_LIMITS, **({"sandbox": level} if level else {})}
        process = subprocess.Popen(
            [sys.executable, "-m", "weir.kernel_eval.server.main", json.dumps(settings)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": folder},
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[2]
            return asyncio.run(_attack(url, process.pid, Path(folder), count, level, random.Random(seed)))
        finally:
            process.terminate()
            process.wait()


async def _attack(url: str, pid: int, folder: Path, count: int, level: str | None, chance: random.Random) -> Tally:
    import httpx

    outside_before = _outside()
    async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False) as http:
        await asyncio.gather(*(_evaluate(http, CANDIDATE) for _ in range(8)))
        before = _standing(pid, folder)
        started, gate = time.monotonic(), asyncio.Semaphore(8)

        async def one(kind: str | None) -> tuple[str | None, dict[str, Any] | None]:
            async with gate:
                return kind, await _evaluate(http, _source(kind))

        kinds = [None if chance.random() < _HONEST_SHARE else chance.choice(_attacks(level)) for _ in range(count)]
        answers = await asyncio.gather(*(one(kind) for kind in kinds))
        seconds = time.monotonic() - started
        await _settle(pid, folder, before)
    processes, files = (now - then for now, then in zip(_standing(pid, folder), before, strict=True))
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
    """Wait for what is still ending: a worker is killed after its verdict is out."""
    deadline = time.monotonic() + _SETTLE_S
    while _standing(pid, folder) != before and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.1)


def _attacks(level: str | None) -> list[str]:
    """At `rlimits` files and shared memory can be left behind: that is not contained, and not tried."""
    uncontained = {"writes everywhere", "shared memory"} if level == "rlimits" else set()
    return [name for name in (*ATTACKS, "wrong") if name not in uncontained]


def _outside() -> set[Path]:
    """What attacks would leave outside of their own folder."""
    found = {Path(folder) / "weir-hostile" for folder in OUTSIDE}
    return {path for path in found if path.exists()} | set(Path("/dev/shm").glob("psm_*"))


async def _evaluate(http: Any, candidate: str) -> dict[str, Any] | None:
    import httpx

    body = {"original_model_src": TASK, "custom_model_src": candidate, "num_correct_trials": 2}
    try:
        response = await http.post("/eval", json=body)
        reply: dict[str, Any] | None = response.json() if response.status_code == 200 else None
    except httpx.TransportError:
        return None
    return reply


def _source(kind: str | None) -> str:
    if kind is None:
        return CANDIDATE
    if kind == "wrong":
        return CANDIDATE.replace(*_WRONG)
    attack = "".join(f"        {line}\n" for line in ATTACKS[kind].splitlines())
    return "import ctypes, os, signal, sys, threading, time\n" + CANDIDATE.replace(_RETURN, attack + _RETURN)


def _standing(pid: int, folder: Path) -> tuple[int, int]:
    """Processes below the server, and files in its temporary folder, whose folders may go while they are counted."""
    return len(_below(pid)), sum(len(files) for _, _, files in os.walk(folder))


def _below(pid: int) -> list[int]:
    found = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in listing.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += children + [below for child in children for below in _below(child)]
    return found


def main(count: int) -> None:
    """Print what came of it; exit 1 if anything got through."""
    tally = run_hostile(count)
    for outcome, number in sorted(tally.outcomes.items()):
        print(f"{number:6} {outcome}")
    figures = {name: value for name, value in tally._asdict().items() if name != "outcomes"}
    print(json.dumps({"evaluations": count, **figures}))
    if not tally.ok:
        raise SystemExit(1)
