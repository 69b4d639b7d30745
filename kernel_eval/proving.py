"""A judge has a proof run (`proof.py`), on inputs that the candidate has never seen, and timed where a GPU is."""

from __future__ import annotations

import socket

from weir.kernel_eval import proof
from weir.kernel_eval.answers import difference
from weir.kernel_eval.arena import Arena, tensors_among
from weir.kernel_eval.judgement import Job, broken
from weir.kernel_eval.seeds import derive_seed
from weir.kernel_eval.speed import Speed
from weir.kernel_eval.speed_check import SpeedCheck
from weir.kernel_eval.trials import Trials
from weir.kernel_eval.variants import PLAIN, Variant
from weir.kernel_eval.worker_channel import Serve, WorkerChannel


def prove(job: Job, trials: Trials, lease: socket.socket, kernels: proof.Kernels, serve: Serve) -> Speed | None:
    """The launches of the first call must answer; how fast they do, where that is asked for. Raises `Found`."""
    assert trials.first is not None
    limits, reference, relaxed = job.limits, trials.reference, frozenset(job.relaxed_rules)
    on_gpu = limits.gpu is not None
    asked_once = trials.num_answered < 2 or "varied_inputs" in relaxed
    variant = PLAIN if asked_once else Variant(scale=-1.0)
    inputs, expected = reference.question(trials.model, derive_seed(job.secret, "proof"), variant)
    given = [tensors_among(inputs), trials.state]
    arena = Arena(given, expected.outputs, limits.guard_bytes, on_gpu=on_gpu)
    worker = WorkerChannel(lease, limits, trials.patience, serve=serve)
    try:
        if on_gpu:
            worker.prepare(limits.load_timeout_s)
        timeout_s = limits.call_timeout_s + (limits.compile_timeout_s if on_gpu else 0.0)
        outputs = proof.replay(worker, kernels, trials.first, arena, timeout_s, relaxed)
        wrong = difference(reference, trials.model, inputs, expected, outputs)
        if wrong is not None:
            raise broken("replay_differs", f"other inputs, without the candidate: {wrong.message}")
        if not (on_gpu and job.num_perf_trials):
            return None
        return SpeedCheck(job, reference, trials.model, trials.state, worker).run(len(trials.first.steps))
    finally:
        worker.end()
        worker.close()
        arena.close()
