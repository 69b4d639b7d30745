"""One rank; torchrun starts one for each process (`launch/agent.py`). Arguments: the pool's work folder, the device.

Invariant: all ranks run the same requests and take the same decisions. A rank that fails ends with an error, which ends
all of them. Between requests a rank waits without using a processor.
"""

from __future__ import annotations

import os
import pickle
import select
import sys
import threading
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed as dist

from weir.store.parent_death import end_with_parent
from weir.trainer.errors import NotFinite
from weir.trainer.launch.agent import AGENT_PID
from weir.trainer.launch.heartbeats import beat
from weir.trainer.launch.pool import LEAVE, connected
from weir.trainer.learner.distributed import Ranks
from weir.trainer.model.token_model import choose_device

UNLIMITED = timedelta(days=3650)  # a pause between rounds is no fault
POLLRDHUP = 0x2000  # which the select module lacks before Python 3.14


def main(folder: Path, device: str) -> None:
    """Run requests until the owner of the work folder has no more, or ends."""
    end_with_parent(parent_pid=int(os.environ[AGENT_PID]))
    rank = int(os.environ["RANK"])
    if folder.is_dir():  # of this machine's pool; other machines have none
        beat(folder, rank)
    owner = connected(folder) if rank == 0 else None
    if owner is not None:
        threading.Thread(target=_end_with, args=(owner,), daemon=True).start()
    ranks = Ranks.of_torchrun(choose_device(device))
    turns: Any = dist.new_group(backend="gloo", timeout=UNLIMITED)
    held: dict[str, Any] = {}
    while (request := _next(owner, turns)) != LEAVE:
        try:
            answer = pickle.loads(request).run(ranks, held)
        except NotFinite as error:  # on all ranks
            answer = error
        if owner is not None:
            owner.send(answer)
    dist.barrier(group=turns)
    os._exit(0)  # gloo's threads sometimes abort an interpreter during its shutdown (torch 2.13)


def _next(owner: Connection[Any, Any] | None, turns: Any) -> bytes:
    """The next request, on all ranks."""
    given = [owner.recv_bytes() if owner is not None else LEAVE]
    dist.broadcast_object_list(given, group=turns)
    return given[0]


def _end_with(owner: Connection[Any, Any]) -> None:
    """End this process, and with it all ranks, as soon as the owner has closed its end or died."""
    poll = select.poll()
    poll.register(owner.fileno(), POLLRDHUP | select.POLLHUP)
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
