"""Measures the speedup of a proven candidate: its launches and the reference, timed alternately on one GPU.

The reference runs in the judge. The launches run in the player that ran the trials, which holds none of the candidate's
code but the machine code of its kernels. Each sample has inputs of its own, and every timed answer is compared. The
machine gives an evaluation exclusive use of its GPU.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch

from weir.kernel_eval.ipc.job import Job
from weir.kernel_eval.ipc.messages import Timed, TimePlay
from weir.kernel_eval.ipc.tensor_arena import Arena, tensors_among
from weir.kernel_eval.judge.channel.faults import rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.expected_answers import difference
from weir.kernel_eval.tasks.input_variants import PLAIN
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.kernel_eval.timing import roofline, sampling
from weir.kernel_eval.timing.cuda_clock import GpuClock, least_us

_REPEATS = 20
_TIMEOUT_FACTOR = 4.0


class SpeedCheck:
    """One candidate against its reference, on one GPU."""

    def __init__(
        self,
        job: Job,
        reference: Reference,
        model: Any,
        state: list[torch.Tensor],
        player: WorkerChannel,
        record: int = 0,
    ) -> None:
        """`record`: the number that the player has for the record of a call with the task's own inputs."""
        self._job = job
        self._reference = reference
        self._model = model
        self._timed = reference.fresh(model)
        self._state = state
        self._player = player
        self._record = record
        self._clock = GpuClock(0)
        self._numbers = itertools.count()

    def run(self, num_steps: int) -> roofline.Speed:
        """Measure and decide whether the speedup counts. Raises `FaultDetected` if a timed answer is wrong."""
        inputs, expected = self._question()
        least = least_us([*tensors_among(inputs)], expected.outputs)
        speed = roofline.decide(self._measure, least, self._job.baseline_us)
        wall_us = self._wall_us()
        if roofline.contradicts_clock(speed.candidate.median_us, wall_us, num_steps):
            return speed._replace(speedup=None, flagged=f"by the judge's clock a run takes {wall_us:.0f} us")
        return speed

    def _measure(self) -> tuple[sampling.Timing, sampling.Timing]:
        seed = derive_seed(self._job.secret, "turns", next(self._numbers))
        samples = min(self._job.num_perf_trials, sampling.MAX_SAMPLES)
        reference, candidate = sampling.measure([self._time_reference, self._time_candidate], seed, samples)
        return reference, candidate

    def _question(self) -> Any:
        seed = derive_seed(self._job.secret, "timing", next(self._numbers))
        return self._reference.question(self._model, seed, PLAIN)[:2]

    def _time_reference(self) -> float:
        inputs = self._reference.inputs(derive_seed(self._job.secret, "timing", next(self._numbers)))
        with torch.no_grad():
            return self._clock.time_us(lambda: self._timed(*inputs))

    def _time_candidate(self) -> float:
        inputs, expected = self._question()
        arena = self._arena(inputs, expected.outputs)
        try:
            took = self._time_play(arena, 0).us
            outputs = arena.take_outputs()
        finally:
            arena.close()
        wrong = difference(self._reference, self._model, inputs, expected, outputs)
        if wrong is not None:
            raise rule_broken("replay_differs", f"a timed call, without the candidate: {wrong.message}")
        return took

    def _wall_us(self) -> float:
        """Microseconds of one run by the judge's clock: the extra time of further runs, divided by their number."""
        inputs, expected = self._question()
        arena = self._arena(inputs, expected.outputs)
        try:
            marks = [time.perf_counter()]
            for repeats in (1, 1 + _REPEATS):
                self._time_play(arena, repeats)
                marks.append(time.perf_counter())
        finally:
            arena.close()
        one, many = marks[1] - marks[0], marks[2] - marks[1]
        return 1e6 * max(0.0, many - one) / _REPEATS

    def _arena(self, inputs: list[Any], outputs: list[torch.Tensor]) -> Arena:
        return Arena([tensors_among(inputs), self._state], outputs, self._job.limits.guard_bytes, on_gpu=True)

    def _time_play(self, arena: Arena, repeats: int) -> Timed:
        timeout_s = _TIMEOUT_FACTOR * self._job.limits.call_timeout_s
        message = TimePlay(self._record, arena.spec, repeats)
        return self._player.request(message, Timed, "replay", timeout_s, arena.fd)
