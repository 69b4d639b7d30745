"""The judge: makes inputs, has the worker answer, runs the reference, compares, and says what it found.

Invariant: it never runs code of the candidate, and what it knows (expected values, seeds of inputs) never leaves it.
The steps are those of `triton_check.py`, `native_check.py` and `native_run.py`; a judgement is made of them here.
"""

from __future__ import annotations

import functools
import os
import time

from weir.kernel_eval.ipc.forkserver import Leases
from weir.kernel_eval.ipc.tensor_arena import UnsupportedValue
from weir.kernel_eval.judge.channel.job import Found, Job, Judgement
from weir.kernel_eval.judge.channel.worker_channel import ZygoteLost
from weir.kernel_eval.judge.checks.native_cpu import NativeCheck
from weir.kernel_eval.judge.checks.native_gpu import NativeRun
from weir.kernel_eval.judge.checks.triton import TritonCheck
from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage
from weir.kernel_eval.tasks.reference import InvalidReference, Reference, UnsupportedReference

_ROOM_BYTES, _ROOM_FILES = 4 << 20, 64


def judge(job: Job, leases: Leases) -> Judgement:
    """One evaluation, from the candidate's source to a judgement. Raises only what is our own mistake."""
    started = time.monotonic()
    evaluation = _evaluation(job)
    try:
        evaluation.run(leases, _reference(job.reference_src, job.limits.reference_timeout_s, job.limits.gpu))
        stage, fault, message = Stage.CORRECT, None, ""
    except Found as found:
        stage, fault, message = found.stage, found.fault, found.message
        evaluation.details.update(found.details)
    except (InvalidReference, UnsupportedValue) as error:
        stage, fault, message = Stage.NOTHING, Fault.INVALID_REFERENCE, str(error)
    except UnsupportedReference as error:
        stage, fault, message = Stage.NOTHING, Fault.UNSUPPORTED, str(error)
    except ZygoteLost:
        stage, fault, message = Stage.NOTHING, Fault.SERVER_ERROR, "a process that forks workers is gone"
    finally:
        leases.close()
        evaluation.close()
    if fault is not None and not fault.ours and _disk_is_full():
        stage, fault = Stage.NOTHING, Fault.SERVER_ERROR
        message = "the disk under the server's temporary folder is full, so that nothing fails for sure: make room"
    return Judgement(
        stage=stage,
        fault=fault,
        message=message,
        trials=evaluation.trials,
        seconds=time.monotonic() - started,
        speedup=evaluation.speedup,
        timed=evaluation.timed,
        details=evaluation.details,
    )


def _disk_is_full() -> bool:
    """Whether processes lack room for files, now that those of this evaluation, and what they wrote, are gone."""
    disk = os.statvfs(".")
    return disk.f_bavail * disk.f_frsize < _ROOM_BYTES or (disk.f_files > 0 and disk.f_favail < _ROOM_FILES)


def _evaluation(job: Job) -> TritonCheck | NativeCheck | NativeRun:
    if job.backend == "triton":
        return TritonCheck(job)
    return NativeCheck(job, job.backend) if job.limits.gpu is None else NativeRun(job, job.backend)


@functools.lru_cache(maxsize=256)
def _reference(source: str, timeout_s: float, gpu: str | None) -> Reference:
    return Reference(source, timeout_s, on_gpu=gpu is not None)
