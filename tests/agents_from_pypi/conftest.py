"""Third-party agents in front of a real proxy process and router, with a scripted engine behind them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from support_model import make_tiny_model, make_tokenizer
from support_scripted_engine import Script, ScriptedEngine, logprob_of
from support_stack import Stack, running_stack

from weir.store.reader import StoredCall, connect, load_calls

CODEX_NEEDS = 'drop_builtin_tools = ["web_search"]\n'


@dataclass(kw_only=True)
class Theatre:
    """A stack whose engine gives the test's scripted answers."""

    stack: Stack
    engine: ScriptedEngine
    _snapshot: duckdb.DuckDBPyConnection | None = None

    def play(self, *texts: str, stopped_by: str | None = None) -> list[Script]:
        """The engine gives these answers one after the other, and none after the last.

        Like SGLang, it ends an answer with the token that completes `stopped_by`, or else with the end of turn.
        """
        encode = make_tokenizer(512).encode
        end = "" if stopped_by else "<|im_end|>"
        answers = [Script(ids=encode(text + end, add_special_tokens=False), matched=stopped_by) for text in texts]
        todo = iter(answers)
        self.engine.requests.clear()
        self.engine.script = lambda _: next(todo)
        return answers

    def url(self, path: str = "/v1") -> str:
        """A base_url for an agent."""
        return self.stack.proxy.url + path

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The store's current content; queries inside share it, since opening it is what costs."""
        if self._snapshot is not None:
            yield self._snapshot
            return
        with connect(self.stack.settings.store) as self._snapshot:
            try:
                yield self._snapshot
            finally:
                self._snapshot = None

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of one SELECT on the store's current content."""
        with self.snapshot() as db:
            return db.execute(query, values).fetchall()

    def column(self, query: str, *values: Any) -> list[Any]:
        """The values of a SELECT with one column."""
        return [value for (value,) in self.rows(query, *values)]

    def calls(self, session_id: str) -> list[StoredCall]:
        """A session's calls as training reads them, oldest first."""
        return load_calls(self.stack.settings.store, [session_id])[session_id]

    def hold_answers(self, session_id: str, answers: Sequence[Script]) -> None:
        """Assert that the session's calls and their tokens are the played answers, id for id."""
        with self.snapshot():
            self._hold_answers(session_id, answers)

    def _hold_answers(self, session_id: str, answers: Sequence[Script]) -> None:
        query = "SELECT output_ids FROM calls WHERE session_id = ? ORDER BY started_us"
        assert self.column(query, session_id) == [answer.ids for answer in answers]
        query = "SELECT token_id FROM tokens JOIN calls USING (call_id) WHERE calls.session_id = ? ORDER BY ALL"
        assert self.column(query, session_id) == sorted(n for answer in answers for n in answer.ids)
        query = "SELECT num_calls, num_output_tokens FROM sessions WHERE session_id = ?"
        assert self.rows(query, session_id) == [(len(answers), sum(len(answer.ids) for answer in answers))]

    def hold_line(self, session_id: str, answers: Sequence[Script]) -> None:
        """Assert that the session is one branch: each call continues the one before it with its exact ids."""
        with self.snapshot():
            self._hold_line(session_id, answers)

    def _hold_line(self, session_id: str, answers: Sequence[Script]) -> None:
        self._hold_answers(session_id, answers)
        query = "SELECT call_id, parent_call, depth, stitch, stitch_call FROM calls WHERE session_id = ? ORDER BY depth"
        rows = self.rows(query, session_id)
        ids = [row[0] for row in rows]
        earlier = [None, *ids[:-1]]
        stitches = ["new_root", *["bridged"] * (len(ids) - 1)]
        assert rows == list(zip(ids, earlier, range(len(ids)), stitches, earlier, strict=True))

        calls = self.calls(session_id)
        assert [(call.call_id, call.parent_call) for call in calls] == list(zip(ids, earlier, strict=True))
        for one, next_one in itertools.pairwise(calls):
            exact = [*one.prompt_ids.tolist(), *one.output_ids.tolist()]
            assert next_one.prompt_ids[: len(exact)].tolist() == exact
            assert len(next_one.prompt_ids) > len(exact)
        for call, answer in zip(calls, answers, strict=True):
            assert call.output_logprobs.tolist() == [logprob_of(n, i) for i, n in enumerate(answer.ids)]

        num_sampled = sum(len(answer.ids) for answer in answers)
        num_tokens = len(calls[-1].prompt_ids) + len(calls[-1].output_ids)
        query = (
            "SELECT leaf_call, root_call, call_ids, num_sampled_tokens, num_tokens FROM branches WHERE session_id = ?"
        )
        assert self.rows(query, session_id) == [(ids[-1], ids[0], ids, num_sampled, num_tokens)]

    def last_turn(self, session_id: str) -> str:
        """The agent's messages between the last two answers, as text of the prompt."""
        one, last = self.calls(session_id)[-2:]
        start = len(one.prompt_ids) + len(one.output_ids)
        text: str = make_tokenizer(512).decode(last.prompt_ids[start:].tolist(), skip_special_tokens=False)
        return text


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    """One proxy process over one store for all tests of a file; the model has room for long system prompts."""
    folder = tmp_path_factory.mktemp("theatre")
    model = make_tiny_model(folder / "model", max_position_embeddings=65_536)
    engine = ScriptedEngine(lambda _: Script(ids=[])).start()
    try:
        with running_stack(folder, model=model, engine_urls=[engine.url], proxy_settings=CODEX_NEEDS) as stack:
            yield Theatre(stack=stack, engine=engine)
    finally:
        engine.stop()
