"""What settings promise and their members cannot keep is refused before a controller begins."""

from __future__ import annotations

import socket

import pytest

from weir.cluster.config import ClusterConfig
from weir.scripts.launch.errors import UsageError
from weir.scripts.live.members import check_members, members_of
from weir.scripts.live.metrics import ClusterMetrics
from weir.trainer.settings.config import TrainerConfig

ENGINES = {"engine_urls": ["http://127.0.0.1:1", "http://127.0.0.1:2"], "router_url": "http://127.0.0.1:3"}


def check(cluster: dict | None = None, level: str = "tokens", **more: object) -> None:
    trainer = TrainerConfig(**(ENGINES | more))
    config = ClusterConfig(**(cluster or {}))
    check_members(members_of(config, trainer), config, trainer, level)


def test_engines_of_the_run_are_members_with_both_tags() -> None:
    check()
    assert list(members_of(ClusterConfig(), TrainerConfig(**ENGINES))) == ["engine-0", "engine-1"]


def test_devices_that_engines_and_rounds_take_in_turns_are_refused() -> None:
    with pytest.raises(UsageError, match=r"placement\.colocated"):
        check(takes_turns=True)


def test_ranks_that_send_what_they_own_are_refused() -> None:
    with pytest.raises(UsageError, match=r"publish\.by_ranks: .* sends from the version's folder"):
        check(publish={"way": "distributed", "by_ranks": True})


def test_a_cluster_without_a_router_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no router"):
        check(router_url=None)


def test_members_that_hand_calls_over_need_recorded_tokens() -> None:
    with pytest.raises(UsageError, match=r"proxy\.level = 'tokens' and not 'text'"):
        check(level="text")


def test_a_hold_that_every_engine_would_break_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cluster\.max_hold_s = 1"):
        check({"max_hold_s": 1.0, "policy": "sync_colocated"})


def test_cores_that_the_machine_lacks_are_refused() -> None:
    member = {"name": "both", "url": "http://127.0.0.1:1"}
    check({"members": [member | {"cores": [0]}]})
    with pytest.raises(UsageError, match=r"both is bound to the cores \[0, 4096\], .* name others than 4096"):
        check({"members": [member | {"cores": [0, 4096]}]})


def test_a_port_of_metrics_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"cluster\.metrics_port = {port} cannot be used"):
            ClusterMetrics(port)


def test_an_address_of_ray_without_ray_is_refused() -> None:
    with pytest.raises(ValueError, match="ray_address is of processes = 'ray', and not of 'local'"):
        ClusterConfig(ray_address="127.0.0.1:6379")


@pytest.mark.parametrize("name", ["..", "a/../../b", "/tmp", ".hidden", "a\0b"])
def test_a_name_that_would_lead_elsewhere_as_a_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is to name files: no / in it, and no dot at its beginning"):
        ClusterConfig(members=[{"name": name}])
