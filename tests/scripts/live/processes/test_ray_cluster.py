"""`weir train` with an engine and a training slot that it places itself: as its own processes, and as actors of Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support_live import Cluster, running_cluster
from support_servers import find_free_port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[Cluster]:
    """One engine of `weir up`, and a member that does both, whose engine nobody has started."""
    folder = tmp_path_factory.mktemp("placed")
    with running_cluster(folder, tiny_model_dir, names=("only",), placed=("both",)) as started:
        yield started


def is_gone(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def joined(cluster: Cluster) -> bool:
    """Whether the placed member generates or trains now."""
    return cluster.phase_of("both") in ("rollout", "train")


@pytest.mark.parametrize("kind", ["local", "ray"])
def test_a_placed_engine_and_the_slot_come_back_when_they_are_killed(cluster: Cluster, kind: str) -> None:
    train = cluster.train(env={"WEIR_CLUSTER__PROCESSES": kind})
    cluster.wait(cluster.made(1))
    cluster.wait(lambda: joined(cluster))
    engine, slot = cluster.child("engine"), cluster.child("weir.scripts.live.slot_process")
    victims = [engine.parent(), slot.parent()] if kind == "ray" else [engine]
    for each in victims:
        each.kill()
    cluster.wait(lambda: is_gone(engine) and (is_gone(slot) or kind == "local"))
    cluster.wait(lambda: "member both is lost" in cluster.log)
    cluster.wait(lambda: kind == "local" or "the training slot ended with its actor" in cluster.log)
    cluster.wait(lambda: joined(cluster))
    cluster.wait(cluster.made(1))

    children = psutil.Process(train.pid).children(recursive=True)
    train.terminate()
    assert "stopped; the next start goes on from here" in cluster.ended()
    psutil.wait_procs(children, timeout=120)
    assert [each for each in children if not is_gone(each)] == []
    assert cluster.in_rotation() == set(cluster.engine_urls), "what weir train has started leaves with it"
    groups = [group for row in cluster.rounds() for group in row.group_ids]
    assert len(groups) == len(set(groups)) == 2 * len(cluster.rounds())
    assert cluster.sql("SELECT info FROM sessions WHERE status = 'failed'") == []


def test_a_ray_cluster_that_nobody_has_started_is_named(cluster: Cluster) -> None:
    address = f"127.0.0.1:{find_free_port()}"
    train = cluster.train(env={"WEIR_CLUSTER__PROCESSES": "ray", "WEIR_CLUSTER__RAY_ADDRESS": address})
    assert train.wait() == 1
    assert f"no Ray cluster at '{address}'" in cluster.log
