"""`weir bench engine`: tokens per second of the embedded engine, compared with a bare decode loop over the same model.

The engine runs as a process of its own and gets n requests at a time over real sockets. The bare loop is the least
that generates tokens: transformers' model, a batch of equal lengths, a KV cache, sampling, and the logprob of each
token; of transformers' dynamic and static cache the faster one counts. Both alternate within one run; each figure is
the median of the rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.random_model import VOCABULARY, write_random_model
from weir.scripts.bench.servers import COMMAND, module_server
from weir.scripts.launch.servers import Server, free_port, running

BATCHES = (1, 8, 32)
ROUNDS = 5
PROMPT_TOKENS = 64
NEW_TOKENS = 192


def main() -> None:
    """Run the benchmark; prints a line for each batch size, then one JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        model_path = Path(folder) / "model"
        write_random_model(model_path)
        engine = _engine_server(model_path)
        with running([engine]):
            figures = _measure(model_path, (engine.ready_url or "").removesuffix("/health"))
    print_figures(figures)


def _measure(model_path: Path, url: str) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model: Any = AutoModelForCausalLM.from_pretrained(str(model_path), dtype=torch.float32)
    figures: dict[str, float] = {}
    for batch in BATCHES:
        bare: dict[str, list[float]] = {"dynamic": [], "static": []}
        engine: list[float] = []
        asyncio.run(_ask_engine(url, batch))  # warm-up
        for _ in range(ROUNDS):
            for kind, seen in bare.items():
                seen.append(_bare_loop(model, batch, kind))
            engine.append(asyncio.run(_ask_engine(url, batch)))
        bare_rate = max(statistics.median(seen) for seen in bare.values())
        rate = statistics.median(engine)
        figures |= {f"tok_s_b{batch}": round(rate, 1), f"bare_b{batch}": round(bare_rate, 1)}
        figures[f"ratio_b{batch}"] = round(rate / bare_rate, 3)
        print(
            f"batch {batch:>2}: engine {rate:7.0f} tokens/s · bare loop {bare_rate:7.0f} · ratio {rate / bare_rate:.2f}"
        )
    return figures


def _engine_server(model_path: Path) -> Server:
    port = free_port()
    arguments = ["engine", "--model", str(model_path), "--port", str(port)]
    return module_server("engine", COMMAND, arguments, port=port, folder=model_path.parent)


def _prompts(batch: int) -> list[list[int]]:
    return [[(7 * row + 13 * place) % VOCABULARY for place in range(PROMPT_TOKENS)] for row in range(batch)]


async def _ask_engine(url: str, batch: int) -> float:
    """Tokens per second of `batch` requests sent at once, from the first byte sent to the last received."""
    import aiohttp

    sampling = {"temperature": 1.0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}

    async def ask(prompt: list[int]) -> int:
        body = {"input_ids": prompt, "sampling_params": sampling, "return_logprob": True}
        async with client.post(f"{url}/generate", json=body) as answer:
            found: dict[str, Any] = await answer.json()
            return len(found["output_ids"])

    async with aiohttp.ClientSession() as client:
        started = time.perf_counter()
        counts = await asyncio.gather(*(ask(prompt) for prompt in _prompts(batch)))
        return sum(counts) / (time.perf_counter() - started)


def _bare_loop(model: Any, batch: int, kind: str) -> float:
    """Tokens per second of a bare decode loop over `batch` prompts of equal length, prefill included."""
    import torch
    from transformers import DynamicCache, StaticCache

    ids = torch.tensor(_prompts(batch))
    total = PROMPT_TOKENS + NEW_TOKENS
    with torch.inference_mode():
        started = time.perf_counter()
        cache = DynamicCache() if kind == "dynamic" else StaticCache(config=model.config, max_cache_len=total)
        drawn = []
        logits = model(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1]
        for place in range(NEW_TOKENS):
            logprobs = logits.log_softmax(dim=-1)
            tokens = torch.multinomial(logprobs.exp(), 1)
            drawn.append((tokens.tolist(), logprobs.gather(1, tokens).tolist()))
            if place + 1 < NEW_TOKENS:
                logits = model(tokens, past_key_values=cache).logits[:, -1]
        return batch * NEW_TOKENS / (time.perf_counter() - started)
