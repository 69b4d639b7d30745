"""One whole call in the terminal: names, times, tokens, tools, messages, answer, and on request its tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from weir.scripts.cli.terminal.call_messages import answer_lines, request_lines, tools_of
from weir.scripts.cli.terminal.call_text import console_for_text, joined, one_line, plain, spans_text, stitch_text
from weir.store.errors import CallUnknown

if TYPE_CHECKING:
    import duckdb

_CALL = """
SELECT * EXCLUDE (request, answer, sampling, agent_ids), rule AS label_rule, CAST(request AS VARCHAR) AS request,
    CAST(answer AS VARCHAR) AS answer, CAST(sampling AS VARCHAR) AS sampling, CAST(agent_ids AS VARCHAR) AS agent_ids
FROM calls LEFT JOIN labels USING (call_id) WHERE starts_with(call_id, $1) ORDER BY call_id LIMIT 2
"""
_TOKENS = "SELECT position, token_id, logprob, version FROM tokens WHERE call_id = $1 ORDER BY position"
_FACTS = (
    *("session_id", "group_id", "session_source", "dialect", "level", "model", "stream", "role", "parent_call"),
    *("twin_of", "label", "label_rule", "linked_call", "request_id", "choice", "started_at", "duration_ms"),
    *("first_token_ms", "held_ms", "num_prompt_tokens", "num_new_tokens", "cached_tokens", "forced_tokens"),
    *("num_output_tokens", "finish", "finish_matched", "stitch_call", "retry_count", "sampling", "agent_ids"),
    *("user_agent", "error"),
)


def print_call(connection: duckdb.DuckDBPyConnection, name: str, with_tokens: bool) -> None:
    """Print everything recorded of the call with this id, or prefix of one. Raises CallUnknown."""
    call = _named(connection, name)
    console = console_for_text()
    console.print(f"[bold]{call['call_id']}[/]", highlight=False)
    for fact in _FACTS:
        if call[fact] not in (None, "", "{}", 0, False):
            console.print(f"[dim]{fact:17}[/] {plain(str(call[fact]))}", highlight=False)
    console.print(f"[dim]{'versions':17}[/] {spans_text(call['spans'])}", highlight=False)
    if call["stitch"]:
        console.print(f"[dim]{'stitch':17}[/] {stitch_text(call)}", highlight=False)
    request = json.loads(call["request"]) if call["request"] else None
    answer = json.loads(call["answer"]) if call["answer"] else None
    for tool in tools_of(request):
        console.print(f"[dim]{'tool':17}[/] {plain(tool.who)}  {plain(one_line(tool.text))}", highlight=False)
    for title, lines in (("request", request_lines(request)), ("answer", answer_lines(answer))):
        console.print(f"\n[bold]{title}[/]\n{joined(lines)}", highlight=False)
    if with_tokens:
        console.print("\n[bold]tokens[/]")
        for row in connection.execute(_TOKENS, [call["call_id"]]).fetchall():
            console.print("{:6} {:7} {:10.4f}  v{}".format(*row), highlight=False)


def _named(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, Any]:
    result = connection.execute(_CALL, [name])
    names = [column for column, *_ in result.description]
    found = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    exact = [call for call in found if call["call_id"] == name] or found
    if not exact:
        raise CallUnknown(f"there is no call whose id is or begins with {name!r}; see `weir show SESSION`")
    if len(exact) > 1:
        raise CallUnknown(f"{name!r} fits several calls, {exact[0]['call_id']} and more; give more of the id")
    return exact[0]
