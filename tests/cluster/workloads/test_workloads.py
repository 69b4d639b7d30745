"""Episodes by law, from public traces and from recorded sessions."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.cluster.description import WorkloadSection, load_description
from weir.cluster.errors import ClusterInvalid, TraceInvalid
from weir.cluster.simulator.prefix_cache import BLOCK
from weir.cluster.workloads.by_kind import arrivals, samples
from weir.cluster.workloads.sessions import read_store
from weir.cluster.workloads.traces import read_azure, read_mooncake
from weir.store.config import StoreConfig

CLUSTERS = Path(__file__).parents[3] / "recipes" / "clusters"


def lengths(section: WorkloadSection, number: int = 20_000) -> np.ndarray[Any, Any]:
    return np.array([sum(episode.outputs) for episode in itertools.islice(samples(section), number)])


def test_log_normal_lengths_have_their_median_and_tail() -> None:
    found = lengths(WorkloadSection(kind="lognormal", median=500, spread=0.99, limit=100_000))
    assert np.median(found) == pytest.approx(500, rel=0.03)
    assert np.percentile(found, 99) / np.median(found) == pytest.approx(10, rel=0.1)


def test_pareto_lengths_have_their_median_and_limit() -> None:
    found = lengths(WorkloadSection(kind="pareto", median=500, spread=1.5, limit=8192))
    assert np.median(found) == pytest.approx(500, rel=0.03)
    assert found.max() == 8192


def test_agents_sessions_end_at_the_limit_of_their_context() -> None:
    section = WorkloadSection(kind="agents", prompt=1000, median=300, limit=16_384, turns=20, result=900, think_s=2)
    episodes = list(itertools.islice(samples(section), 2000))
    assert max(episode.tokens for episode in episodes) <= 16_384
    assert np.mean([len(episode.outputs) for episode in episodes]) > 5
    assert all(episode.thinks_s[0] == 0 for episode in episodes)


def test_a_mooncake_trace_is_read() -> None:
    episodes = read_mooncake(CLUSTERS / "mooncake-sample.jsonl")
    assert len(episodes) == 60
    assert (episodes[0].inputs, episodes[0].outputs, episodes[0].arrival_s) == ((9302.0,), (305.0,), 0.0)
    assert episodes[1].arrival_s == pytest.approx(0.268)
    assert all(not episode.prefix for episode in episodes)


def test_the_blocks_of_a_mooncake_trace_say_what_its_prompts_share(tmp_path: Path) -> None:
    path = str(CLUSTERS / "mooncake-sample.jsonl")
    section = WorkloadSection(kind="mooncake", path=path, shared_prefixes=True)
    episodes = list(arrivals(section))
    assert [len(episode.prefix) for episode in episodes] == [math.ceil(sum(e.inputs) / BLOCK) for e in episodes]
    assert len({episode.prefix[0] for episode in episodes}) == 1
    assert len({episode.prefix[:2] for episode in episodes if len(episode.prefix) > 2}) > 5
    assert next(samples(section)) == episodes[0]
    wrong = tmp_path / "trace"
    wrong.write_text('{"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": ["a"]}')
    with pytest.raises(TraceInvalid, match="trace:1 is no line of a Mooncake trace"):
        read_mooncake(wrong, prefixes=True)
    for read in (samples, arrivals):
        with pytest.raises(ClusterInvalid, match="'azure' does not say it"):
            read(WorkloadSection(kind="azure", path=path, shared_prefixes=True))
    with pytest.raises(ClusterInvalid, match="'lognormal' does not say it"):
        samples(WorkloadSection(shared_prefixes=True))


def test_an_azure_trace_is_read() -> None:
    episodes = read_azure(CLUSTERS / "azure-sample.csv")
    assert len(episodes) == 60
    assert (episodes[1].inputs, episodes[1].outputs) == ((1798.0,), (101.0,))
    assert episodes[1].arrival_s == pytest.approx(0.652767)


def test_what_is_no_trace_is_refused_with_its_line(tmp_path: Path) -> None:
    wrong = tmp_path / "trace"
    wrong.write_text('{"timestamp": 1, "input_length": 2, "output_length": 3}\n{"timestamp": 1}\n')
    with pytest.raises(TraceInvalid, match="trace:2 is no line of a Mooncake trace"):
        read_mooncake(wrong)
    wrong.write_text("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,4\n")
    with pytest.raises(TraceInvalid, match="trace:2 is no row of an Azure trace"):
        read_azure(wrong)
    with pytest.raises(ClusterInvalid, match="'lognormal' has no arrival times"):
        arrivals(WorkloadSection())
    with pytest.raises(ClusterInvalid, match="needs `path`"):
        samples(WorkloadSection(kind="azure"))


def test_recorded_sessions_keep_their_turns_lengths_and_think_times(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    first = make_call("c-1", [1] * 8, [2] * 4, session_id="s-1", started_us=1_000_000, finished_us=2_000_000)
    then = make_call(
        "c-2", [1] * 8 + [2] * 4 + [3] * 5, [4] * 6, session_id="s-1", started_us=3_500_000, finished_us=5_000_000
    )
    other = make_call("c-3", [7] * 3, [8] * 2, session_id="s-2", started_us=1_250_000, finished_us=1_500_000)
    record([first, then, other])
    one, two = read_store(config.root)
    assert (one.inputs, one.outputs, one.thinks_s) == ((8.0, 5.0), (4.0, 6.0), (0.0, 1.5))
    assert (two.inputs, two.arrival_s) == ((3.0,), 0.25)


def test_a_description_says_which_key_is_wrong(tmp_path: Path) -> None:
    text = (CLUSTERS / "32-h800-single-turn.toml").read_text()
    file = tmp_path / "cluster.toml"
    file.write_text(text.replace("max_staleness = 1", "max_stale = 1"))
    with pytest.raises(ClusterInvalid, match=r"rules\.max_stale: Extra inputs"):
        load_description(file)
    file.write_text(text.replace('kind = "h800"', 'kind = "h900"'))
    with pytest.raises(ClusterInvalid, match=r"no such device; \[devices\] has h800"):
        load_description(file)
    file.write_text(text.replace("memory_gb = 80", "memory_gb = 16"))
    with pytest.raises(ClusterInvalid, match="14 GB for weights and KV cache, and the weights take 15 GB"):
        load_description(file)
