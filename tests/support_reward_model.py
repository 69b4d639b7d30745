"""A small reward model behind HTTP: a reference for `rewards/reward_model.py`, and a start for your own.

It rewards an answer by a function of its text, remembers the batches that it was asked for, and can be out of order
for some requests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support_http import QuietHandler, listening


class RewardModel:
    """What the server was asked, and what it is to do wrong."""

    def __init__(self, url: str, reward: Callable[[str], Any]) -> None:
        self.url = url
        self.reward = reward
        self.batches: list[list[str]] = []  # the answers of each request that was served
        self.keys: set[str | None] = set()
        self.failures_left = 0
        self._lock = threading.Lock()

    def reply(self, key: str | None, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer."""
        answers = [item["answer"] for item in json.loads(body)["items"]]
        with self._lock:
            self.keys.add(key)
            if self.failures_left > 0:
                self.failures_left -= 1
                return 503, b"warming up"
            self.batches.append(answers)
        return 200, json.dumps({"rewards": [self.reward(answer) for answer in answers]}).encode()


@contextmanager
def reward_model(reward: Callable[[str], Any]) -> Iterator[RewardModel]:
    """A reward model on a free port."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = model.reply(self.headers["authorization"], body)
            self.answer(status, answer)

    with listening(Handler) as url:
        model = RewardModel(f"{url}/rewards", reward)
        yield model
