"""`weir bench gate`: weight updates under agents with calls in flight, then thousands of calls held and released.

Two scripted engines with ledgers run behind the real sglang-router; the proxy is a process, agents use real sockets,
and a process of its own publishes as a round does. Afterwards every record is compared with the ledgers: ids, logprobs
and versions, none missing, none twice. Engines are not measured, nor loading, which takes a fixed time. The held calls
meet engines with few slots, which do a known amount of work in a known time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.scripts.bench.figures import percentile, print_figures
from weir.scripts.bench.processes import busy_processes, rss_bytes_of
from weir.store.clock import now_us

LOAD_S = 0.5
BETWEEN_S = 0.8  # between two updates
KEY = "control-key-of-the-bench"
NUM_ENGINES = 2
AGENT_SLOTS = 1024  # of an engine: all agents fit
HELD_SLOTS = 8
WARM_CALLS = 64  # before memory is measured
SPARE_FILES = 1500  # beside those of held calls: connections to the router, logs
WARM_UPDATES = 8  # after these, growth of memory is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The start and end of one publish, in unix microseconds."""

    started_us: int
    finished_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Addresses and files of the running servers."""

    proxy_url: str
    router_url: str
    engine_urls: list[str]
    root: Path
    ledgers: list[Path]
    proxy_pid: int


def main(agents: int, updates: int, held: int, hold_s: float, workers: int, load: int) -> None:
    """Run the benchmark beside `load` busy processes; prints lines for people, then one JSON object.

    Raises UsageError where the process may not open enough files.
    """
    from weir.proxy.http.sockets import raise_file_limit
    from weir.scripts.launch.errors import UsageError

    files = raise_file_limit()
    if files < held + SPARE_FILES:
        raise UsageError(
            f"{held} calls at once need {held + SPARE_FILES} open files and this process may have {files}; "
            "raise `ulimit -Hn`, or lower --held"
        )
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name, busy_processes(load):
        folder = Path(name)
        with running_stack(folder / "updates", workers, AGENT_SLOTS) as stack:
            figures = asyncio.run(_updates(stack, agents, updates))
        with running_stack(folder / "held", workers, HELD_SLOTS) as stack:
            figures |= asyncio.run(_held(stack, held, hold_s))
    print_figures({"load": load, **figures})


@contextlib.contextmanager
def running_stack(folder: Path, workers: int, slots: int, num_engines: int = NUM_ENGINES) -> Iterator[Stack]:
    """Start engines, router and proxy; they are stopped at the end of the block."""
    from tokenizers import Tokenizer

    from weir.scripts.bench.proxy.scripted_engine import make_model_folder
    from weir.scripts.bench.servers import module_server, proxy_server
    from weir.scripts.launch.fleet import router_server
    from weir.scripts.launch.servers import free_port, running
    from weir.scripts.launch.settings import RouterConfig

    folder.mkdir()
    model = make_model_folder(folder / "model")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    end = tokenizer.encode("<|im_end|>").ids[0]
    ports = [free_port() for _ in range(num_engines)]
    ledgers = [folder / f"ledger-{port}.jsonl" for port in ports]
    engines = [
        module_server(
            f"engine-{port}",
            "weir.scripts.bench.gate.engine",
            [str(port), str(ledger), str(LOAD_S), str(slots), str(end), str(end)],
            port=port,
            folder=folder,
        )
        for port, ledger in zip(ports, ledgers, strict=True)
    ]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    router = RouterConfig(port=free_port(), prometheus_port=free_port())
    port = free_port()
    proxy = proxy_server(
        "proxy",
        model,
        f"http://127.0.0.1:{router.port}",
        folder / "store",
        port=port,
        folder=folder,
        environment={
            "WEIR_PROXY__CONTROL_KEY": KEY,
            "WEIR_PROXY__WORKERS": str(workers),
            "WEIR_PROXY__STITCH_MEMORY_BYTES": str(2**24),  # full within the first updates: later growth is a leak
            "WEIR_PROXY__MAX_CONCURRENT": str(SPARE_FILES // 2),
            "WEIR_PROXY__MAX_QUEUED": "65536",
        },
    )
    with running(engines), running([router_server(router, urls, folder)]), running([proxy]) as processes:
        yield Stack(
            proxy_url=f"http://127.0.0.1:{port}",
            router_url=f"http://127.0.0.1:{router.port}",
            engine_urls=urls,
            root=folder / "store",
            ledgers=ledgers,
            proxy_pid=processes[0].pid,
        )


async def _updates(stack: Stack, num_agents: int, num_updates: int) -> dict[str, float]:
    from weir.scripts.bench.gate.agents import Crowd
    from weir.scripts.bench.gate.ledger import compare

    crowd = Crowd(stack.proxy_url)
    agents = [asyncio.create_task(crowd.agent(number)) for number in range(num_agents)]
    updates: list[Update] = []
    warm_mb = 0.0
    async for update in _publishes(stack, num_updates):
        updates.append(update)
        if len(updates) == min(WARM_UPDATES, num_updates):
            warm_mb = rss_bytes_of(stack.proxy_pid) / 2**20
    growth_mb = rss_bytes_of(stack.proxy_pid) / 2**20 - warm_mb
    crowd.stop = True
    await asyncio.gather(*agents)
    found = compare(stack.root, stack.ledgers, set(crowd.answered))
    over_ms = _over_load_ms(found.holds, updates)
    figures = {
        "agents": num_agents,
        "updates": len(updates),
        "calls": len(crowd.answered),
        "client_errors": len(crowd.errors),
        "token_mismatches": found.mismatches,
        "tokens": found.tokens,
        "spanning_calls": found.spanning,
        "hold_p50_over_load_ms": round(percentile(over_ms, 50), 1),
        "hold_p99_over_load_ms": round(percentile(over_ms, 99), 1),
        "publish_over_load_ms": round(percentile([_publish_over_load_ms(update) for update in updates], 50), 1),
        "rss_growth_mb": round(growth_mb, 1),
    }
    for error, number in crowd.errors.most_common(5):
        print(f"{number} x {error}", flush=True)
    print(
        f"{num_agents} agents, {len(updates)} updates of {LOAD_S:g} s: {figures['calls']} calls, "
        f"{found.spanning} with several versions, {len(crowd.errors)} errors, {found.mismatches} mismatches in "
        f"{found.tokens} tokens, held {figures['hold_p99_over_load_ms']} ms beyond the load at p99",
        flush=True,
    )
    return figures


async def _publishes(stack: Stack, number: int) -> Any:
    """Run the publisher as a process; yields each update as it ends."""
    arguments = [str(stack.root), str(number), stack.proxy_url, *stack.engine_urls]
    publisher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weir.scripts.bench.gate.run", *arguments), stdout=asyncio.subprocess.PIPE
    )
    assert publisher.stdout is not None
    async for line in publisher.stdout:
        yield Update(**json.loads(line))
    if await publisher.wait():
        raise RuntimeError("the publisher failed; its traceback is above")


def publish_all(root: Path, number: int, proxy_url: str, engine_urls: list[str]) -> None:
    """Run as the publisher: publish every version by the code of a round, and print its times as JSON."""
    from weir.store.catalog.catalog import Catalog
    from weir.store.config import StoreConfig
    from weir.trainer.publishing.publish import publish
    from weir.trainer.settings.config import TrainerConfig

    catalog = Catalog.open(StoreConfig(root=root))
    config = TrainerConfig(proxy_urls=[proxy_url], engine_urls=engine_urls)
    for version in range(1, number + 1):
        time.sleep(BETWEEN_S)
        started_us = now_us()
        report = publish(root, version, config, KEY, catalog)
        assert report.serving == engine_urls, report
        print_figures({"started_us": started_us, "finished_us": now_us()})
    catalog.close()


async def _held(stack: Stack, number: int, hold_s: float) -> dict[str, float]:
    """Make `number` calls at a closed gate, and open it after `hold_s`."""
    from weir.scripts.bench.gate.agents import Control
    from weir.scripts.bench.gate.engine import STEP_S
    from weir.scripts.bench.gate.herd import Herd, found_in

    herd = Herd(stack.proxy_url)
    await asyncio.gather(*(herd.call(each) for each in range(WARM_CALLS)))
    async with Control(stack.proxy_url, KEY) as control:
        await control.pause()
        before_bytes = rss_bytes_of(stack.proxy_pid)
        calls = [asyncio.create_task(herd.call(each)) for each in range(number)]
        await control.wait_held(number)
        await asyncio.sleep(hold_s)
        held_kb = (rss_bytes_of(stack.proxy_pid) - before_bytes) / 1024 / number
        released_s = time.monotonic()
        await control.resume()
        ended = await asyncio.gather(*calls)
    seconds = time.monotonic() - released_s
    found = found_in(stack.root, stack.ledgers)
    work_s = number * STEP_S / (NUM_ENGINES * HELD_SLOTS)
    first_s = percentile([held.first_byte_s - released_s for held in ended if held.answered], 99)
    answered = sum(held.answered for held in ended)
    print(
        f"{number} calls held for {hold_s:g} s: {held_kb:.1f} KB each, {answered} answered {seconds:.1f} s after, "
        f"{found.generated_twice} generated twice, order off by {100 * found.displaced_max:.1f} % at most, "
        f"work of {work_s:.1f} s",
        flush=True,
    )
    return {
        "held": number,
        "held_answered": answered,
        "held_generated_twice": found.generated_twice,
        "held_order_p99": round(found.displaced_p99, 4),
        "held_order_max": round(found.displaced_max, 4),
        "held_kb_per_call": round(held_kb, 1),
        "held_drain_s": round(seconds, 2),
        "held_work_s": round(work_s, 2),
        "held_first_byte_p99_over_work": round(first_s / work_s, 3),
    }


def _over_load_ms(holds: list[tuple[int, int, int]], updates: list[Update]) -> list[float]:
    """Milliseconds that each call was held beyond the loading time, averaged over the updates that it met."""
    over = []
    for started_us, finished_us, held_us in holds:
        met = sum(started_us <= update.finished_us and update.started_us <= finished_us for update in updates)
        over.append(held_us / 1e3 / max(met, 1) - LOAD_S * 1e3)
    return over


def _publish_over_load_ms(update: Update) -> float:
    return (update.finished_us - update.started_us) / 1e3 - LOAD_S * 1e3


if __name__ == "__main__":
    publish_all(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
