"""Sessions of a Weir store as episodes: their own turns, lengths and think times, by the paths of their trees."""

from __future__ import annotations

from pathlib import Path

from weir.cluster.errors import TraceInvalid
from weir.cluster.workloads.episode import Episode
from weir.store.reader import connect

# The main line of a session is the root's longest chain here: a call continues the one that ended last before it.
QUERY = """
SELECT session_id, started_us, finished_us, num_prompt_tokens, num_output_tokens
FROM calls WHERE num_output_tokens > 0 AND role IN ('root', 'turn')
ORDER BY session_id, started_us"""


def read_store(root: Path | str) -> list[Episode]:
    """The recorded sessions, in the order of their arrival, which counts from the first.

    A turn's new tokens are its prompt beyond the context that the turn before it left; a history that was rewritten
    counts as the whole prompt. Seconds between an answer and the next call are the agent's think time.

    Raises:
        TraceInvalid: The store has no calls with tokens.
    """
    with connect(root) as db:
        rows = db.execute(QUERY).fetchall()
    sessions: dict[str, list[tuple[int, int, int, int]]] = {}
    for session, started, finished, prompt, output in rows:
        sessions.setdefault(session, []).append((started, finished, prompt, output))
    if not sessions:
        raise TraceInvalid(f"the store {root} has no calls whose tokens were recorded")
    first = min(turns[0][0] for turns in sessions.values())
    return sorted((_episode(turns, first) for turns in sessions.values()), key=lambda episode: episode.arrival_s)


def _episode(turns: list[tuple[int, int, int, int]], first_us: int) -> Episode:
    inputs, outputs, thinks = [], [], []
    context, ended_us = 0, turns[0][0]
    for started, finished, prompt, output in turns:
        inputs.append(float(prompt - context if prompt > context else prompt))
        outputs.append(float(output))
        thinks.append(max(started - ended_us, 0) / 1e6)
        context, ended_us = prompt + output, finished
    return Episode(tuple(inputs), tuple(outputs), tuple(thinks), (turns[0][0] - first_us) / 1e6)
