"""What an agent's command may try: each script does its worst, and reports what it managed."""

from __future__ import annotations

import asyncio
import json
import socket
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from weir.agents.command.limits import EndedBy
from weir.agents.command.session_folder import read_beneath, remove_beneath, write_beneath

MIB = 1 << 20


def left_over(ran: Any) -> list[int]:
    import psutil

    from weir.agents.command.contained import _is_of  # the same question that the run asked itself

    return [process.pid for process in psutil.process_iter() if _is_of(process, ran.folder)]


def script(text: str) -> str:
    return textwrap.dedent(text)


def test_a_fork_bomb_ends_within_the_limit_on_processes(contained: Any) -> None:
    ran = contained(
        script("""
        import os, time
        forked = 0
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(600)
                forked += 1
        except OSError as error:
            print("forked", forked, type(error).__name__, flush=True)
        """),
        processes=40,
        seconds=20,
    )
    if ran.end.ended_by is None:  # the kernel refused the next process
        assert int(ran.output.split()[1]) < 40, ran.output
        assert "BlockingIOError" in ran.output
    else:
        assert ran.end.ended_by == EndedBy.PROCESSES
    assert not left_over(ran)


def test_a_flood_of_output_is_ended_and_what_is_kept_is_bounded(contained: Any) -> None:
    ran = contained("while True: print('x' * 1000)", output_bytes=4 * MIB, kept_bytes=2000)
    assert ran.end.ended_by == EndedBy.OUTPUT
    assert ran.end.printed_bytes > 4 * MIB
    assert len(ran.output) < 2100 and "bytes left out" in ran.output


def test_an_endless_command_is_ended_at_its_time_limit(contained: Any) -> None:
    ran = contained("import time; print('here', flush=True); time.sleep(600)", seconds=6)
    assert (ran.end.ended_by, ran.output) == (EndedBy.TIME, "here\n")
    assert not left_over(ran)


def test_memory_of_one_process_is_limited(contained: Any) -> None:
    ran = contained("x = bytearray(1 << 30); print('got it')", memory_bytes=200 * MIB)
    assert "got it" not in ran.output
    assert "MemoryError" in ran.output or ran.end.ended_by == EndedBy.MEMORY


def test_memory_of_many_processes_is_limited_together(contained: Any) -> None:
    ran = contained(
        script("""
        import os, time
        for _ in range(8):
            if os.fork() == 0:
                block = bytearray(100 << 20)
                time.sleep(600)
        time.sleep(600)
        """),
        memory_bytes=400 * MIB,
        seconds=50,
    )
    assert ran.end.ended_by == EndedBy.MEMORY
    assert not left_over(ran)


@pytest.mark.parametrize("how", ["many files", "deleted but open"])
def test_gigabytes_on_disk_are_ended(contained: Any, how: str) -> None:
    ran = contained(
        script("""
        import os, sys
        block, kept = bytes(1 << 20), []
        for number in range(1_000_000):
            file = open(f"file-{number}", "wb")
            for _ in range(4):
                file.write(block)
            if sys.argv[1] == "many files":
                file.close()
            else:
                file.flush()
                os.unlink(f"file-{number}")
                kept.append(file)
        """),
        how,
        disk_bytes=64 * MIB,
        seconds=50,
    )
    assert ran.end.ended_by == EndedBy.DISK


def test_one_file_is_no_larger_than_the_disk_limit(contained: Any) -> None:
    ran = contained("file = open('big', 'wb'); file.truncate(1 << 40)", disk_bytes=16 * MIB)
    assert "File too large" in ran.output
    assert (ran.folder.work / "big").stat().st_size == 0


def test_files_outside_of_the_folder_cannot_be_read_or_written(boxed: Any, tmp_path: Path) -> None:
    secret = tmp_path / "control.key"
    secret.write_text("the control key")
    other = boxed.root / "session-0"
    other.mkdir(parents=True)
    (other / "hidden_test.py").write_text("assert True")
    ran = boxed(
        script("""
        import sys
        for path in sys.argv[1:]:
            for mode in "rw":
                try:
                    open(path, mode)
                    print("opened", path, mode)
                except OSError as error:
                    print(type(error).__name__)
        """),
        *(secret, other / "hidden_test.py", "/etc/shadow", "/root/.bashrc", "/usr/bin/new", "/run/weir/spec2"),
    )
    assert ran.end.exit_code == 0
    assert "opened" not in ran.output
    assert secret.read_text() == "the control key"


def test_landlock_refuses_files_outside_of_the_folder_too(contained: Any, tmp_path: Path) -> None:
    if contained.enclosure.level == "rlimits":
        pytest.skip("rlimits contains no files; its docstring says so")
    secret = tmp_path / "control.key"
    secret.write_text("the control key")
    ran = contained(f"print(open({str(secret)!r}).read())")
    assert "the control key" not in ran.output and ran.end.exit_code == 1


def test_no_network_is_reached_but_the_proxy(contained: Any, http_server: Any) -> None:
    """Another server of this machine is as far away as any host of the internet."""
    try_both = script("""
        import json, os, socket, sys, urllib.request
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        told = {"proxy": opener.open(os.environ["URL"] + "/v1/x", timeout=20).read().decode()}
        try:
            socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
            told["other"] = "reached"
        except OSError as error:
            told["other"] = type(error).__name__
        try:
            told["udp"] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
        except OSError as error:
            told["udp"] = type(error).__name__
        print(json.dumps(told))
    """)

    async def scenario() -> Any:
        with socket.create_server(("127.0.0.1", 0)) as other:
            async with http_server() as (url, seen):
                ran = await contained.run(try_both, other.getsockname()[1], url=url)
                assert seen == ["/v1/x"]
                return ran

    ran = asyncio.run(scenario())
    told = json.loads(ran.output)
    assert (told["proxy"], ran.relay.connections, ran.relay.refused) == ("here", 1, 0)
    if contained.enclosure.level == "rlimits":
        assert contained.enclosure.network == "open"
    else:
        assert told["other"] in ("ConnectionRefusedError", "PermissionError")
    if contained.enclosure.level == "bubblewrap":
        assert told["udp"] == "OSError"


def test_a_proxy_that_is_down_is_counted(boxed: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        closed = probe.getsockname()[1]
    ran = boxed(
        "import os, urllib.request; urllib.request.urlopen(os.environ['URL'])", url=f"http://127.0.0.1:{closed}"
    )
    assert ran.end.exit_code == 1
    assert ran.relay.refused == 1


def test_killing_its_parent_ends_the_command_and_nothing_else(contained: Any) -> None:
    ran = contained("import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(2); print('alive')")
    assert not left_over(ran)
    if contained.enclosure.level == "landlock":
        assert "PermissionError" in ran.output  # signals stay inside, from Landlock's ABI 6


def test_killing_everything_it_can_see_reaches_nothing_outside(boxed: Any) -> None:
    ran = boxed("import os, signal; os.kill(-1, signal.SIGKILL)")
    assert ran.end.exit_code in (None, 0, 137)
    assert not left_over(ran)


def test_daemons_end_with_the_command(contained: Any) -> None:
    ran = contained(
        script("""
        import os, sys, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.environ.clear()
                    while True:
                        time.sleep(0.05)
                        open("alive", "a").write("x")
                os._exit(0)
        while not os.path.exists("alive"):
            time.sleep(0.01)
        print("left three")
        """)
    )
    assert (ran.end.exit_code, ran.output) == (0, "left three\n")
    assert not left_over(ran)
    size = (ran.folder.work / "alive").stat().st_size
    time.sleep(0.2)  # four times what a daemon waits between two bytes
    assert (ran.folder.work / "alive").stat().st_size == size


def test_no_system_call_that_escapes_works(contained: Any) -> None:
    ran = contained(
        script("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        for name, arguments in {
            "unshare": (0x10000000,),
            "mount": (b"none", b"/tmp", b"tmpfs", 0, None),
            "ptrace": (16, os.getppid(), None, None),
            "setuid": (0,),
        }.items():
            print(name, getattr(libc, name)(*arguments) == -1)
        """)
    )
    assert ran.output.split() == ["unshare", "True", "mount", "True", "ptrace", "True", "setuid", "True"]


def test_hidden_files_replace_the_symlinks_that_wait_for_them(contained: Any, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    target.chmod(0o777)
    (target / "victim").write_text("untouched")
    (target / "victim").chmod(0o666)
    ran = contained(
        script("""
        import os, sys
        os.symlink(sys.argv[1], "tests")
        os.makedirs("deep/er")
        os.symlink(sys.argv[1] + "/victim", "deep/er/test.py")
        os.mkdir("conftest.py")
        os.mkfifo("pipe")
        os.symlink("/etc/passwd", "link")
        """),
        target,
    )
    assert ran.end.exit_code == 0, ran.output
    work = ran.folder.work
    for name in ("tests/test_it.py", "deep/er/test.py", "conftest.py"):
        write_beneath(work, name, b"assert True")
        assert (work / name).read_bytes() == b"assert True"
        assert not (work / name).is_symlink()
    assert [path.name for path in target.iterdir()] == ["victim"]
    assert (target / "victim").read_text() == "untouched"
    assert read_beneath(work, "tests/test_it.py", 6) == b"assert"
    assert read_beneath(work, "link", 100) is None
    assert read_beneath(work, "pipe", 100) is None  # and does not wait for a writer
    remove_beneath(work, "tests")
    remove_beneath(work, "link")
    assert not (work / "tests").exists() and Path("/etc/passwd").exists()


def test_a_folder_that_is_closed_or_too_deep_is_removed(contained: Any) -> None:
    ran = contained(
        script("""
        import os
        os.makedirs("closed/in")
        open("closed/in/file", "w").write("x")
        os.chmod("closed/in", 0)
        os.chmod("closed", 0)
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        """)
    )
    assert ran.end.ended_by in (None, EndedBy.DISK)
    ran.folder.remove_agents_files()
    assert [path.name for path in ran.folder.path.iterdir()] == ["output.txt"]


def test_nothing_of_the_runners_environment_reaches_a_command(contained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_PROXY__CONTROL_KEY", "secret-of-the-runner")
    ran = contained("import os; print(dict(os.environ))")
    assert "secret-of-the-runner" not in ran.output
