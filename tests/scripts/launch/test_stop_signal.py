"""A signal ends a wait at any of its steps: none is lost, and none blocks the thread that it interrupts."""

import os
import signal
import subprocess
import sys
import time

# Timers ring while the main thread is anywhere in its wait. With a threading.Event one in ten thousand hangs.
STORM = """
import os, signal
from weir.scripts.launch.stop_signal import StopSignal

stop = StopSignal()
signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGINT))
for _ in range(20_000):
    signal.setitimer(signal.ITIMER_REAL, 0.00002)
    while not stop.wait(0.00001):
        pass
    os.read(stop._receiver, 100)
assert not stop.wait(0)
print("ended")
"""


def test_signals_that_arrive_within_a_wait_end_it() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_a_command_that_repeats_stops_by_a_signal_before_its_next_time(tmp_path: os.PathLike[str]) -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "store", "compact", "--every", "3600", "--root"]
    process = subprocess.Popen([*command, str(tmp_path)])
    while signal.SIGTERM not in caught(process.pid):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def caught(pid: int) -> set[int]:
    """The numbers of the signals that a process has handlers for."""
    with open(f"/proc/{pid}/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return {number + 1 for number in range(64) if mask >> number & 1}
