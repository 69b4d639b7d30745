"""The timing protocol, the classification of CUDA's errors, and a GPU's clock on machines with a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from weir.kernel_eval.gpu import cuda_errors
from weir.kernel_eval.gpu.device_lock import gpu_lock
from weir.kernel_eval.ipc.messages import Failed
from weir.kernel_eval.judge.channel import fault_classification
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.timing import cuda_clock, sampling


def test_a_summary_has_the_figures_that_were_computed_by_hand() -> None:
    summary = sampling.summarize([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (summary.median_us, summary.mean_us, summary.num_calls) == (3.0, 3.0, 5)
    assert (summary.p20_us, summary.p80_us) == pytest.approx((1.8, 4.2))
    assert summary.std_us == pytest.approx(2.5**0.5)
    assert summary.in_ms()["p80_ms"] == pytest.approx(0.0042)


def test_a_device_waits_until_the_host_has_issued_a_call_and_no_longer_than_it_must() -> None:
    wait_us = cuda_clock.next_wait_us(0.0, 1_300.0, was_late=True)
    assert wait_us >= 1_300.0
    assert cuda_clock.next_wait_us(wait_us, 1_300.0, was_late=False) == wait_us
    for _ in range(100):
        wait_us = cuda_clock.next_wait_us(wait_us, 60.0, was_late=False)
    assert 60.0 <= wait_us < 200.0
    for _ in range(20):
        wait_us = cuda_clock.next_wait_us(wait_us, wait_us + 5.0, was_late=True)
    assert wait_us == cuda_clock.MOST_WAIT_US
    assert cuda_clock.next_wait_us(0.0, 10.0, was_late=False) == 0.0, "what the flush covers needs no wait"


def test_one_call_has_no_deviation() -> None:
    assert sampling.summarize([7.0]).variation == 0.0


def test_measuring_stops_early_when_samples_agree_and_takes_all_when_they_do_not() -> None:
    steady, wild = iter(range(10**9)), iter(range(10**9))
    (agreed,) = sampling.measure([lambda: 100.0 + next(steady) % 2 * 0.01], seed=1)
    (scattered,) = sampling.measure([lambda: 100.0 + next(wild) % 2 * 100.0], seed=1)
    assert agreed.num_calls == sampling.MIN_SAMPLES
    assert scattered.num_calls == sampling.MAX_SAMPLES


def test_what_is_compared_is_timed_in_turn_in_an_order_that_changes() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: (order.append(name), float(len(order) % 7 + 1))[1] for name in ("ours", "theirs")}  # type: ignore[misc]
    sampling.measure(list(calls.values()), seed=3, max_samples=30)
    turns = [tuple(order[-60:][i : i + 2]) for i in range(0, 60, 2)]
    assert {frozenset(turn) for turn in turns} == {frozenset({"ours", "theirs"})}
    assert len(set(turns)) == 2


def test_warming_up_takes_ten_calls_at_least() -> None:
    calls: list[float] = []

    def call() -> float:
        calls.append(1.0)
        return 1.0

    sampling.warm_up(call)
    assert len(calls) >= sampling.MIN_WARM_UP_CALLS


def test_the_flush_is_twice_the_cache_and_never_less_than_256_mib() -> None:
    assert cuda_clock.flush_bytes(50 << 20) == 256 << 20
    assert cuda_clock.flush_bytes(192 << 20) == 384 << 20


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (700, Fault.ILLEGAL_ACCESS),
        (716, Fault.MISALIGNED),
        (710, Fault.DEVICE_ASSERT),
        (719, Fault.LAUNCH_FAILURE),
        (2, Fault.OUT_OF_MEMORY),
        (209, Fault.UNSUPPORTED_ARCH),
    ],
)
def test_a_code_of_cuda_decides_the_fault(code: int, fault: Fault) -> None:
    failed = Failed("call", "AcceleratorError", "CUDA error", "", cuda_error=code)
    assert fault_classification.from_exception(failed).fault is fault


def test_no_code_that_a_candidate_reports_is_a_fault_of_ours() -> None:
    codes = [*cuda_errors.FAULTS, *cuda_errors.SUSPICIOUS]
    assert not [code for code in codes if (fault := cuda_errors.fault_of(code)) is None or fault.ours]
    assert cuda_errors.fault_of(0) is None


def test_a_gpu_is_held_by_one_process_until_that_ends(tmp_path: Path) -> None:
    hold = (
        "import sys, pathlib\nfrom weir.kernel_eval.gpu.device_lock import gpu_lock\n"
        "with gpu_lock('GPU-1a', pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
            with gpu_lock("GPU-2b", tmp_path):
                pass  # another GPU is free
            first.kill()  # however its holder ends
            assert second.stdout is not None
            assert second.stdout.readline() == "held\n"
            second.kill()


def test_the_benchmark_of_a_gpu_says_so_where_there_is_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "kernel-eval", "--gpu"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "no CUDA device" in ended.stderr + ended.stdout


@pytest.mark.gpu
def test_kernels_over_20_us_are_timed_within_3_percent() -> None:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "kernel-eval", "--gpu"]
    figures = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert figures["median_cv_max"] <= 0.03, figures


@pytest.mark.gpu
def test_work_on_another_stream_is_counted() -> None:
    clock = cuda_clock.GpuClock(0)
    x = torch.randn(4096, 4096, device="cuda")
    side = torch.cuda.Stream()

    def aside() -> None:
        with torch.cuda.stream(side):
            for _ in range(20):
                torch.mm(x, x)

    plain = sampling.measure([lambda: clock.time_us(lambda: [torch.mm(x, x) for _ in range(20)])], 0, 20)[0]
    hidden = sampling.measure([lambda: clock.time_us(aside)], 0, 20)[0]
    assert hidden.median_us > 0.7 * plain.median_us


@pytest.mark.gpu
def test_what_the_host_takes_to_issue_a_call_is_not_its_time() -> None:
    clock, buffer = cuda_clock.GpuClock(0), torch.empty(1 << 20, device="cuda")

    def slow() -> None:
        time.sleep(0.003)
        buffer.zero_()

    assert min(clock.time_us(slow) for _ in range(5)) < 500.0
