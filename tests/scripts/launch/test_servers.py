"""Server processes: waited for, stopped, and never left behind."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support_servers import find_free_port

from weir.scripts.launch.errors import ServerFailed
from weir.scripts.launch.servers import Server, free_port, free_ports_in_row, running

SERVE = "import sys; from http.server import *; HTTPServer(('127.0.0.1', int(sys.argv[1])), SimpleHTTPRequestHandler)"


def http_server(name: str, folder: Path) -> Server:
    port = find_free_port()
    return Server(
        name=name,
        argv=[sys.executable, "-c", f"{SERVE}.serve_forever()", str(port)],
        ready_url=f"http://127.0.0.1:{port}/",
        log_path=folder / f"{name}.log",
    )


def test_servers_are_ready_inside_the_block_and_gone_after_it(tmp_path: Path) -> None:
    with running([http_server("one", tmp_path), http_server("two", tmp_path)]) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert [process.returncode for process in processes] == [-signal.SIGTERM, -signal.SIGTERM]


def test_a_server_that_ends_at_once_is_named_with_its_last_words_and_the_others_are_stopped(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    broken = Server(name="broken", argv=argv, ready_url="http://127.0.0.1:9/", log_path=tmp_path / "broken.log")
    words = r"broken ended with status 1 .*the port is taken; its log is"
    with pytest.raises(ServerFailed, match=words), running([http_server("one", tmp_path), broken]):
        pass


def test_a_server_that_never_gets_ready_is_an_error(tmp_path: Path) -> None:
    idle = Server(
        name="idle",
        argv=[sys.executable, "-c", "import signal; signal.pause()"],
        ready_url=f"http://127.0.0.1:{find_free_port()}/",
        log_path=tmp_path / "idle.log",
    )
    with pytest.raises(ServerFailed, match="idle was not ready in time"), running([idle], ready_timeout_s=0.3):
        pass


def test_another_server_on_the_port_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    first = http_server("first", tmp_path)
    argv = [
        sys.executable,
        "-c",
        f"import time; time.sleep(0.3)  # as one that loads a model before it listens\n{SERVE}",
        *first.argv[-1:],
    ]
    second = Server(name="second", argv=argv, ready_url=first.ready_url, log_path=tmp_path / "second.log")
    with (
        running([first]),
        pytest.raises(ServerFailed, match=r"second ended .*Address already in use"),
        running([second]),
    ):
        pass


def test_servers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, signal; from pathlib import Path; sys.path[:0] = sys.argv[1:3]\n"
        "from test_servers import http_server; from weir.scripts.launch.servers import running\n"
        "with running([http_server('one', Path(sys.argv[3]))]) as processes:\n"
        "    print(processes[0].pid, flush=True); signal.pause()\n"
    )
    here = Path(__file__).parent
    parent = subprocess.Popen(
        [sys.executable, "-c", program, here, here.parents[1], tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    pidfd = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    assert select.select([pidfd], [], [], 10)[0], "the server outlived its parent"
    os.close(pidfd)


def test_the_wanted_ports_are_taken_only_where_all_of_them_are_free() -> None:
    first = free_ports_in_row(3)
    assert free_ports_in_row(3, wanted=first) == first
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", first + 1))
        busy.listen()
        other = free_ports_in_row(3, wanted=first)
    assert first + 1 not in range(other, other + 3)


def test_a_port_that_was_drawn_is_drawn_by_no_other_process_before_its_server_listens() -> None:
    drawn = [free_port() for _ in range(3)]
    program = (
        "import sys; from weir.scripts.launch import servers; drawn = [int(port) for port in sys.argv[1:]]\n"
        "draws = iter([*drawn, 9_999]); servers._CHANCE.randrange = lambda *_: next(draws); print(servers.free_port())"
    )
    other = subprocess.run([sys.executable, "-c", program, *map(str, drawn)], capture_output=True, text=True)
    assert other.stdout == "9999\n", other.stderr


def test_a_server_is_bound_to_its_cores(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    bound = dataclasses.replace(http_server("one", tmp_path), cores=(core,))
    with running([bound]) as (process,):
        assert os.sched_getaffinity(process.pid) == {core}
