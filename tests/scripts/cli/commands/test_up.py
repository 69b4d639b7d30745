"""`weir up` supervises its servers: one that ends is restarted, one that keeps ending stops all."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from weir.scripts.cli.commands.up import look_after
from weir.scripts.launch.errors import ServerFailed
from weir.scripts.launch.servers import Server, start, stop


def server(name: str, folder: Path, *argv: str) -> Server:
    return Server(name=name, argv=argv, ready_url="", log_path=folder / f"{name}.log")


def test_a_server_that_is_killed_is_started_again(tmp_path: Path) -> None:
    servers = [server("steady", tmp_path, "sleep", "1000"), server("killed", tmp_path, "sleep", "1000")]
    processes = [start(each) for each in servers]
    steady, killed = processes
    asked = threading.Event()
    looking = threading.Thread(target=look_after, args=(asked, servers, processes))
    looking.start()
    killed.kill()
    while processes[1] is killed:
        time.sleep(0.02)
    assert processes[0] is steady and steady.poll() is None
    assert processes[1].poll() is None
    asked.set()
    looking.join()  # the new one ends with it: servers die with the thread that started them
    for process in processes:
        stop(process)


def test_a_server_that_keeps_ending_is_given_up(tmp_path: Path) -> None:
    servers = [server("hopeless", tmp_path, "false")]
    processes: list[subprocess.Popen[bytes]] = [start(servers[0])]
    with pytest.raises(ServerFailed, match="hopeless ended 5 times within 120 s, last with status 1"):
        look_after(threading.Event(), servers, processes)
