"""`weir bench engine`: tokens per second of the embedded engine, compared with a bare decode loop over the same model.

The engine runs as a process of its own and gets n requests at a time over real sockets; so does SGLang, where the
settings describe its servers (`engine.kind`). The bare loop is the least that generates tokens: transformers' model, a
batch of equal lengths, a KV cache, sampling, and the logprob of each token; of transformers' dynamic and static cache
the faster one counts. All alternate within one run; each figure is the median of the rounds. Tokens per CPU second of
the servers' processes are the figures that other work on the same cores changes least.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from weir.engine.config import EngineConfig
from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.processes import cpu_us_of
from weir.scripts.bench.random_model import VOCABULARY, write_random_model
from weir.scripts.bench.servers import COMMAND, module_server
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.servers import Server, free_port, running
from weir.scripts.launch.sglang_engines import sglang_servers

BATCHES = (1, 8, 32)
PROMPT_TOKENS = 64
LONG_PROMPT, STREAMED = 4096, 2000  # tokens: a prompt that comes beside a stream, and that stream


def main(model: Path | None, settings: EngineConfig, *, rounds: int, new_tokens: int) -> None:
    """Run the benchmark; prints a line for each batch size, then one JSON object.

    Without a model folder a small random model is made. Raises `UsageError` where SGLang cannot be started, or where a
    stream is too short to measure.
    """
    with tempfile.TemporaryDirectory() as folder:
        model_path = model or Path(folder) / "model"
        if model is None:
            write_random_model(model_path)
        servers = [_engine_server(model_path, Path(folder))]
        if settings.kind == "sglang":
            servers.append(_sglang(model_path.absolute(), settings, Path(folder)))
        with running(servers, ready_timeout_s=settings.start_limit_s) as processes:
            served = [
                _Served(name=name, url=(server.ready_url or "").removesuffix("/health"), pid=process.pid)
                for name, server, process in zip(("engine", "sglang"), servers, processes, strict=False)
            ]
            figures = _measure(model_path, served, rounds, new_tokens)
    print_figures(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    name: str
    url: str
    pid: int

    def rates(self, batch: int, new_tokens: int) -> tuple[float, float]:
        """Tokens per second, and per second that its processes ran, for `batch` requests at once."""
        process = psutil.Process(self.pid)
        pids = [self.pid, *(child.pid for child in process.children(recursive=True))]
        before = cpu_us_of(pids)
        rate = asyncio.run(_ask_engine(self.url, batch, new_tokens))
        return rate, batch * new_tokens / (cpu_us_of(pids) - before) * 1e6


def _measure(model_path: Path, servers: list[_Served], rounds: int, new_tokens: int) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model: Any = AutoModelForCausalLM.from_pretrained(str(model_path), dtype=torch.float32)
    figures: dict[str, float] = {}
    for batch in BATCHES:
        bare: dict[str, list[tuple[float, float]]] = {"dynamic": [], "static": []}
        seen: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
        for server in servers:
            server.rates(batch, new_tokens)  # warm-up
        for _ in range(rounds):
            for kind, rates in bare.items():
                rates.append(_bare_loop(model, batch, kind, new_tokens))
            for server in servers:
                seen[server.name].append(server.rates(batch, new_tokens))
        fastest = max((_medians(rates) for rates in bare.values()), key=lambda rates: rates[1])
        served = {name: _medians(rates) for name, rates in seen.items()}
        figures |= _figures(batch, fastest, served)
        said = " · ".join(
            f"{name} {rate:7.1f} tokens/s ({cpu:.1f} a CPU second)" for name, (rate, cpu) in served.items()
        )
        print(
            f"batch {batch:>2}: {said} · bare loop {fastest[0]:7.1f} ({fastest[1]:.1f} a CPU second) · "
            f"ratio {served['engine'][0] / fastest[0]:.2f} ({served['engine'][1] / fastest[1]:.2f})"
        )
    if model.config.max_position_embeddings > LONG_PROMPT + STREAMED:
        for server in servers:
            gap_ms = asyncio.run(_longest_gap(server.url)) * 1e3
            print(
                f"{server.name}: longest gap of a stream while a prompt of {LONG_PROMPT} tokens comes: {gap_ms:.0f} ms"
            )
            figures[f"{server.name}_gap_ms"] = round(gap_ms, 1)
    return figures


def _medians(rates: Sequence[tuple[float, float]]) -> list[float]:
    return [statistics.median(kind) for kind in zip(*rates, strict=True)]


def _figures(batch: int, bare: Sequence[float], served: Mapping[str, Sequence[float]]) -> dict[str, float]:
    rate, per_cpu_s = served["engine"]
    figures = {
        f"tok_s_b{batch}": round(rate, 1),
        f"tok_cpu_s_b{batch}": round(per_cpu_s, 1),
        f"bare_b{batch}": round(bare[0], 1),
        f"bare_cpu_s_b{batch}": round(bare[1], 1),
        f"ratio_b{batch}": round(rate / bare[0], 3),
        f"cpu_ratio_b{batch}": round(per_cpu_s / bare[1], 3),
    }
    if "sglang" in served:
        rate, per_cpu_s = served["sglang"]
        figures |= {f"sglang_b{batch}": round(rate, 1), f"sglang_cpu_b{batch}": round(per_cpu_s, 1)}
    return figures


def _engine_server(model_path: Path, folder: Path) -> Server:
    port = free_port()
    arguments = ["engine", "--model", str(model_path), "--port", str(port)]
    return module_server("engine", COMMAND, arguments, port=port, folder=folder)


def _sglang(model_path: Path, settings: EngineConfig, folder: Path) -> Server:
    """SGLang as `weir up` starts it, on a free port."""
    config = settings.model_copy(update={"port": free_port()})
    url = f"http://{config.host}:{config.port}"
    [server] = sglang_servers(config, [url], model=model_path, name="weir", version="0", renders=False, logs=folder)
    return server


def _prompts(batch: int) -> list[list[int]]:
    return [[(7 * row + 13 * place) % VOCABULARY for place in range(PROMPT_TOKENS)] for row in range(batch)]


async def _ask_engine(url: str, batch: int, new_tokens: int) -> float:
    """Tokens per second of `batch` requests sent at once, from the first byte sent to the last received."""
    import aiohttp

    sampling = {"temperature": 1.0, "max_new_tokens": new_tokens, "ignore_eos": True}

    async def ask(prompt: list[int]) -> int:
        body = {"input_ids": prompt, "sampling_params": sampling, "return_logprob": True}
        async with client.post(f"{url}/generate", json=body) as answer:
            found: dict[str, Any] = await answer.json()
            return len(found["output_ids"])

    async with aiohttp.ClientSession() as client:
        async with client.post(f"{url}/flush_cache"):
            pass  # the bare loop computes its prompts anew as well
        started = time.perf_counter()
        counts = await asyncio.gather(*(ask(prompt) for prompt in _prompts(batch)))
        return sum(counts) / (time.perf_counter() - started)


async def _longest_gap(url: str) -> float:
    """Seconds of the longest silence of a stream, from when a long prompt is sent beside it until that is answered."""
    import aiohttp

    sampling = {"temperature": 1.0, "ignore_eos": True}
    long = {"input_ids": [(7 * place) % VOCABULARY for place in range(LONG_PROMPT)]}
    streamed = {"input_ids": _prompts(1)[0], "stream": True, "sampling_params": sampling | {"max_new_tokens": STREAMED}}

    async def ask() -> None:
        async with client.post(
            f"{url}/generate", json=long | {"sampling_params": sampling | {"max_new_tokens": 1}}
        ) as answer:
            await answer.read()

    async with aiohttp.ClientSession() as client, client.post(f"{url}/flush_cache"):
        pass  # else the cache would grow to that length for as many rows as the largest batch had
    async with aiohttp.ClientSession() as client, client.post(f"{url}/generate", json=streamed) as answer:
        seen, longest, asking = 0, 0.0, None
        before = time.perf_counter()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            seen, now = seen + 1, time.perf_counter()
            if asking is not None:
                longest = max(longest, now - before)
                if asking.done():
                    break
            before = now
            if seen == 5:
                asking = asyncio.create_task(ask())
        if asking is None or not asking.done():
            raise UsageError("the stream ended before the long prompt was answered: nothing was measured")
        await asking
        return longest


def _bare_loop(model: Any, batch: int, kind: str, new_tokens: int) -> tuple[float, float]:
    """Tokens per second, and per CPU second, of a bare decode loop over `batch` equally long prompts, with prefill."""
    import torch
    from transformers import DynamicCache, StaticCache

    ids = torch.tensor(_prompts(batch))
    total = PROMPT_TOKENS + new_tokens
    with torch.inference_mode():
        started, ran = time.perf_counter(), time.process_time()
        cache = DynamicCache() if kind == "dynamic" else StaticCache(config=model.config, max_cache_len=total)
        drawn = []
        logits = model(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1]
        for place in range(new_tokens):
            logprobs = logits.log_softmax(dim=-1)
            tokens = torch.multinomial(logprobs.exp(), 1)
            drawn.append((tokens.tolist(), logprobs.gather(1, tokens).tolist()))
            if place + 1 < new_tokens:
                logits = model(tokens, past_key_values=cache).logits[:, -1]
        num_tokens = batch * new_tokens
        return num_tokens / (time.perf_counter() - started), num_tokens / (time.process_time() - ran)
