"""Ranks that kill themselves at a named call: by a sample that arms them when it is unpickled."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from weir.trainer.credit.samples import Sample


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Rank `rank` dies when it calls `path` for the `call`th time: `module:name` or `module:class.name`.

    With `node` its machine dies: the agent that started it, with which its ranks end.
    """

    rank: int
    path: str
    call: int = 1
    node: bool = False


class Armed:
    """A sample that arms the rank that unpickles it."""

    def __init__(self, sample: Sample, kill: Kill) -> None:
        self.sample, self.kill = sample, kill

    def __reduce__(self) -> Any:
        return _armed, (self.sample, self.kill)


def _armed(sample: Sample, kill: Kill) -> Sample:
    if int(os.environ["RANK"]) == kill.rank:
        module, _, path = kill.path.partition(":")
        *owners, name = path.split(".")
        place: Any = import_module(module)
        for owner in owners:
            place = getattr(place, owner)
        original, calls = getattr(place, name), [0]

        def dies(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == kill.call:
                os.kill(os.getppid() if kill.node else os.getpid(), signal.SIGKILL)
                signal.pause()
            return original(*args, **kwargs)

        setattr(place, name, dies)
    return sample
