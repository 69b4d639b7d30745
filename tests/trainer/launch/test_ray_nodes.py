"""Ranks of a further machine that Ray starts: a cluster of two nodes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from support_servers import find_free_port

from weir.trainer.errors import TrainerError
from weir.trainer.launch.pool import RankPool
from weir.trainer.launch.ray_nodes import met_by_ray
from weir.trainer.settings.launch import LaunchConfig

ray = pytest.importorskip("ray")


@dataclass(frozen=True)
class Parents:
    """Asks every rank for its id and the names of the processes that it descends from."""

    def run(self, ranks: Any, held: dict[str, Any]) -> list[tuple[int, list[str]]]:
        """As `Request.run`."""
        own = psutil.Process()
        return ranks.gather((own.pid, [" ".join(parent.cmdline()) for parent in own.parents()]))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two nodes, without what only a driver needs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    with pytest.MonkeyPatch.context() as patched:  # for ranks, which unpickle the classes of tests
        patched.setenv("PYTHONPATH", str(Path(__file__).parents[2]) + os.pathsep + str(Path(__file__).parent))
        yield cluster.address
    cluster.shutdown()


def on_two(address: str, **more: Any) -> LaunchConfig:
    return LaunchConfig(nodes=2, by="ray", ray_address=address, timeout_s=120.0, **more)


def test_a_rank_runs_in_an_actor_and_one_that_is_killed_ends_all(address: str) -> None:
    with closing(RankPool(2, "cpu", on_two(address), resumed="the next start goes on")) as pool:
        (own, first), (other, second) = pool.call(Parents())
        assert not any("ray::" in parent for parent in first)
        assert any("ray::_Actor" in parent for parent in second)
        os.kill(other, signal.SIGKILL)
        with pytest.raises(TrainerError, match="the next start goes on"):
            pool.call(Parents())
    psutil.wait_procs([psutil.Process(pid) for pid in (own, other) if psutil.pid_exists(pid)], timeout=30)
    assert not psutil.pid_exists(own) and not psutil.pid_exists(other)


def test_a_cluster_of_too_few_machines_is_named_at_once(address: str) -> None:
    launch = LaunchConfig(nodes=3, by="ray", ray_address=address, timeout_s=120.0)
    with pytest.raises(TrainerError, match=r"has 1 machines with 1 CPU besides this one, and .*nodes = 3 needs 2"):
        RankPool(3, "cpu", launch, resumed="")


def test_an_address_at_which_nothing_listens_is_named() -> None:
    with pytest.raises(TrainerError, match=r"no Ray cluster at trainer\.launch\.ray_address = 127\.0\.0\.1:"):
        met_by_ray(on_two(f"127.0.0.1:{find_free_port()}"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"by": "ray", "ray_address": "10.0.0.1:6379"}, "is for nodes = 2 or more"),
        ({"by": "ray", "nodes": 2}, "is not host:port"),
        ({"by": "ray", "nodes": 2, "ray_address": "auto"}, "is not host:port"),
        ({"by": "ray", "nodes": 2, "ray_address": "10.0.0.1:6379", "start": "ssh gpu{node} ranks"}, "remove it"),
        ({"nodes": 2, "rendezvous": "10.0.0.1:29400", "ray_address": "10.0.0.1:6379"}, "has no effect here"),
    ],
)
def test_settings_that_say_different_things_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LaunchConfig(**settings)


def test_the_processes_of_further_machines_are_not_started_by_hand(tmp_path: Path) -> None:
    (tmp_path / "weir.toml").write_text(
        '[trainer]\nprocesses = 2\n[trainer.launch]\nnodes = 2\nby = "ray"\nray_address = "10.0.0.1:6379"\n'
    )
    command = [sys.executable, "-m", "weir.scripts.cli.main", "ranks", "--node", "1", "--config", "weir.toml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode and "`weir ranks` is not needed" in ended.stdout + ended.stderr
