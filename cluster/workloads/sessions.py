"""Sessions of a Weir store as episodes: their own turns, lengths and think times, by the paths of their trees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb

from weir.cluster.errors import TraceInvalid
from weir.cluster.workloads.episode import Episode
from weir.store.reader import connect

# The main line of a session is the root's longest chain here: a call continues the one that ended last before it.
QUERY = """
SELECT session_id, started_us, finished_us, num_prompt_tokens, num_output_tokens
FROM calls WHERE num_output_tokens > 0 AND role IN ('root', 'turn')
ORDER BY session_id, started_us"""
SESSIONS = """
SELECT r.weight_version, s.group_id, s.session_id, epoch_us(s.created_at), epoch_us(s.finished_at)
FROM (SELECT weight_version, unnest(group_ids) AS group_id FROM rounds WHERE state = 'committed') r
JOIN sessions s USING (group_id) ORDER BY 1, 2, 4"""
READY = """
SELECT median(began - ended) FROM (
  SELECT DISTINCT epoch_us(p.began_at) AS began,
         (SELECT max(epoch_us(s.finished_at)) FROM sessions s WHERE s.finished_at <= p.began_at) AS ended
  FROM phases p WHERE p.event = 'sample_ready')"""


def read_store(root: Path | str) -> list[Episode]:
    """The recorded sessions, in the order of their arrival, which counts from the first.

    A turn's new tokens are its prompt beyond the context that the turn before it left; a history that was rewritten
    counts as the whole prompt. Seconds between an answer and the next call are the agent's think time.

    Raises:
        TraceInvalid: The store has no calls with tokens.
    """
    with connect(root) as db:
        sessions = _turns(db, root)
    first = min(turns[0][0] for turns in sessions.values())
    return sorted((_episode(turns, first) for turns in sessions.values()), key=lambda episode: episode.arrival_s)


def read_groups(root: Path | str, after: int = 0) -> list[Episode]:
    """The groups of rounds after so many, in their order: an episode for each, whose sessions run beside each other.

    Seconds from a session's begin to its first call, and from its last answer until its group is ready, are the
    agent's. A session begins where agents have a place for it: that is when it is registered.

    Raises:
        TraceInvalid: The store has no rounds over calls with tokens.
    """
    with connect(root) as db:
        turns, rows = _turns(db, root), db.execute(SESSIONS).fetchall()
        [(noticed_us,)] = db.execute(READY).fetchall()
    groups: dict[str, list[tuple[str, int, int | None]]] = {}
    first = sorted({version for version, *_ in rows})[:after]
    for version, group, session, created, finished in rows:
        if session in turns and version not in first:
            groups.setdefault(group, []).append((session, created, finished))
    if not groups:
        raise TraceInvalid(f"the store {root} has no rounds over calls whose tokens were recorded")
    episodes = []
    for sessions in groups.values():
        of_group = []
        for session, created, finished in sessions:
            episode, last = _episode(turns[session], created), turns[session][-1][1]
            thinks = (max(turns[session][0][0] - created, 0) / 1e6, *episode.thinks_s[1:])
            after_s = (max((finished or last) - last, 0) + (noticed_us or 0)) / 1e6
            of_group.append(replace(episode, thinks_s=thinks, after_s=after_s))
        episodes.append(replace(of_group[0], others=tuple(of_group[1:])))
    return episodes


def _turns(db: duckdb.DuckDBPyConnection, root: Path | str) -> dict[str, list[tuple[int, int, int, int]]]:
    """Start, end (µs), prompt and generated tokens of each call, by session."""
    sessions: dict[str, list[tuple[int, int, int, int]]] = {}
    for session, started, finished, prompt, output in db.execute(QUERY).fetchall():
        sessions.setdefault(session, []).append((started, finished, prompt, output))
    if not sessions:
        raise TraceInvalid(f"the store {root} has no calls whose tokens were recorded")
    return sessions


def _episode(turns: list[tuple[int, int, int, int]], first_us: int) -> Episode:
    inputs, outputs, thinks = [], [], []
    context, ended_us = 0, turns[0][0]
    for started, finished, prompt, output in turns:
        inputs.append(float(prompt - context if prompt > context else prompt))
        outputs.append(float(output))
        thinks.append(max(started - ended_us, 0) / 1e6)
        context, ended_us = prompt + output, finished
    return Episode(tuple(inputs), tuple(outputs), tuple(thinks), (turns[0][0] - first_us) / 1e6)
