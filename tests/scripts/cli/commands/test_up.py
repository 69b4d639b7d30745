"""`weir up` supervises its servers: one that ends is restarted, one that keeps ending stops all."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from support_servers import find_free_port

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_it_waits_for_and_stops_there_when_asked(
    tmp_path: Path, tiny_model_dir: Path, number: signal.Signals
) -> None:
    engine, router, metrics, proxy, judge = (find_free_port() for _ in range(5))
    (tmp_path / "weir.toml").write_text(
        f'[store]\nroot = "{tmp_path / "store"}"\n[model]\npath = "{tiny_model_dir}"\n[engine]\nport = {engine}\n'
        f"[router]\nport = {router}\nprometheus_port = {metrics}\n[proxy]\nport = {proxy}\n"
        f"[kernel_eval]\nport = {judge}\n"
    )
    command = [sys.executable, "-m", "weir.scripts.cli.main", "up", "--config", str(tmp_path / "weir.toml")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()
    servers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    output, _ = process.communicate()
    assert said == f"waiting for engine-0, which writes {tmp_path / 'store' / 'logs' / 'engine-0.log'}\n"
    assert (process.returncode, output) == (130, "")
    assert servers and not any(server.is_running() for server in servers)
