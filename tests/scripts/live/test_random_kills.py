"""`weir train` while its parts die by kill -9 at random moments: judge, ranks, slot, agents, engines, controller.

The run continues after each, or says why it does not. WEIR_TEST_KILLS names how many parts are killed, one after the
other; the moment is a random number of phase changes after the round before was made. With WEIR_TEST_KILL_MINUTES parts
are killed for so long, and every other killed controller stays away until agents are served without it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from support_live import Cluster, running_cluster
from support_servers import ServerProcess, find_free_port, start_server

KILLS = int(os.environ.get("WEIR_TEST_KILLS", "4"))
MINUTES = float(os.environ.get("WEIR_TEST_KILL_MINUTES", "0"))
MOST_PHASES = 6  # between a round and the kill
WITHOUT_CONTROLLER_S = 180.0  # the lease of gates, that of the controller, and a load, on a machine under load
JUDGE = """
import json, random, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({})

    def do_POST(self):
        items = json.loads(self.rfile.read(int(self.headers["content-length"])))["items"]
        self.reply({"rewards": [random.random() for _ in items]})

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@dataclass(kw_only=True)
class Victims:
    """A cluster and its judge: kills one of its parts, and starts it again where nothing else would."""

    cluster: Cluster
    folder: Path
    port: int
    judge: ServerProcess
    controllers_killed: int = 0

    def parts(self) -> dict[str, Callable[[], None]]:
        """What can be killed, by name."""
        return {
            "judge": self._kill_judge,
            "rank": lambda: self._kill_child("weir.trainer.learner.rank_main"),
            "slot": lambda: self._kill_child("weir.scripts.live.slot_process"),
            "agents": lambda: self._kill_child("weir.scripts.live.rollout_process"),
            "controller": self._kill_controller,
            "engine-0": lambda: self.cluster.kill("engine-0"),
            "engine-1": lambda: self.cluster.kill("engine-1"),
        }

    def start_judge(self) -> None:
        """Start it, at the port that the settings name."""
        self.judge = start_judge(self.port, self.folder)

    def _kill_judge(self) -> None:
        self.judge.kill()
        self.cluster.wait(lambda: "no rewards score from" in self.cluster.log)
        assert "the round did not end" in self.cluster.log
        self.start_judge()

    def _kill_controller(self) -> None:
        self.cluster.trains[-1].kill()
        self.cluster.trains[-1].wait()
        self.controllers_killed += 1
        if MINUTES and self.controllers_killed % 2:
            self._is_served_without_a_controller()
        self.cluster.train()

    def _is_served_without_a_controller(self) -> None:
        """All engines return, and no gate stays closed: calls are answered."""
        deadline = time.monotonic() + WITHOUT_CONTROLLER_S

        def is_served() -> bool:
            assert time.monotonic() < deadline, (self.cluster.gate(), self.cluster.in_rotation())
            return self.cluster.gate() == "open" and self.cluster.in_rotation() == set(self.cluster.engine_urls)

        while not is_served():
            time.sleep(0.2)
        left = iter((False, True))
        assert self.cluster.call_until(lambda: next(left)) == (1, [])

    def _kill_child(self, module: str) -> None:
        """Kill it once it runs; it may just end."""

        def killed() -> bool:
            with contextlib.suppress(AssertionError, psutil.Error):
                self.cluster.child(module).kill()
                return True
            return False

        self.cluster.wait(killed)


def start_judge(port: int, folder: Path) -> ServerProcess:
    return start_server([sys.executable, "-c", JUDGE, str(port)], port=port, log_path=folder / "judge.log")


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Iterator[Victims]:
    folder, port = tmp_path_factory.mktemp("victims"), find_free_port()
    judge = start_judge(port, folder)
    rewards = f'{{ score = {{ url = "http://127.0.0.1:{port}/rewards" }} }}'
    trainer = "processes = 2\njudge_attempts = 2\njudge_retry_delay_s = 0.1"
    with running_cluster(folder, tiny_model_dir, rewards=rewards, trainer=trainer) as cluster:
        started = Victims(cluster=cluster, folder=folder, port=port, judge=judge)
        try:
            yield started
        finally:
            started.judge.stop()


@pytest.mark.timeout(600 + 120 * MINUTES)  # the last round may need as long as the first ones
def test_whatever_is_killed_at_a_random_moment_the_run_goes_on(victims: Victims) -> None:
    cluster, draw = victims.cluster, random.Random(KILLS)
    others = [name for name in victims.parts() if name not in ("judge", "rank")]
    order = [*draw.sample(["judge", "rank"], 2), *draw.sample(others, len(others))]
    cluster.train()
    cluster.wait(cluster.made(1))
    ends_s = time.monotonic() + 60 * MINUTES
    for number in itertools.count():
        if number >= KILLS and time.monotonic() >= ends_s:
            break
        name = order[number % len(order)]
        moment = len(cluster.phases()) + draw.randint(0, MOST_PHASES)
        cluster.wait(lambda at=moment: len(cluster.phases()) >= at)
        print(f"kill {number + 1}: {name}", flush=True)
        victims.parts()[name]()
        cluster.wait(cluster.made(1))
    cluster.trains[-1].terminate()
    assert "stopped; the next start goes on from here" in cluster.ended()
    cluster.train("--rounds", "1")  # finishes a round that was open
    cluster.ended()
    rounds = cluster.rounds()
    assert [row.weight_version for row in rounds] == list(range(1, len(rounds) + 1))
    groups = [group for row in rounds for group in row.group_ids]
    assert len(groups) == len(set(groups)) == 2 * len(rounds), "no group twice"
    assert cluster.sql("SELECT info FROM sessions WHERE status = 'failed'") == []
    assert cluster.in_rotation() == set(cluster.engine_urls)
    assert cluster.gate() == "open"
