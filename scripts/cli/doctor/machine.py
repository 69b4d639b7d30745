"""Checks of this machine: Python, torch, a GPU, Triton, the sandbox, the disk, the ports, the store, the model.

Nothing is started and nothing is left behind.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from weir.scripts.cli.doctor.finding import Finding, found
from weir.scripts.launch.fleet import ROUTER_MODULES, found_model
from weir.scripts.launch.settings import Settings

ABOUT = "machine"
MIN_FREE_BYTES = 2 * 2**30
SYNCS = 20
SLOW_SYNC_MS = 20.0  # an answer waits for one group sync of the log
BLOCK = bytes(4096)


def machine_findings(settings: Settings) -> Iterator[Finding]:
    """Every check that needs no upstream."""
    yield found(ABOUT, "python", f"{platform.python_version()} at {sys.executable}", required=True)
    yield _torch()
    yield _gpu()
    yield _package("triton", "kernels are compiled and interpreted with it: pip install triton")
    yield _routers()
    yield _sandbox(settings)
    yield from _disk(settings)
    yield from _ports(settings)
    yield _store(settings)
    yield from _rendering(settings)


def _torch() -> Finding:
    return _package("torch", "the trainer and the embedded engine need it: pip install torch")


def _package(name: str, advice: str) -> Finding:
    try:
        return found(ABOUT, name, importlib.metadata.version(name), required=True)
    except importlib.metadata.PackageNotFoundError:
        return found(ABOUT, name, "", "not installed", advice, required=True)


def _gpu() -> Finding:
    try:
        import torch
    except ImportError:
        return found(ABOUT, "gpu", "", "unknown without torch", required=False)
    if not torch.cuda.is_available():
        advice = "kernels are judged in Triton's interpreter and compiled ahead of time for kernel_eval.target"
        return found(ABOUT, "gpu", "", f"none that torch {torch.__version__} can use", advice, required=False)
    names = {torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    return found(ABOUT, "gpu", f"{torch.cuda.device_count()} x {', '.join(sorted(names))}", required=False)


def _routers() -> Finding:
    there = [name for name, module in ROUTER_MODULES.items() if importlib.util.find_spec(module) is not None]
    problem = None if "sglang-router" in there else "sglang-router is not installed in this environment"
    return found(ABOUT, "routers", ", ".join(there), problem, "pip install sglang-router", required=False)


def _sandbox(settings: Settings) -> Finding:
    from weir.kernel_eval.errors import SandboxUnavailable
    from weir.kernel_eval.sandbox.containment import choose_level
    from weir.kernel_eval.sandbox.levels import SandboxLevel

    try:
        level = choose_level(settings.kernel_eval.sandbox, settings.kernel_eval.min_sandbox)
    except SandboxUnavailable as error:
        return found(ABOUT, "sandbox", "", str(error), required=True)
    problem = None if level is SandboxLevel.BUBBLEWRAP else f"{level.value}: candidates see more than they need"
    return found(ABOUT, "sandbox", level.value, problem, "install bubblewrap and allow user namespaces", required=False)


def _disk(settings: Settings) -> Iterator[Finding]:
    root = settings.store.folder
    place = next(path for path in (root, *root.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    problem = f"{free / 2**30:.1f} GiB free at {place}" if free < MIN_FREE_BYTES else None
    yield found(ABOUT, "disk", f"{free / 2**30:.1f} GiB free at {place}", problem, "make room", required=True)
    try:
        sync_ms = _sync_ms(place)
    except OSError as error:
        problem = f"cannot write to {place}: {error.strerror}"
        yield found(ABOUT, "fdatasync", "", problem, "set store.root to a folder of yours", required=True)
        return
    problem = f"{sync_ms:.1f} ms: every answer waits for one" if sync_ms > SLOW_SYNC_MS else None
    advice = "put store.root on a local disk"
    yield found(ABOUT, "fdatasync", f"{sync_ms:.2f} ms ({1e3 / sync_ms:.0f} a second)", problem, advice, required=False)


def _sync_ms(folder: Path) -> float:
    """Median time to append and sync one block, in milliseconds."""
    with tempfile.TemporaryFile(dir=folder) as file:
        times = []
        for _ in range(SYNCS):
            started = time.perf_counter()
            file.write(BLOCK)
            file.flush()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return max(1e-6, sorted(times)[SYNCS // 2] * 1e3)


def _ports(settings: Settings) -> Iterator[Finding]:
    servers = {
        "proxy": (settings.proxy.host, settings.proxy.port),
        "router": (settings.router.host, settings.router.port),
        "engine": (settings.engine.host, settings.engine.port),
        "kernel_eval": (settings.kernel_eval.host, settings.kernel_eval.port),
        "ui": (settings.ui.host, settings.ui.port),
    }
    for name, (host, port) in servers.items():
        problem = None if port == 0 or _is_free(host, port) else f"{host}:{port} is taken"
        advice = f"set {name}.port to another, unless that is Weir itself"
        yield found(ABOUT, f"port of {name}", f"{host}:{port} is free", problem, advice, required=False)


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _store(settings: Settings) -> Finding:
    from weir.store.errors import StoreError
    from weir.store.status import store_status

    store = settings.store
    if not store.catalog_url and not (store.folder / "catalog.sqlite").exists():
        return found(ABOUT, "store", f"none yet in {store.root}; it is made at the first start", required=True)
    try:
        status = store_status(store)
    except (StoreError, OSError) as error:
        return found(ABOUT, "store", "", str(error), "repair it, or name another by store.root", required=True)
    problem = f"{len(status.damaged)} damaged segments, {status.bytes_dropped} bytes" if status.damaged else None
    seen = f"{status.calls} calls, {status.sessions} sessions in {store.root}"
    return found(ABOUT, "store", seen, problem, "`weir store status` names them", required=False)


def _rendering(settings: Settings) -> Iterator[Finding]:
    """How the model's folder is rendered, where there is one and the proxy renders."""
    from weir.proxy.errors import SetupError
    from weir.proxy.rendering.opening import open_rendering

    folder = found_model(settings)
    if folder is None or settings.proxy.level not in ("tokens", "auto"):
        return
    try:
        rendering = open_rendering(folder, settings.model.name, settings.proxy)
    except SetupError as error:
        yield found("model", "renderer", "", str(error), required=True)
        return
    limited = rendering.inexact_turns()
    for subject, fact in rendering.facts().items():
        problem = fact if subject == "later turns" and limited else None
        yield found("model", subject, fact, problem, "or name a renderer in proxy.renderer", required=False)
