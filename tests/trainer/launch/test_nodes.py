"""Machines that join an attempt, leave it and join the next one; here the commands that they run are sleeps."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support_nodes import launch_on_two

from weir.trainer.errors import TrainerError, TrainerUsageError
from weir.trainer.launch.agent import run_node
from weir.trainer.launch.nodes import join_all, run_once
from weir.trainer.launch.pool import RankPool
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.launch import LaunchConfig

FOREVER = ["sleep", "infinity"]


def test_a_machine_joins_one_attempt_after_the_other_and_ends_with_each() -> None:
    launch = launch_on_two()
    statuses: list[int] = []

    def node() -> None:
        for command in (FOREVER, FOREVER, ["sh", "-c", "exit 7"]):
            statuses.append(run_once(command, 1, launch, lambda _: None))

    waiting = threading.Thread(target=node)
    waiting.start()
    for attempt in range(2):
        (connection,) = join_all(launch, [])
        assert len(statuses) == attempt, "it runs as long as the attempt does"
        connection.close()
    (connection,) = join_all(launch, [])
    assert connection.recv(1) == b"", "the first machine learns that it has ended"
    connection.close()
    waiting.join()
    assert statuses == [-9, -9, 7]


def test_a_machine_that_does_not_come_is_named() -> None:
    with pytest.raises(TrainerError, match=r"machine 1 has not joined at .*start `weir ranks --node K` there"):
        join_all(launch_on_two(timeout_s=1), [])
    start = "echo no route to host {node}; exit 3"
    with pytest.raises(TrainerError, match=r"machine 1 has not joined(.|\n)*no route to host 1"):
        RankPool(2, "cpu", launch_on_two(start=start), resumed="")


def test_a_number_that_is_no_further_machine_is_refused() -> None:
    with pytest.raises(TrainerUsageError, match="--node 2 is no further machine"):
        run_node(2, processes=2, launch=launch_on_two(), device="cpu", once=True, say=print)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"nodes": 2}, "meet at a rendezvous"),
        ({"nodes": 2, "rendezvous": "here"}, "is not host:port"),
        ({"rendezvous": "here:1"}, "for nodes = 2 or more"),
        ({"nodes": 2, "rendezvous": "here:1", "start": "ssh there"}, "does not name the machine"),
    ],
)
def test_machines_that_could_not_meet_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LaunchConfig(**wrong)
    with pytest.raises(ValueError, match="cannot be shared evenly"):
        TrainerConfig(processes=3, launch=LaunchConfig(nodes=2, rendezvous="here:1"))
