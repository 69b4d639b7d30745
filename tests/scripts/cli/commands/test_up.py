"""`weir up` supervises its servers: one that ends is restarted, one that keeps ending stops all."""

import dataclasses
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
    looking = threading.Thread(target=look_after, args=(asked.wait, servers, processes))
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
        look_after(threading.Event().wait, servers, processes)


def test_the_others_go_on_without_a_server_that_is_not_vital(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = [
        server("steady", tmp_path, "sleep", "1000"),
        dataclasses.replace(server("page", tmp_path, "false"), is_vital=False),
    ]
    processes = [start(each) for each in servers]
    steady, said, asked = processes[0], "", threading.Event()
    looking = threading.Thread(target=look_after, args=(asked.wait, servers, processes), daemon=True)
    looking.start()
    while looking.is_alive() and "the others go on" not in said:
        said += capsys.readouterr().out
        time.sleep(0.05)
    page = processes[1]
    asked.wait(1.2)  # two more looks at it
    assert processes == [steady, page] and steady.poll() is None and looking.is_alive()
    assert "page ended 5 times within 120 s, last with status 1; the others go on without it, see" in said
    asked.set()
    looking.join()
    stop(steady)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_it_waits_for_and_stops_there_when_asked(
    tmp_path: Path, tiny_model_dir: Path, number: signal.Signals
) -> None:
    config = configuration(tmp_path, tiny_model_dir)
    command = [sys.executable, "-m", "weir.scripts.cli.main", "up", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()
    servers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    output, _ = process.communicate()
    assert said == f"waiting for engine-0, which writes {tmp_path / 'store' / 'logs' / 'engine-0.log'}\n"
    assert (process.returncode, output) == (130, "")
    _, left = psutil.wait_procs(servers, timeout=120)  # what a server had started ends a moment after it
    assert servers and not left


def test_it_says_how_the_model_is_rendered(tmp_path: Path, tiny_model_dir: Path) -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "up", "--config"]
    command.append(str(configuration(tmp_path, tiny_model_dir)))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip("\n"))
        if line.startswith("Stop with"):
            break
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert "renderer     qwen3" in said and "later turns  exact" in said
    assert any(line.startswith("wishes       thinking on and off (enable_thinking);") for line in said)


def configuration(folder: Path, model: Path) -> Path:
    """A weir.toml of servers on free ports."""
    engine, router, metrics, proxy, judge, page = (find_free_port() for _ in range(6))
    file = folder / "weir.toml"
    file.write_text(
        f'[store]\nroot = "{folder / "store"}"\n[model]\npath = "{model}"\n[engine]\nport = {engine}\n'
        f"[router]\nport = {router}\nprometheus_port = {metrics}\n[proxy]\nport = {proxy}\n"
        f"[kernel_eval]\nport = {judge}\n[ui]\nport = {page}\n"
    )
    return file
