"""Runs one command in an enclosure over a session's folder, within limits, and keeps the end of what it printed.

Invariant: when `run_contained` returns or is cancelled, no process of the command is left (at `rlimits`, see
`enclosure.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from weir.agents.command.enclosure import HOME, RUN, WORK, Enclosure
from weir.agents.command.limits import CommandEnd, CommandLimits, EndedBy
from weir.agents.command.output_file import OutputFile
from weir.agents.command.relay import Relay
from weir.agents.command.session_folder import SessionFolder
from weir.agents.command.watch import Watch
from weir.agents.errors import AgentSandboxUnavailable
from weir.kernel_eval.sandbox import ending, syscalls

SPEC, SOCKET = "spec.json", "proxy.sock"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/tty")
_TAIL_BYTES = 2000
_GRACE_S = 10.0  # for a launcher to end what is below it
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line and what it is given. `stdin`: a file as the command sees it; None: nothing to read."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    stdin: str | None = None


async def run_contained(
    command: Command,
    folder: SessionFolder,
    enclosure: Enclosure,
    limits: CommandLimits,
    watch: Watch,
    output: Path,
    relay: Relay | None = None,
) -> CommandEnd:
    """Run a command to its end. Raises `AgentSandboxUnavailable` where it cannot be contained."""
    run = _Run(folder, enclosure, limits, OutputFile(output, limits.kept_bytes))
    status_read, status_write = os.pipe()
    try:
        (folder.run / SPEC).write_text(json.dumps(_spec(command, folder, enclosure, limits, relay, status_write)))
        spec = f"{RUN if enclosure.has_mounts else folder.run}/{SPEC}"
        process = await asyncio.create_subprocess_exec(
            *enclosure.command(folder.path, ("-m", "weir.agents.command.launcher", spec)),
            cwd=folder.work,
            env=dict(command.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(status_write,),
            start_new_session=True,
        )
        os.close(status_write)
        status_write = -1
        with watch.over(process.pid, folder, limits, run.end_by):
            await run.follow(process)
        status = os.read(status_read, 1 << 16)
    finally:
        run.output.close()
        os.close(status_read)
        if status_write >= 0:
            os.close(status_write)
    return run.ended(status, output)


class _Run:
    """A command that runs: reads what it prints, and ends it."""

    def __init__(self, folder: SessionFolder, enclosure: Enclosure, limits: CommandLimits, output: OutputFile) -> None:
        self.output = output
        self._folder, self._enclosure, self._limits = folder, enclosure, limits
        self._ended_by: EndedBy | None = None
        self._exceeded = asyncio.Event()
        self._started = time.monotonic()

    def end_by(self, limit: EndedBy) -> None:
        """End the command because of a limit; the first one counts."""
        self._ended_by = self._ended_by or limit
        self._exceeded.set()

    async def follow(self, process: asyncio.subprocess.Process) -> None:
        """Return when the command has ended or was ended."""
        reading = asyncio.create_task(self._read(process))
        exceeding = asyncio.create_task(self._exceeded.wait())
        waiting = asyncio.create_task(process.wait())
        timer = asyncio.get_running_loop().call_later(self._limits.seconds, self.end_by, EndedBy.TIME)
        try:
            await asyncio.wait({waiting, exceeding}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            await asyncio.shield(self._end(process))
            exceeding.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading, _GRACE_S)

    def ended(self, status: bytes, output: Path) -> CommandEnd:
        """How it ended. Raises `AgentSandboxUnavailable` where the launcher could not contain it."""
        told = json.loads(status) if status else {}
        tail = output.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
        never_started = not status and self._ended_by is None and tail.startswith("bwrap:")
        if "error" in told or never_started:
            raise AgentSandboxUnavailable(told.get("error") or f"bubblewrap failed: {tail}")
        return CommandEnd(
            exit_code=told.get("exit_code"),
            ended_by=self._ended_by,
            seconds=time.monotonic() - self._started,
            printed_bytes=self.output.total,
            tail=tail,
        )

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while data := await process.stdout.read(_CHUNK):
            self.output.add(data)
            if self.output.total > self._limits.output_bytes:
                self.end_by(EndedBy.OUTPUT)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End everything: at `bubblewrap` with its first process, below it through the launcher.

        bubblewrap tells how the command ended before its own first process has: what is left is looked for at each one.
        """
        if process.returncode is None and not self._enclosure.has_mounts:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE_S)
        if process.returncode is None:
            ending.end(process.pid)
            await process.wait()
        await asyncio.to_thread(_end_leftovers, self._folder)


def _end_leftovers(folder: SessionFolder) -> None:
    """SIGKILL what outlived its launcher until it is gone: processes of the session's user, or with its HOME."""
    while left := [process for process in psutil.process_iter() if _is_of(process, folder)]:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def _is_of(process: psutil.Process, folder: SessionFolder) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if folder.uid is not None:
            return bool(process.uids().real == folder.uid)
        return bool(process.environ().get("HOME") == str(folder.home))
    except psutil.Error:
        return False


def _spec(
    command: Command,
    folder: SessionFolder,
    enclosure: Enclosure,
    limits: CommandLimits,
    relay: Relay | None,
    status_fd: int,
) -> dict[str, object]:
    inside = enclosure.has_mounts
    return {
        "argv": list(command.argv),
        "stdin": command.stdin,
        "status_fd": status_fd,
        "level": str(enclosure.level),
        "uid": folder.uid,
        "kept_capabilities": 0 if inside else _kept_capabilities(folder, enclosure),
        "work": WORK if inside else str(folder.work),
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
        "file_bytes": limits.disk_bytes,
        "relay_socket": f"{RUN}/{SOCKET}" if inside and relay is not None else None,
        "relay_port": 0 if relay is None else relay.port,
        "connect_ports": [] if relay is None else [relay.port],
        "readable": [*enclosure.readable, "/proc", str(folder.run)],
        "writable": [HOME, WORK] if inside else [str(folder.home), str(folder.work), *_DEVICES],
    }


def _kept_capabilities(folder: SessionFolder, enclosure: Enclosure) -> int:
    """The capability to enter closed folders, where an unnamed user could not reach what it needs otherwise."""
    if folder.uid is None:
        return 0
    places = (*(Path(path) for path in enclosure.readable), folder.work)
    above = {parent for path in places for parent in path.resolve().parents}
    return 0 if all(parent.stat().st_mode & 0o001 for parent in above) else syscalls.CAP_DAC_READ_SEARCH
