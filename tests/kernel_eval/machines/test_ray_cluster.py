"""Evaluations on the machines of a real Ray cluster, which join and leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from ray.cluster_utils import Cluster

SLOW = "        import time; time.sleep(1.5)\n        return "


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head that judges nothing; machines are added by the tests."""
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 1 << 27})
    try:
        yield started
    finally:
        started.shutdown()


@pytest.fixture(scope="module")
def first_machine(cluster: Cluster) -> Any:
    return add_machine(cluster)


@pytest.fixture
def ray_server(cluster: Cluster, first_machine: Any, start_server: Any) -> Iterator[Any]:
    with start_server(ray=cluster.address, call_timeout_s=20) as server:
        assert f"ray={cluster.address}" in server.first_line
        wait_for(server, lambda health: health["slots"] == 1)
        yield server


def add_machine(cluster: Cluster) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=1 << 27)


def wait_for(server: Any, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while not holds(health := server.http.get("/health").json()):
        time.sleep(0.2)
    return health


def test_a_machine_of_the_cluster_judges(ray_server: Any, read_example: Callable[[str], str]) -> None:
    right = ray_server.evaluate(read_example("relu_candidate"))
    assert (right["correct"], right["fault"]) == (True, None), right
    health = ray_server.http.get("/health").json()
    assert right["sandbox"] == health["sandbox"] == health["machines"][0]["sandbox"]
    wrong = ray_server.evaluate(read_example("relu_candidate").replace("tl.maximum(x, 0.0)", "x"))
    assert wrong["fault"] == "output_mismatch"
    assert ray_server.http.post("/cleanup").json()["judges_ended"] == 1
    assert ray_server.http.post("/reset_gpu/0").status_code == 404


def test_jobs_of_a_machine_that_dies_are_judged_by_another(
    ray_server: Any, cluster: Cluster, first_machine: Any, read_example: Callable[[str], str]
) -> None:
    slow = read_example("relu_candidate").replace("        return ", SLOW, 1)
    with ThreadPoolExecutor() as threads:
        answers = [
            threads.submit(ray_server.evaluate, slow, seed_num=number, num_correct_trials=1) for number in (1, 2)
        ]
        wait_for(ray_server, lambda health: health["running"] == 1 and health["queue"] == 1)
        cluster.remove_node(first_machine, allow_graceful=False)
        wait_for(ray_server, lambda health: not health["ready"])
        add_machine(cluster)
        assert [answer.result()["fault"] for answer in answers] == [None, None]
    wait_for(ray_server, lambda health: len(health["machines"]) == 1)


def test_a_machine_that_cannot_contain_candidates_is_not_used(cluster: Cluster, start_server: Any) -> None:
    """The machine that an earlier test left running."""
    with start_server(ray=cluster.address, sandbox="rlimits", min_sandbox="bubblewrap") as server:
        told = wait_for(server, lambda health: any("sandbox" in m.get("trouble", "") for m in health["machines"]))
        assert not told["ready"]


def test_a_gpu_that_ray_counts_and_nothing_can_use_judges_nothing_and_nor_do_machines_without_one(
    cluster: Cluster, start_server: Any
) -> None:
    """Verdicts of one server are of one mode."""
    pretender = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=1 << 27)
    try:
        with start_server(ray=cluster.address, gpus=None) as server:
            told = wait_for(server, lambda health: any("GPU" in m.get("trouble", "") for m in health["machines"]))
            assert (told["mode"], told["ready"], len(told["machines"])) == ("gpu", False, 1)
        with start_server(ray=cluster.address, gpus=[]) as server:
            told = wait_for(server, lambda health: health["slots"] > 0)
            assert told["mode"] == "interpreter"
    finally:
        cluster.remove_node(pretender)


def test_a_second_server_waits_for_the_first_ones_processors_and_has_them_when_that_is_killed_in_a_job(
    cluster: Cluster, first_machine: Any, start_server: Any, read_example: Callable[[str], str]
) -> None:
    """Uses the machine that an earlier test left running, or its replacement."""
    endless = read_example("relu_candidate").replace("        return ", SLOW.replace("1.5", "600"), 1)
    large = read_example("relu_candidate") + "# " + "x" * 900_000  # goes through Ray's store of objects
    with start_server(ray=cluster.address, call_timeout_s=600) as first, ThreadPoolExecutor() as threads:
        wait_for(first, lambda health: health["slots"] == 1)
        lost = threads.submit(first.evaluate, endless, num_correct_trials=1)
        wait_for(first, lambda health: health["running"] == 1)
        with start_server(ray=cluster.address) as second:
            told = wait_for(second, lambda health: len(health["machines"]) == 1)
            assert (told["ready"], told["machines"][0]["trouble"][:5]) == (False, "waits")
            waits = threads.submit(second.evaluate, large)
            wait_for(second, lambda health: health["queue"] == 1)
            first.process.kill()
            assert isinstance(lost.exception(), httpx.TransportError)
            assert (waits.result()["correct"], waits.result()["fault"]) == (True, None), waits.result()


def test_a_server_whose_own_node_is_killed_joins_again(start_server: Any, read_example: Callable[[str], str]) -> None:
    noticed_soon = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}
    head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": 1 << 27, "_system_config": noticed_soon}
    brittle = Cluster(initialize_head=True, head_node_args=head)
    try:
        add_machine(brittle)
        with start_server(ray=brittle.address) as server:
            os.kill(brittle.head_node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
            reply = server.evaluate(read_example("relu_candidate"))
            assert (reply["correct"], reply["fault"]) == (True, None), reply
    finally:
        brittle.shutdown()


def test_a_cluster_that_is_not_there_ends_the_start(start_server: Any) -> None:
    command = [sys.executable, "-m", "weir.kernel_eval.server.main", json.dumps({"port": 0, "ray": "127.0.0.1:9"})]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode != 0
    assert "no Ray cluster at '127.0.0.1:9'" in ended.stderr
