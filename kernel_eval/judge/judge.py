"""The judge: makes inputs, has the worker answer, runs the reference, compares the answers, and returns a judgement.

Invariant: it never runs the candidate's code, and its secrets (expected values, seeds of inputs) never leave it.
Each backend has a check of its own in the folder `checks`.
"""

from __future__ import annotations

import functools
import os
import time

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.job import Job, Judgement
from weir.kernel_eval.judge.checks.native_cpu import NativeCompileCheck
from weir.kernel_eval.judge.checks.native_gpu import NativeGpuCheck
from weir.kernel_eval.judge.checks.outcome import EVALUATION_ERRORS, Check, CheckOutcome, outcome_of
from weir.kernel_eval.judge.checks.triton import TritonCheck
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import Reference

_MIN_FREE_BYTES, _MIN_FREE_FILES = 4 << 20, 64


def judge(job: Job, leases: Leases) -> Judgement:
    """One evaluation, from the candidate's source to a judgement. Raises only errors that are bugs of the judge."""
    started = time.monotonic()
    try:
        outcome = _run_check(job, leases)
    finally:
        leases.close()
    stage, fault, message = outcome.stage, outcome.fault, outcome.message
    if fault is not None and not fault.ours and _disk_is_full():
        stage, fault = Stage.NOTHING, Fault.SERVER_ERROR
        message = (
            "the disk of the server's temporary folder is full, which may have caused the failure: free some space"
        )
    return Judgement(
        stage=stage,
        fault=fault,
        message=message,
        trials=outcome.trials,
        seconds=time.monotonic() - started,
        speedup=outcome.speedup,
        timed=outcome.timed,
        kernel_share=outcome.kernel_share,
        details=outcome.details,
    )


def _run_check(job: Job, leases: Leases) -> CheckOutcome:
    try:
        reference = _reference(job.reference_src, job.limits.reference_timeout_s, job.limits.gpu)
    except EVALUATION_ERRORS as error:
        return outcome_of(error)
    return _check_for(job).run(leases, reference)


def _check_for(job: Job) -> Check:
    if job.backend == "triton":
        return TritonCheck(job)
    return NativeCompileCheck(job, job.backend) if job.limits.gpu is None else NativeGpuCheck(job, job.backend)


def _disk_is_full() -> bool:
    """Whether processes lack space for files, after the processes of this evaluation and their files are gone."""
    disk = os.statvfs(".")
    no_space = disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES
    return no_space or (disk.f_files > 0 and disk.f_favail < _MIN_FREE_FILES)


@functools.lru_cache(maxsize=256)
def _reference(source: str, timeout_s: float, gpu: str | None) -> Reference:
    return Reference(source, timeout_s, on_gpu=gpu is not None)
