"""Sessions for the supervised warm-up: they show the form of look-ups and answers, and not which ones are right.

Invariant: what a session does depends on its question only in the first look-up. Whether it then looks up the boss,
and which field it answers with, is drawn at random, so that one answer in four is right. The same seed yields the same
bytes; only the split "train" appears.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from weir.scripts.demo_loop.language.directory import DIRECTORY, FIELDS, INSTRUCTIONS, PEOPLE, question
from weir.store.atomic_file import written_aside

NUM_SESSIONS = 160

Message = dict[str, str]


def make_sessions(seed: int, num_sessions: int = NUM_SESSIONS) -> list[list[Message]]:
    """The messages of `num_sessions` sessions, drawn from `seed` alone."""
    draw = random.Random(seed)
    return [_session(draw) for _ in range(num_sessions)]


def _session(draw: random.Random) -> list[Message]:
    entry = DIRECTORY[draw.choice(PEOPLE["train"].split())]
    asked = question(draw.choice(FIELDS), entry.person, of_boss=draw.random() < 0.5)
    messages = [_said("system", INSTRUCTIONS), _said("user", asked)]
    for looked_up in (entry, DIRECTORY[entry.boss])[: draw.choice((1, 2))]:
        messages += [_said("assistant", f"Look {looked_up.person}"), _said("user", looked_up.text)]
        last = looked_up
    return [*messages, _said("assistant", f"Answer {getattr(last, draw.choice(FIELDS))}")]


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def write_sessions(path: Path, seed: int, num_sessions: int = NUM_SESSIONS) -> None:
    """Write the sessions as JSON Lines for `run_sft`; the file appears whole or not at all."""
    lines = [msgspec.json.encode({"messages": messages}) + b"\n" for messages in make_sessions(seed, num_sessions)]
    with written_aside(path) as aside:
        aside.write_bytes(b"".join(lines))
