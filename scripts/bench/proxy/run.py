"""`weir bench proxy`: CPU per call at each capture level, added latency, and the growth of a long conversation's turns.

A scripted engine behind the real sglang-router answers 128 tokens with logprobs. Conversations of four turns, each with
128 new prompt tokens, go through the proxy, which renders, parses and records them. Added latency is the difference to
the same number of calls sent straight to the router; both alternate within one run, and so does the floor: a proxy of
raw ASGI and aiohttp that does nothing (`floor.py`). With a peer, the same conversations and streams go through the peer
in the same run. CPU is that of the measured processes; engines are not measured.

`scaling_2` says how many times the calls of one worker two workers serve where each has a core of its own and engines
and clients have others: twice the CPU of a call with one worker over that with two.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.peer_environment import make_environment
from weir.scripts.bench.processes import with_children
from weir.scripts.bench.proxy.litellm import REQUIREMENT, litellm_server
from weir.scripts.bench.proxy.load import Cost, Load, latency_ms
from weir.scripts.bench.proxy.scripted_engine import make_model_folder, text_of
from weir.scripts.bench.servers import module_server, proxy_server
from weir.scripts.launch.fleet import router_server
from weir.scripts.launch.servers import Server, free_port, running
from weir.scripts.launch.settings import RouterConfig

NUM_PROMPT = 128  # new tokens a turn, of which the chat template takes about ten
CONCURRENCIES = {1: 400, 16: 3200, 64: 3200}  # calls at each
ALTERNATIONS = 4  # between the proxy and the router alone
NUM_STREAMS = 320
LONG = 100  # turns
NUM_LONG = 32  # conversations of that length
PEER_CALLS = 480
PEER_STREAMS = 96
SCALING_CALLS = 800

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Folders and addresses of the servers of one run."""

    folder: Path
    model: Path
    router_url: str
    proxy_port: int
    relay_port: int  # the proxy at level passthrough
    peer_port: int
    floor_port: int


def main(litellm: Path | None) -> None:
    """Run the benchmark; prints lines for people, then one JSON object. `litellm` is its environment's folder."""
    if litellm is not None:
        make_environment(litellm, [REQUIREMENT], program="litellm")
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        router = RouterConfig(port=free_port(), prometheus_port=free_port())
        stage = Stage(
            folder=folder,
            model=make_model_folder(folder / "model"),
            router_url=f"http://127.0.0.1:{router.port}",
            proxy_port=free_port(),
            relay_port=free_port(),
            peer_port=free_port(),
            floor_port=free_port(),
        )
        engine_port = free_port()
        engine = _engine(stage, engine_port)
        with running([engine]), running([router_server(router, [f"http://127.0.0.1:{engine_port}"], folder)]):
            figures = _measure_proxy(stage) | _measure_relay(stage) | _measure_scaling(stage)
            if litellm is not None:
                figures |= _measure_peer(stage, litellm, figures)
    print_figures(figures)


def _engine(stage: Stage, port: int) -> Server:
    arguments = [str(port), str(stage.model)]
    return module_server(
        "engine", "weir.scripts.bench.proxy.scripted_engine", arguments, port=port, folder=stage.folder
    )


def _floor(stage: Stage) -> Server:
    arguments = [str(stage.floor_port), stage.router_url]
    return module_server(
        "floor", "weir.scripts.bench.proxy.floor", arguments, port=stage.floor_port, folder=stage.folder
    )


def _proxy(stage: Stage, port: int, name: str, **settings: str) -> Server:
    return proxy_server(
        f"proxy-{name}",
        stage.model,
        stage.router_url,
        stage.folder / name,
        port=port,
        folder=stage.folder,
        environment={f"WEIR_PROXY__{setting.upper()}": value for setting, value in settings.items()},
    )


def _measure_proxy(stage: Stage) -> Figures:
    with running([_floor(stage)]) as floor, running([_proxy(stage, stage.proxy_port, "tokens")]) as processes:
        return asyncio.run(_at_level_tokens(stage, processes[0].pid, floor[0].pid))


def _measure_relay(stage: Stage) -> Figures:
    with running([_proxy(stage, stage.relay_port, "passthrough", level="passthrough")]) as processes:
        cost = asyncio.run(_conversations(stage, stage.relay_port, [processes[0].pid], CONCURRENCIES[16]))
    return {"passthrough_cpu_us_c16": _report("passthrough, concurrency 16", cost)}


def _measure_scaling(stage: Stage) -> Figures:
    """One worker and two, alternating."""
    ports = {number: free_port() for number in (1, 2)}
    costs: dict[int, list[float]] = {1: [], 2: []}
    with contextlib.ExitStack() as stack:
        pids = {}
        for number, port in ports.items():
            proxy = _proxy(stage, port, f"workers-{number}", workers=str(number))
            pids[number] = with_children(stack.enter_context(running([proxy]))[0].pid)
        for _ in range(ALTERNATIONS):
            for number, port in ports.items():
                cost = asyncio.run(_conversations(stage, port, pids[number], SCALING_CALLS))
                costs[number].append(cost.cpu_us_per_call)
    one_us, two_us = (statistics.median(costs[number]) for number in (1, 2))
    print(f"one worker: {one_us:.0f} us CPU a call, two: {two_us:.0f} us", flush=True)
    return {"workers2_cpu_us_c64": round(two_us, 1), "scaling_2": round(2 * one_us / two_us, 2)}


def _measure_peer(stage: Stage, environment: Path, ours: Figures) -> Figures:
    peer = litellm_server(environment, stage.router_url, stage.peer_port, stage.folder)
    with running([peer]) as processes:
        pids = [processes[0].pid]
        cost = asyncio.run(_conversations(stage, stage.peer_port, pids, PEER_CALLS))
        streams = asyncio.run(_peer_streams(stage, pids))
    theirs_us = _report("LiteLLM, concurrency 16", cost)
    streams_us = _report("LiteLLM, streams of 128 tokens, concurrency 16", streams)
    return {
        "litellm_cpu_us_c16": theirs_us,
        "litellm_cpu_ratio": round(theirs_us / ours["tokens_cpu_us_c16"], 1),
        "litellm_stream128_cpu_us_c16": streams_us,
        "litellm_stream_ratio": round(streams_us / ours["stream128_cpu_us_c16"], 1),
    }


async def _peer_streams(stage: Stage, pids: Sequence[int]) -> Cost:
    async with _client() as session:
        return await _load_of(stage, session, stage.peer_port, pids).streams(16, PEER_STREAMS)


async def _at_level_tokens(stage: Stage, pid: int, floor_pid: int) -> Figures:
    figures: Figures = {}
    async with _client() as session:
        load = _load_of(stage, session, stage.proxy_port, [pid])
        floor_url = f"http://127.0.0.1:{stage.floor_port}/generate"
        floor = Load(session=session, url=floor_url, pids=[floor_pid], text=load.text)
        await load.conversations(16, 400)
        for concurrency, num_calls in CONCURRENCIES.items():
            figures |= await _against_direct(stage, session, load, floor, concurrency, num_calls)
        streams = await load.streams(16, NUM_STREAMS)
        figures["stream128_cpu_us_c16"] = _report("streams of 128 tokens, concurrency 16", streams)
        figures |= await _long_conversations(load)
        async with session.get(f"http://127.0.0.1:{stage.proxy_port}/metrics") as response:
            text = await response.text()
    figures["lost"] = _metric(text, "weir_records_lost_total")
    return figures


async def _against_direct(
    stage: Stage, session: aiohttp.ClientSession, load: Load, floor: Load, concurrency: int, num_calls: int
) -> Figures:
    direct = Load(session=session, url=f"{stage.router_url}/generate", pids=load.pids, text=load.text)
    straight: list[Cost] = []
    through: list[Cost] = []
    least: list[Cost] = []
    for _ in range(ALTERNATIONS):
        least.append(await floor.posts(_generate_body(), concurrency, num_calls // ALTERNATIONS))
        straight.append(await direct.posts(_generate_body(), concurrency, num_calls // ALTERNATIONS))
        through.append(await load.conversations(concurrency, num_calls // ALTERNATIONS))
    cpu_us = round(sum(cost.cpu_us for cost in through) / num_calls, 1)
    floor_us = round(sum(cost.cpu_us for cost in least) / num_calls, 1)
    added = {share: round(latency_ms(through, share) - latency_ms(straight, share), 3) for share in (50, 99)}
    rate = round(num_calls / sum(cost.seconds for cost in through), 1)
    print(
        f"tokens, concurrency {concurrency}: {cpu_us:.0f} us CPU a call (floor {floor_us:.0f}), "
        f"+{added[50]:.2f} ms at p50, +{added[99]:.2f} ms at p99, {rate:.0f} calls/s",
        flush=True,
    )
    return {
        f"tokens_cpu_us_c{concurrency}": cpu_us,
        f"floor_cpu_us_c{concurrency}": floor_us,
        f"tokens_over_floor_c{concurrency}": round(cpu_us / floor_us, 2),
        f"added_p50_ms_c{concurrency}": added[50],
        f"added_p99_ms_c{concurrency}": added[99],
        f"requests_per_s_c{concurrency}": rate,
    }


async def _long_conversations(load: Load) -> Figures:
    """CPU of the second and of the last turn; medians of three sets of conversations."""
    second, last = [], []
    for _ in range(3):
        costs = await load.turns(NUM_LONG, LONG, 8)
        second.append(costs[1].cpu_us_per_call)
        last.append(costs[-1].cpu_us_per_call)
    second_us, last_us = statistics.median(second), statistics.median(last)
    print(f"turn 2: {second_us:.0f} us CPU, turn {LONG}: {last_us:.0f} us", flush=True)
    return {
        "turn2_cpu_us": round(second_us, 1),
        f"turn{LONG}_cpu_us": round(last_us, 1),
        f"turn{LONG}_over_turn2": round(last_us / second_us, 2),
    }


async def _conversations(stage: Stage, port: int, pids: Sequence[int], num_calls: int) -> Cost:
    async with _client() as session:
        load = _load_of(stage, session, port, pids)
        await load.conversations(16, min(400, num_calls // 4))
        return await load.conversations(16, num_calls)


def _load_of(stage: Stage, session: aiohttp.ClientSession, port: int, pids: Sequence[int]) -> Load:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return Load(session=session, url=url, pids=pids, text=text_of(NUM_PROMPT - 10, stage.model))


def _client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


def _report(what: str, cost: Cost) -> float:
    print(f"{what}: {cost.cpu_us_per_call:.0f} us CPU a call", flush=True)
    return round(cost.cpu_us_per_call, 1)


def _metric(text: str, name: str) -> float:
    """The sum of a metric's samples in Prometheus text."""
    families = text_string_to_metric_families(text)
    values = [sample.value for family in families for sample in family.samples if sample.name == name]
    assert values, f"no metric {name}"
    return sum(values)


def _generate_body() -> bytes:
    params = {"max_new_tokens": 1024, "temperature": 1.0}
    ids = list(range(2 * NUM_PROMPT))
    return json.dumps({"rid": "bench", "input_ids": ids, "sampling_params": params, "return_logprob": True}).encode()
