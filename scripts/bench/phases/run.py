"""`weir bench phases`: engines leave the rotation for training and return, under agents with calls in flight.

Three scripted engines with ledgers behind the real router and proxy; a policy of weir.cluster decides, and the code of
`weir train` carries out. Afterwards every record is compared with the ledgers, token by token.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path

from rich.console import Console

from weir.cluster.live.host import Host
from weir.cluster.policies.by_name import POLICIES
from weir.cluster.state import BOTH, Member, Settings, Tag
from weir.scripts.bench.figures import percentile, print_figures
from weir.scripts.bench.gate.ledger import compare
from weir.scripts.bench.gate.run import AGENT_SLOTS, KEY, LOAD_S, Stack, running_stack
from weir.scripts.bench.phases.agents import Crowd
from weir.scripts.bench.phases.world import TRAIN_S, BenchWorld
from weir.scripts.live.engines import Engines
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.settings.config import TrainerConfig

POLICY = "sync_colocated"  # it moves each member with both tags twice a round
NAMES = ("only", "both-1", "both-2")
SWITCHES_OF_ROUND = 4
WATCH_S = 0.2
WORKERS = 1


def main(agents: int, changes: int, only_json: bool) -> None:
    """Run the benchmark; prints a line for people, then one JSON object."""
    with (
        tempfile.TemporaryDirectory(prefix="weir-bench-") as name,
        running_stack(Path(name) / "phases", WORKERS, AGENT_SLOTS, len(NAMES)) as stack,
    ):
        figures = asyncio.run(_phases(stack, agents, changes))
    if not only_json:
        print(
            f"{figures['phase_changes']} phase changes under {agents} agents and a round's groups: "
            f"{figures['calls']} calls, {figures['client_errors']} errors, {figures['token_mismatches']} mismatches; "
            f"held {figures['hold_p99']} s at p99, of which a load takes {LOAD_S:g} s; a switch takes "
            f"{figures['switch_s']} s",
            flush=True,
        )
    print_figures(figures)


async def _phases(stack: Stack, agents: int, changes: int) -> dict[str, object]:
    store = StoreConfig(root=stack.root)
    catalog = Catalog.open(store)
    config = TrainerConfig(
        proxy_urls=[stack.proxy_url], engine_urls=stack.engine_urls, router_url=stack.router_url, control_key=KEY
    )
    engines = Engines(config, store, catalog, Console(quiet=True), None)
    rules = Settings(batch=max(1, agents // 2))
    async with Crowd(stack.proxy_url) as crowd:
        world = BenchWorld(engines, dict(zip(NAMES, stack.engine_urls, strict=True)), store, crowd)
        host = world.host = Host(POLICIES[POLICY], rules, world, weights=0, retry_s=1.0)
        for name in NAMES:
            host.join(Member(name=name, tags=BOTH if name != NAMES[0] else frozenset({Tag.ROLLOUT})))
        over = asyncio.Event()
        beside = [asyncio.create_task(_call_always(crowd, over)) for _ in range(agents)]
        watching = asyncio.create_task(world.watch(WATCH_S))
        await host.run(-(-changes // SWITCHES_OF_ROUND))
        watching.cancel()
        over.set()
        await asyncio.gather(*beside, world.drain())
        gate = await crowd.gate(KEY)
    await engines.close()
    catalog.close()
    found = compare(stack.root, stack.ledgers, set(crowd.answered))
    host.timeline.close(asyncio.get_running_loop().time())
    shares = host.timeline.shares()
    for text, number in [*crowd.errors.most_common(5), *((line, 1) for line in world.failures)]:
        print(f"{number} x {text}", flush=True)
    return {
        "agents": agents,
        "phase_changes": len(world.switches_s),
        "rounds": host.rounds,
        "calls": len(crowd.answered),
        "client_errors": crowd.errors.total(),
        "groups": len(world.trained),
        "groups_twice": sum(count > 1 for count in world.trained.values()),
        "groups_lost": world.num_lost,
        "gates_left_closed": int(gate != "open"),
        "member_failures": len(world.failures),
        "token_mismatches": found.mismatches,
        "tokens": found.tokens,
        "spanning_calls": found.spanning,
        "hold_p50": round(percentile(crowd.silences_s, 50), 3),
        "hold_p99": round(percentile(crowd.silences_s, 99), 3),
        "hold_max": round(max(crowd.silences_s, default=0.0), 3),
        "load_s": round(statistics.median(world.loads_s), 3),
        "engine_load_s": LOAD_S,
        "train_s": TRAIN_S,
        "switch_s": round(statistics.median(world.switches_s), 3),
        "idle_share": round(host.timeline.idle_share(), 3),
        "idle": {str(cause): round(share, 3) for cause, share in sorted(shares.items())},
    }


async def _call_always(crowd: Crowd, over: asyncio.Event) -> None:
    """Conversations of a product, which belong to no round."""
    while not over.is_set():
        await crowd.conversation()
