"""The HTML report of a store: one file without network access, every figure from a SQL query.

Charts: reward and correctness by weight version, faults by version, time by phase of each round, versions within calls.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weir.cluster.live.world import Phase
from weir.cluster.simulator.gantt import gantt
from weir.cluster.timeline import Activity, Segment
from weir.scripts.cli.report.svg import line_chart, stacked_bars
from weir.store.config import StoreConfig
from weir.store.transfer.output_file import output_file

if TYPE_CHECKING:
    import duckdb

NUM_FAULTS = 7  # shown in the chart; the rest is "other"
NUM_ROUNDS = 50  # in the table
SHOWN_S = 600  # of the members' timeline
ACTIVITY_OF = {
    Phase.ROLLOUT: Activity.GENERATE,
    Phase.TRAIN: Activity.TRAIN,
    Phase.WAITS: Activity.AWAITS_SAMPLES,
    Phase.SWITCH: Activity.SWITCH,
    Phase.LOAD: Activity.LOAD,
}

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --paper: #fdfdfc; --faint: #d9dde3; --soft: #5d6675;
  --series-0: #2f6fb2; --series-1: #2e9d6a; --series-2: #d07a2d; --series-3: #b8457c; --series-4: #7a5cc2;
  --series-5: #4b9fb0; --series-6: #b3a02c; --series-7: #8a8f98; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #15181d; --faint: #343a44; --soft: #9aa4b2; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 46rem;
  margin: 2.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0; } .soft, .empty { color: var(--soft); }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--soft); }
svg .grid { stroke: var(--faint); stroke-width: 1; }
.legend span { margin-right: 1rem; white-space: nowrap; color: var(--soft); font-size: .85rem; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: .15rem .5rem; border-bottom: 1px solid var(--faint); }
td:first-child, th:first-child { text-align: left; }
"""


def write_report(store: StoreConfig, path: Path) -> Path:
    """Write the report of the whole store to `path`; returns `path`.

    The file appears when it is complete. Raises OutputRefused where it cannot be written.
    """
    from weir.store.reader import connect

    with connect(store) as db:
        page = _page(store, db)
    with output_file(path) as aside:
        aside.write_text(page)
    return path


def _page(store: StoreConfig, db: duckdb.DuckDBPyConnection) -> str:
    sections = [
        ("Reward and correctness by weight version", _reward_by_version(db)),
        ("Held-out reward by weight version", _heldout_by_version(db)),
        ("Why answers failed, by weight version", _faults_by_version(db)),
        ("Solved tasks", _solved(db)),
        ("Seconds in each phase of a round", _phases(db)),
        ("What members of the cluster did, in shares of their time", _members(db)),
        ("What came to members beside that, in seconds", _beside(db)),
        (f"What members of the cluster did in the last {SHOWN_S // 60} minutes", _members_over_time(db)),
        ("Weight versions within one call", _versions_within_a_call(db)),
        ("The latest rounds", _rounds_table(db)),
        ("Samples of the latest rounds, by what was corrected or left out", _samples_table(db)),
    ]
    body = "".join(f"<section><h2>{escape(title)}</h2>{content}</section>" for title, content in sections)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Weir report</title>'
        f"<style>{_STYLE}</style></head><body><h1>Weir report</h1>"
        f'<p class="soft">{escape(str(store.root))}, {made}</p>{_summary(db)}{body}</body></html>\n'
    )


def _summary(db: duckdb.DuckDBPyConnection) -> str:
    calls, tokens, sessions = _rows(
        db, "select count(*), coalesce(sum(num_output_tokens), 0), count(distinct session_id) from calls"
    )[0]
    (groups,), (judged,) = _rows(db, "select count(*) from groups")[0], _rows(db, "select count(*) from evaluations")[0]
    return (
        f"<p>{calls:,} calls in {sessions:,} sessions and {groups:,} groups; {tokens:,} sampled tokens; "
        f"{judged:,} answers judged.</p>"
    )


def _reward_by_version(db: duckdb.DuckDBPyConnection) -> str:
    rows = _rows(
        db,
        """select version_max, avg(raw_reward), avg(correct::int)
           from evaluations join calls using (call_id) where version_max is not null group by 1 order by 1""",
    )
    reward = [(float(version), float(value)) for version, value, _ in rows]
    correct = [(float(version), float(value)) for version, _, value in rows]
    return line_chart(
        {"mean raw reward": reward, "share correct": correct} if rows else {}, x_title="weight version", high=1.0
    )


def _heldout_by_version(db: duckdb.DuckDBPyConnection) -> str:
    """Evaluations: sessions whose calls are all of one version, by that version; the others are counted."""
    rows = _rows(
        db,
        """select s.metadata ->> '$.evaluation' || ': ' || r.name, s.version_max, avg(r.value)
           from sessions s join rewards r using (session_id)
           where r.call_id is null and s.metadata ->> '$.evaluation' is not null and s.version_min = s.version_max
           group by all order by all""",
    )
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, version, value in rows:
        lines[name].append((float(version), float(value)))
    ((mixed,),) = _rows(
        db,
        """select count(*) from sessions
           where metadata ->> '$.evaluation' is not null and version_min != version_max""",
    )
    note = f"<p>{mixed:,} sessions that saw two versions are left out.</p>" if mixed else ""
    highest = max((value for line in lines.values() for _, value in line), default=1.0)
    return line_chart(dict(lines), x_title="weight version", high=max(highest, 1.0)) + note


def _faults_by_version(db: duckdb.DuckDBPyConnection) -> str:
    rows = _rows(
        db,
        """select version_max, coalesce(fault, ''), count(*)
           from evaluations join calls using (call_id) where version_max is not null group by all order by 1""",
    )
    totals: dict[str, int] = defaultdict(int)
    by_version: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for version, fault, count in rows:
        by_version[version][fault] += count
        totals[fault] += count
    named = sorted((fault for fault in totals if fault), key=lambda fault: -totals[fault])[:NUM_FAULTS]
    bars = [(str(version), _shares(counts, named)) for version, counts in sorted(by_version.items())]
    return stacked_bars(bars, x_title="weight version (share of answers; the rest is correct)", high=1.0)


def _shares(counts: dict[str, int], named: list[str]) -> dict[str, float]:
    total = sum(counts.values())
    shares = {fault: counts.get(fault, 0) / total for fault in named}
    other = sum(count for fault, count in counts.items() if fault and fault not in named)
    return shares | ({"other": other / total} if other else {})


def _solved(db: duckdb.DuckDBPyConnection) -> str:
    """pass@k, compile@k, fast_p, and the distribution of speedups where they were measured."""
    chances = "".join(
        f"<tr><td>{k}</td><td>{passes:.3f}</td><td>{compiles:.3f}</td><td>{groups:,}</td></tr>"
        for k, groups, passes, compiles in _rows(db, "select * from pass_at_k")
    )
    shares = "".join(
        f"<tr><td>{p:g}</td><td>{share:.3f}</td></tr>" for p, _, share in _rows(db, "select * from fast_p")
    )
    if not chances:
        return "<p>Nothing was judged.</p>"
    spread = _rows(db, "select count(*), avg(log2(speedup)), median(log2(speedup)) from evaluations where speedup > 0")
    measured, mean, median = spread[0]
    speeds = f"<p>{measured:,} speedups: log2 mean {mean:.2f}, median {median:.2f}.</p>" if measured else ""
    return (
        f"<table><tr><th>k</th><th>pass@k</th><th>compile@k</th><th>groups</th></tr>{chances}</table>"
        f"<table><tr><th>p</th><th>fast_p</th></tr>{shares}</table>{speeds}"
    )


def _phases(db: duckdb.DuckDBPyConnection) -> str:
    rounds = _rounds(db)
    bars = [
        (str(number), {name: float(s) for name, s in metrics.get("seconds", {}).items()}) for number, metrics in rounds
    ]
    return stacked_bars(bars, x_title="round", unit=" s")


def _members(db: duckdb.DuckDBPyConnection) -> str:
    """Work and idle time by cause, of each member, under `weir train`."""
    rows = _rows(
        db,
        """with spent as (
             select member, unnest(json_keys(seconds)) as activity, seconds from phases where seconds is not null)
           select member, activity, sum((seconds ->> activity)::double) from spent
           where activity <> 'no_role' and not ends_with(activity, '_beside')
           group by all order by member, activity""",
    )
    sums: dict[str, dict[str, float]] = defaultdict(dict)
    for member, activity, seconds in rows:
        sums[member][activity] = seconds
    shares = [(member, {what: s / sum(of.values()) for what, s in of.items()}) for member, of in sums.items()]
    return stacked_bars(shares, x_title="member", high=1.0)


def _beside(db: duckdb.DuckDBPyConnection) -> str:
    """Seconds in which weights or the optimiser's state came to members that still took calls."""
    rows = _rows(
        db,
        """with spent as (
             select member, unnest(json_keys(seconds)) as activity, seconds from phases where seconds is not null)
           select member, activity, sum((seconds ->> activity)::double) from spent
           where ends_with(activity, '_beside') group by all order by member, activity""",
    )
    sums: dict[str, dict[str, float]] = defaultdict(dict)
    for member, activity, seconds in rows:
        sums[member][activity.removesuffix("_beside")] = seconds
    return stacked_bars(list(sums.items()), x_title="member", unit=" s")


def _members_over_time(db: duckdb.DuckDBPyConnection) -> str:
    rows = _rows(
        db,
        """with ends as (select *, epoch(began_at) as began, epoch(coalesce(ended_at, began_at)) as ended from phases),
             last as (select max(ended) - $shown as since, max(ended) as until from ends)
           select member, phase, greatest(began, since) - since, ended - since, until - since
           from ends, last where ended > since and phase <> 'lost' order by began""",
        {"shown": float(SHOWN_S)},
    )
    if not rows:
        return "<p>No controller has decided here.</p>"
    segments = [Segment(member, ACTIVITY_OF[phase], start, end) for member, phase, start, end, _ in rows]
    return gantt(segments, "phases of members", start_s=min(row[2] for row in rows), end_s=rows[0][4])


def _versions_within_a_call(db: duckdb.DuckDBPyConnection) -> str:
    rows = _rows(db, "select num_versions, count(*) from calls where num_versions > 0 group by 1 order by 1")
    cells = "".join(f"<tr><td>{versions}</td><td>{count:,}</td></tr>" for versions, count in rows)
    return f"<table><tr><th>weight versions that wrote the answer</th><th>calls</th></tr>{cells}</table>"


def _rounds_table(db: duckdb.DuckDBPyConnection) -> str:
    names = ("reward_mean", "correct", "entropy", "kl_k3", "grad_norm", "fresh_logprob_diff_max", "staleness_mean")
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in ("round", *names))
    rows = "".join(
        f"<tr><td>{number}</td>{''.join(f'<td>{_figure(metrics.get(name))}</td>' for name in names)}</tr>"
        for number, metrics in _rounds(db)[-NUM_ROUNDS:]
    )
    return f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _samples_table(db: duckdb.DuckDBPyConnection) -> str:
    """Calls, samples, and how many samples were corrected and calls left out for each reason, round by round."""
    rounds = _rounds(db)[-NUM_ROUNDS:]
    counts = [
        {"calls": metrics.get("calls"), "samples": metrics.get("samples")}
        | {f"{kind}: {name}": n for kind in ("corrected", "skipped") for name, n in metrics.get(kind, {}).items()}
        for _, metrics in rounds
    ]
    names = sorted({name for count in counts for name in count}, key=lambda name: (":" in name, name))
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in ("round", *names))
    rows = "".join(
        f"<tr><td>{number}</td>{''.join(f'<td>{_figure(count.get(name, 0))}</td>' for name in names)}</tr>"
        for (number, _), count in zip(rounds, counts, strict=True)
    )
    return f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _figure(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""


def _rounds(db: duckdb.DuckDBPyConnection) -> list[tuple[int, dict[str, Any]]]:
    rows = _rows(db, "select round_id, metrics::varchar from rounds where metrics is not null order by 1")
    rounds = [(number, json.loads(metrics)) for number, metrics in rows]
    for _, metrics in rounds:
        if not metrics.get("fresh_tokens"):  # nothing was compared
            metrics.pop("fresh_logprob_diff_max", None)
    return rounds


def _rows(
    db: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, float] | None = None
) -> list[tuple[Any, ...]]:
    return db.execute(query, parameters or {}).fetchall()
