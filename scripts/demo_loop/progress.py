"""How far the demo is: a line whenever something is done, and at least every ten seconds, with the time that is left.

The time left is reckoned from this very run: from the pace of the phase that runs, once a part of it is done, and for
the phases to come from what each takes on two quiet cores, times how much slower this machine has been so far.
Invariant: showing progress changes no result; its thread only prints.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

SILENCE_S = 8.0  # after it a line is due; a busy machine may print it a little later
ENOUGH = 0.05  # the part of a phase that must be done before its own pace is believed

LOADING, MODEL, COLD_START, START = "loading PyTorch", "making the model", "cold start", "starting the servers"
BEFORE, TRAINING, AFTER = "measuring before training", "training", "measuring after training"
REPORT = "writing the report"

# What each phase takes on two quiet cores, in seconds, training by the round: only the time left is reckoned from it.
EXPECTED_S = {LOADING: 6.0, MODEL: 2.0, COLD_START: 85.0, START: 12.0, BEFORE: 16.0, TRAINING: 3.5, AFTER: 14.0}
EXPECTED_REPORT_S = 4.0

Say = Callable[[str], None]


def expected_s(rounds: int) -> dict[str, float]:
    """The phases of a run in their order, with the seconds that they are expected to take."""
    return EXPECTED_S | {TRAINING: EXPECTED_S[TRAINING] * rounds, REPORT: EXPECTED_REPORT_S}


class Progress:
    """The phases of a run, with the seconds that each is expected to take. A context: inside it prints."""

    def __init__(
        self,
        expected_s: Mapping[str, float],
        say: Say,
        *,
        clock: Callable[[], float] = time.monotonic,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._expected = dict(expected_s)
        self._say = say
        self._clock, self._silence_s = clock, silence_s
        self._started = self._phase_started = self._last_line = clock()
        self._finished: set[str] = set()
        self._phase = next(iter(self._expected))
        self._done, self._total, self._unit, self._note = 0, 0, "", ""
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._beat, name="demo-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self, phase: str, total: int = 0, unit: str = "") -> None:
        """The next phase runs; `total` of what it counts, where it counts something."""
        with self._lock:
            if phase != self._phase:
                self._finished.add(self._phase)
            self._phase, self._phase_started = phase, self._clock()
            self._done, self._total, self._unit, self._note = 0, total, unit, ""

    def advance(self, done: int, note: str = "") -> None:
        """So much of the phase is done."""
        with self._lock:
            self._done, self._note = done, note

    def say(self, line: str) -> None:
        """Print a line now."""
        with self._lock:
            self._last_line = self._clock()
            self._say(line)

    def status(self) -> str:
        """What happens, how far it is, how long it will take."""
        with self._lock:
            counted = f": {self._done} of {self._total} {self._unit}".rstrip() if self._total else ""
            note = f", {self._note}" if self._note else ""
            return f"{self._phase}{counted}{note}; {self.left()}"

    def left(self) -> str:
        """The time left, in words."""
        return f"about {duration(self.seconds_left())} left"

    def seconds_left(self) -> float:
        """Until the run ends, as far as can be told now."""
        with self._lock:
            now = self._clock()
            in_phase, expected = now - self._phase_started, self._expected[self._phase]
            done_s = sum(self._expected[phase] for phase in self._finished)
            pace = (self._phase_started - self._started) / done_s if done_s else 1.0
            share = self._done / self._total if self._total else 0.0
            if share >= ENOUGH:
                phase_s = in_phase / share
                pace = (now - self._started) / (done_s + share * expected)
            else:
                phase_s = max(expected * pace, in_phase)
            to_come = sum(
                s for phase, s in self._expected.items() if phase not in self._finished and phase != self._phase
            )
            return phase_s - in_phase + to_come * pace

    def _beat(self) -> None:
        while not self._ended.wait(max(0.01, self._last_line + self._silence_s - self._clock())):
            with self._lock:
                if self._clock() - self._last_line >= self._silence_s:
                    self.say(self.status())


def duration(seconds: float) -> str:
    """Seconds below a minute and a half in tens, minutes above."""
    if seconds < 90:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{round(seconds / 60)} min"
