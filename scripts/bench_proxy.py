"""What the proxy costs: CPU per call, added latency and throughput, at several concurrencies.

A scripted engine answers 256 output tokens with their logprobs at once, behind the real sglang-router. The same calls
go straight to the router's /generate and through the proxy (which renders, parses and records them), in turns within
one run. CPU is the run time of all threads of the proxy process, as the kernel accounts it. Not measured here: engines.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUM_OUTPUT = 256
CONCURRENCIES = {1: 300, 16: 1600, 64: 1920}  # calls of each kind at each
TURNS = 4  # the two ways alternate this often
MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
TEXT = (
    "Write a Triton kernel that adds two vectors. import triton import triton.language as tl "
    "def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr): mask = offsets < n "
)

Ask = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one way cost at one concurrency."""

    latencies_ms: list[float]
    seconds: float
    cpu_us: float  # of the proxy, in all


def main() -> None:
    """Run the benchmark; prints lines for people, then one JSON object."""
    from weir.scripts.fleet import router_server
    from weir.scripts.servers import Server, free_port, running
    from weir.scripts.settings import RouterConfig

    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        model = make_model_folder(folder / "model")
        engine_port, proxy_port = free_port(), free_port()
        router = RouterConfig(port=free_port(), prometheus_port=free_port())
        router_url = f"http://127.0.0.1:{router.port}"
        engine = Server(
            name="engine",
            argv=[sys.executable, "-m", "weir.scripts.bench_proxy", "engine", str(engine_port), str(model)],
            ready_url=f"http://127.0.0.1:{engine_port}/health",
            log_path=folder / "engine.log",
        )
        flags = ["--model", str(model), "--upstream", router_url, "--port", str(proxy_port)]
        proxy = Server(
            name="proxy",
            argv=[sys.executable, "-m", "weir.scripts.cli", "proxy", *flags, "--root", str(folder / "store")],
            ready_url=f"http://127.0.0.1:{proxy_port}/readyz",
            log_path=folder / "proxy.log",
        )
        with (
            running([engine]),
            running([router_server(router, [f"http://127.0.0.1:{engine_port}"], folder)]),
            running([proxy]) as processes,
        ):
            figures = asyncio.run(_measure(router_url, f"http://127.0.0.1:{proxy_port}", processes[0].pid, model))
    print(json.dumps(figures))


def make_model_folder(folder: Path) -> Path:
    """A tokenizer with Qwen3's markers and a configuration; there are no weights, nobody loads any."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in MARKERS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "max_position_embeddings": 32768}))
    return folder


def serve_engine(port: int, model: Path) -> None:
    """The scripted engine: one answer for every call, encoded once."""
    import uvicorn

    answer = json.dumps(_scripted_answer(model)).encode()
    info = json.dumps({"model_path": "scripted", "served_model_name": "weir", "tp_size": 1, "dp_size": 1}).encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message: MutableMapping[str, Any] = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
        body = answer if scope["path"] == "/generate" else info
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, lifespan="off", log_level="warning")


def _scripted_answer(model: Path) -> dict[str, Any]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    end: int = tokenizer.encode("<|im_end|>").ids[0]
    ids: list[int] = [*tokenizer.encode(TEXT * 10).ids[: NUM_OUTPUT - 1], end]
    meta = {
        "id": "scripted",
        "finish_reason": {"type": "stop", "matched": ids[-1]},
        "prompt_tokens": 300,
        "completion_tokens": len(ids),
        "cached_tokens": 0,
        "weight_version": "1",
        "output_token_logprobs": [[-0.123456789 * (i % 17), n, None] for i, n in enumerate(ids)],
    }
    return {"text": tokenizer.decode(ids), "output_ids": ids, "meta_info": meta}


async def _measure(router_url: str, proxy_url: str, proxy_pid: int, model: Path) -> dict[str, float]:
    import aiohttp

    figures: dict[str, float] = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        def posting(url: str, body: Callable[[int], bytes]) -> Ask:
            async def ask(number: int) -> None:
                headers = {"content-type": "application/json"}
                async with session.post(url, data=body(number), headers=headers) as response:
                    data = await response.read()
                    assert response.status == 200, data[:300]

            return ask

        direct = posting(f"{router_url}/generate", lambda _: _generate_body())
        proxied = posting(f"{proxy_url}/v1/chat/completions", _chat_body)
        await _load(proxied, proxy_pid, 16, 200)
        await _load(direct, proxy_pid, 16, 200)
        for concurrency, num_calls in CONCURRENCIES.items():
            await _compare(figures, direct, proxied, proxy_pid, concurrency, num_calls)
        async with session.get(f"{proxy_url}/metrics") as response:
            text = await response.text()
    figures["lost"] = float(text.split("weir_records_lost_total ")[-1].split()[0])
    return figures


async def _compare(
    figures: dict[str, float], direct: Ask, proxied: Ask, proxy_pid: int, concurrency: int, num_calls: int
) -> None:
    straight: list[Round] = []
    through: list[Round] = []
    for _ in range(TURNS):
        straight.append(await _load(direct, proxy_pid, concurrency, num_calls // TURNS))
        through.append(await _load(proxied, proxy_pid, concurrency, num_calls // TURNS))
    name = f"c{concurrency}"
    figures[f"tokens_cpu_us_{name}"] = round(sum(r.cpu_us for r in through) / num_calls, 1)
    for share in (50, 99):
        added = _percentile(through, share) - _percentile(straight, share)
        figures[f"added_p{share}_ms_{name}"] = round(added, 3)
    figures[f"requests_per_s_{name}"] = round(num_calls / sum(r.seconds for r in through), 1)
    print(
        f"concurrency {concurrency}: {figures[f'tokens_cpu_us_{name}']:.0f} us CPU a call, "
        f"+{figures[f'added_p50_ms_{name}']:.2f} ms at p50, +{figures[f'added_p99_ms_{name}']:.2f} ms at p99, "
        f"{figures[f'requests_per_s_{name}']:.0f} calls/s",
        flush=True,
    )


async def _load(ask: Ask, proxy_pid: int, concurrency: int, num_calls: int) -> Round:
    """Keep `concurrency` calls going until `num_calls` are done."""
    numbers = iter(range(num_calls))
    latencies_ms: list[float] = []

    async def caller() -> None:
        for number in numbers:
            started = time.perf_counter()
            await ask(number)
            latencies_ms.append((time.perf_counter() - started) * 1e3)

    cpu_us, started = _cpu_us(proxy_pid), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(concurrency)))
    return Round(latencies_ms=latencies_ms, seconds=time.perf_counter() - started, cpu_us=_cpu_us(proxy_pid) - cpu_us)


def _cpu_us(pid: int) -> float:
    """Time that the threads of a process have run, in microseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e3


def _percentile(rounds: list[Round], share: int) -> float:
    latencies = sorted(latency for r in rounds for latency in r.latencies_ms)
    return latencies[min(len(latencies) - 1, len(latencies) * share // 100)]


def _chat_body(number: int) -> bytes:
    """About 1.5 KB; no two alike."""
    messages = [{"role": "system", "content": TEXT * 3}, {"role": "user", "content": f"{number}: {TEXT * 4}"}]
    return json.dumps({"model": "weir", "messages": messages, "max_tokens": 1024}).encode()


def _generate_body() -> bytes:
    params = {"max_new_tokens": 1024, "temperature": 1.0}
    return json.dumps(
        {"rid": "bench", "input_ids": list(range(300)), "sampling_params": params, "return_logprob": True}
    ).encode()


if __name__ == "__main__":
    if sys.argv[1:2] == ["engine"]:
        serve_engine(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
