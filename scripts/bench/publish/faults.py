"""`weir bench publish --faults N`: publishes with a fault in each, under calls, and the weights of every token checked.

Three real engines run behind a router and a proxy; agents call without pause and retry nothing. Each version is
published by a process of its own, as a trainer is, in a way drawn at random; at a random moment of it an engine is
killed, hangs or loses its update, the bytes are damaged on their way, or the publisher is killed. What was killed is
started again, as its supervisor does. Afterwards the logprob of every recorded token is computed from the weights of
the version that the record names: a token that is far from it was sampled with other weights. Not here: faults of the
router, the proxy and the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import httpx

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.gate.agents import Crowd
from weir.scripts.bench.proxy.scripted_engine import make_model_folder
from weir.scripts.bench.publish.engines import Engines
from weir.scripts.bench.publish.publisher import BY_BUCKETS, WAYS, Publishers, write_versions
from weir.scripts.bench.publish.sampled_weights import count_wrong_tokens
from weir.scripts.bench.random_model import write_random_model
from weir.scripts.bench.servers import proxy_server
from weir.scripts.launch.fleet import router_server
from weir.scripts.launch.servers import free_port, running
from weir.scripts.launch.settings import RouterConfig

FAULTS = ("engine killed", "engine hangs", "update lost", "bytes damaged", "publisher killed")
KEY = "control-key-of-the-bench"
NUM_ENGINES = 3
NUM_MODELS = 4  # version N has the weights of model N modulo 4
AGENTS = 2
MOST_TOKENS = 24
MOST_HANG_S = 2.0
MOST_TRIES = 20  # of one version, without a fault
CATCH_UP_LIMIT_S = 120.0


def main(publishes: int, seed: int) -> None:
    """Run the benchmark; prints a line for each publish, then one JSON object."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-faults-") as name:
        print_figures(measure(Path(name), publishes, seed) | {"load": round(os.getloadavg()[0], 1)})


def measure(folder: Path, publishes: int, seed: int) -> dict[str, object]:
    """The figures; the store of the calls, and the models by their numbers, stay in the folder."""
    models = _models(folder)
    with Engines(models[0], folder, NUM_ENGINES) as engines, _proxy(models[0], folder, engines) as url:
        figures = asyncio.run(_run(folder, models, engines, url, publishes, random.Random(seed)))
    wrong, tokens, spanning = count_wrong_tokens(folder / "store", models)
    return figures | {
        "tokens": tokens,
        "tokens_of_wrong_weights": wrong,
        "calls_over_several_versions": spanning,
    }


async def _run(
    folder: Path, models: list[Path], engines: Engines, url: str, publishes: int, draw: random.Random
) -> dict[str, object]:
    crowd = Crowd(url, most_tokens=MOST_TOKENS)
    agents = [asyncio.create_task(crowd.agent(number)) for number in range(AGENTS)]
    versions = write_versions(folder / "store", models, publishes)
    settings = {"engine_urls": engines.urls, "proxy_urls": [url], "router_url": engines.router_url, "control_key": KEY}
    with Publishers(folder / "store", **settings) as publishers:
        began_s, again = time.monotonic(), 0
        faults = [*FAULTS * (publishes // len(FAULTS) + 1)][:publishes]
        draw.shuffle(faults)
        for version, fault in zip(versions, faults, strict=True):
            again += await _publish(publishers, engines, version, fault, draw)
        seconds = time.monotonic() - began_s
        newest = await _caught_up(engines, str(publishes))
    caught_up_s = time.monotonic() - began_s - seconds
    crowd.stop = True
    await asyncio.gather(*agents)
    for error in crowd.errors:
        print(f"an agent saw: {error}")
    return {
        "publishes": publishes,
        "faults": dict(Counter(faults)),
        "published_again": again,
        "seconds": round(seconds, 1),
        "calls": len(crowd.answered),
        "client_errors": sum(crowd.errors.values()),
        "engines": NUM_ENGINES,
        "engines_on_the_newest": newest,
        "caught_up_s": round(caught_up_s, 1),
    }


async def _publish(publishers: Publishers, engines: Engines, version: Path, fault: str, draw: random.Random) -> int:
    """Publish with a fault, and without one until it is done; returns how often it was published again."""
    ways = WAYS if fault != "bytes damaged" else BY_BUCKETS
    way, engine = draw.choice(ways), draw.choice(engines.urls)
    delay_s = draw.uniform(0.0, median(publishers.took_s or [1.0]))
    process = publishers.start(version, way, damaged=fault == "bytes damaged")
    ending = asyncio.create_task(publishers.ended(process))
    await asyncio.sleep(delay_s)
    if fault == "publisher killed":
        process.kill()
    elif fault == "engine killed":
        await asyncio.to_thread(engines.kill_and_restart, engine)
    elif fault == "engine hangs":
        await engines.hang(engine, draw.uniform(0.2, MOST_HANG_S))
    elif fault == "update lost":
        await _lose_update(engine)
    done, again = await ending, 0
    print(f"{version.name} by {way}: {fault} after {delay_s * 1000:.0f} ms, {'published' if done else 'not published'}")
    while not done:
        if (again := again + 1) > MOST_TRIES:
            raise RuntimeError(f"version {version.name} is not published after {MOST_TRIES} tries")
        done = await publishers.ended(publishers.start(version, "auto", damaged=False))
    return again


async def _lose_update(engine: str) -> None:
    """The engine forgets what has arrived so far, and refuses the rest."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        with contextlib.suppress(httpx.HTTPError):
            await http.post(f"{engine}/end_weight_update", json={"discard": True})


async def _caught_up(engines: Engines, newest: str) -> int:
    """How many engines serve the newest version and are in rotation, once all do or the limit is over."""
    deadline = time.monotonic() + CATCH_UP_LIMIT_S
    while True:
        served = await engines.versions_in_rotation()
        on_it = sum(version == newest for version in served.values())
        if on_it == len(engines.urls) or time.monotonic() > deadline:
            return on_it
        await asyncio.sleep(0.2)


def _models(folder: Path) -> list[Path]:
    from tokenizers import Tokenizer

    models = [make_model_folder(folder / f"model-{seed}") for seed in range(NUM_MODELS)]
    vocabulary = Tokenizer.from_file(str(models[0] / "tokenizer.json")).get_vocab_size()
    for seed, model in enumerate(models):
        write_random_model(model, seed=seed, width=64, layers=2, vocabulary=vocabulary)
    return models


@contextlib.contextmanager
def _proxy(model: Path, folder: Path, engines: Engines) -> Iterator[str]:
    """A router over the engines, and a proxy before it."""
    router = RouterConfig(port=free_port(), prometheus_port=free_port())
    engines.router_url = f"http://127.0.0.1:{router.port}"
    port = free_port()
    environment = {"WEIR_PROXY__CONTROL_KEY": KEY, "WEIR_PROXY__ENGINE_CHECK_S": "0.3"}
    proxy = proxy_server(
        "proxy", model, engines.router_url, folder / "store", port=port, folder=folder, environment=environment
    )
    with running([router_server(router, engines.urls, folder)]), running([proxy]):
        yield f"http://127.0.0.1:{port}"
