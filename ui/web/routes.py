"""The routes: each page is an address, and the same address with `.json` is its data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Send

from weir.store.errors import QueryRefused, QueryStopped
from weir.store.query.question import asking, check_question
from weir.ui.data.call import call, call_tokens, pretty, round_of_call
from weir.ui.data.compare import compare, task_over_versions
from weir.ui.data.cookbook import cookbook
from weir.ui.data.curves import curves
from weir.ui.data.long_text import rest_of_text
from weir.ui.data.question import answer, as_csv, as_json_lines, as_parquet, schema
from weir.ui.data.run import run
from weir.ui.data.session import session
from weir.ui.data.sessions import SORT_COLUMNS, Page, sessions_page
from weir.ui.data.side_by_side import side_by_side
from weir.ui.data.timeline import ROUNDS_SHOWN
from weir.ui.errors import BadQuestion, NotFound
from weir.ui.other_stores import OtherStores
from weir.ui.round_tokens import Found, RoundTokens
from weir.ui.servers import Servers
from weir.ui.snapshots import Snapshot, Snapshots
from weir.ui.web.answers import Answers
from weir.ui.web.rendering import Pages, as_json, clock

DOWNLOADS_AT_ONCE = 2
LIVE_SILENCE_S = 15.0
COUNT_DIGITS = 19  # of 64 bits
MOST_ROUNDS = 1000  # of the timeline
EXAMPLE = (
    "SELECT version_max AS version, count(*) AS sessions, avg(reward) AS reward\nFROM sessions GROUP BY ALL ORDER BY 1"
)

Handler = Callable[[Request], Awaitable[Response]]
Files = dict[str, tuple[str, Callable[[duckdb.DuckDBPyConnection, str], Iterator[bytes]]]]
FILES: Files = {
    "csv": ("text/csv; charset=utf-8", as_csv),
    "jsonl": ("application/x-ndjson", as_json_lines),
    "parquet": ("application/vnd.apache.parquet", as_parquet),
}


class Routes:
    """The handlers of one page server."""

    def __init__(
        self,
        snapshots: Snapshots,
        servers: Servers,
        others: OtherStores,
        round_tokens: RoundTokens,
        pages: Pages,
        tokenizer: Path | None,
        name: str,
    ) -> None:
        self._snapshots = snapshots
        self._servers = servers
        self._others = others
        self._round_tokens = round_tokens
        self._pages = pages
        self._tokenizer = tokenizer
        self._name = name
        self._answers = Answers()
        self._downloads = asyncio.Semaphore(DOWNLOADS_AT_ONCE)

    def routes(self) -> list[BaseRoute]:
        """All addresses."""
        both = {
            "/": self.run,
            "/sessions": self.sessions,
            "/sessions/{session_id:path}": self.session,
            "/session": self.session,
            "/calls/{call_id:path}": self.call,
            "/call": self.call,
            "/compare": self.compare,
            "/compare/sessions": self.compare_sessions,
            "/compare/task": self.compare_task,
            "/sql": self.sql,
        }
        pages: list[BaseRoute] = []
        for path, handler in both.items():
            framed = self._framed(handler)
            pages += [Route("/run.json" if path == "/" else f"{path}.json", framed), Route(path, framed)]
        return [
            Route("/calls/{call_id:path}/tokens.json", self.tokens),
            Route("/call/tokens.json", self.tokens),
            Route("/rest", self.rest),
            Route("/curves.json", self.curves),
            Route("/schema.json", self.schema),
            Route("/download/{kind}", self.download),
            Route("/live", self.live),
            Route("/health", self.health),
            Mount("/static", StaticFiles(directory=Path(__file__).parent.parent / "static")),
            *pages,
        ]

    def _framed(self, handler: Handler) -> Handler:
        """A handler that says how old the view was when it began: what is read may be newer, and never older.

        What it shows is made of that view, of what servers said last, and of the address: viewers share one answer.
        """

        async def answer(request: Request) -> Response:
            request.state.snapshot, request.state.seen = self._snapshots.newest, self._state_now()
            state = (request.state.snapshot, request.state.seen, self._servers.asked_at, self._snapshots.last_error)
            return await self._answers.of(state, f"{request.url.path}?{request.url.query}", lambda: handler(request))

        return answer

    async def run(self, request: Request) -> Response:
        """The run: totals, curves, rounds."""
        num_rounds = max(1, min(_whole(request, "rounds") or ROUNDS_SHOWN[2], MOST_ROUNDS))
        found = await self._snapshots.read(run, num_rounds, _whole(request, "newest"))
        now = {"now": await self._servers.state(), "rounds_shown": ROUNDS_SHOWN}
        return self._answer(request, "run.html", found | now)

    async def sessions(self, request: Request) -> Response:
        """The table of sessions."""
        given = request.query_params
        page = Page(
            where=given.get("where", ""),
            sort=given.get("sort", "started_at"),
            descending=given.get("order", "desc") != "asc",
            after=given.get("after", ""),
        )
        view = {"where": page.where, "sort": page.sort, "order": "desc" if page.descending else "asc", "refused": None}
        try:
            read = self._snapshots.read_as_written if page.where else self._snapshots.read
            found = await read(sessions_page, page)
        except (QueryRefused, BadQuestion) as error:
            if request.url.path.endswith(".json"):
                raise
            empty = {"sessions": [], "num_sessions": 0, "next": None, "facets": []}
            values = {**view, **empty, "refused": str(error), "sort_columns": SORT_COLUMNS}
            return self._answer(request, "sessions.html", values, 400)
        return self._answer(request, "sessions.html", view | found | {"sort_columns": SORT_COLUMNS})

    async def session(self, request: Request) -> Response:
        """One session."""
        return self._answer(request, "session.html", await self._snapshots.read(session, _id(request, "session_id")))

    async def call(self, request: Request) -> Response:
        """One call."""
        found = await self._snapshots.read(call, _id(request, "call_id"))
        return self._answer(request, "call.html", found | {"pretty": pretty})

    async def tokens(self, request: Request) -> Response:
        """The tokens of a call."""
        call_id = _id(request, "call_id")
        round_id = await self._snapshots.read(round_of_call, call_id)
        kept = Found() if round_id is None else await self._round_tokens.of(round_id)
        found = await self._snapshots.read(call_tokens, call_id, self._tokenizer, kept.path)
        return as_json(found | {"note": " ".join(filter(None, (found["note"], kept.note)))})

    async def rest(self, request: Request) -> Response:
        """What follows the shown beginning of a long text."""
        names = (request.query_params.get(name, "") for name in ("session", "call", "at"))
        return PlainTextResponse(await self._snapshots.read(rest_of_text, *names))

    async def compare(self, request: Request) -> Response:
        """Two versions side by side."""
        a, b = (_whole(request, name) for name in ("a", "b"))
        return self._answer(request, "compare.html", await self._snapshots.read(compare, a, b))

    async def compare_sessions(self, request: Request) -> Response:
        """Two sessions side by side."""
        a, b = (request.query_params.get(name, "") for name in ("a", "b"))
        return self._answer(request, "side_by_side.html", await self._snapshots.read(side_by_side, a, b))

    async def compare_task(self, request: Request) -> Response:
        """One task over all versions."""
        found = await self._snapshots.read(task_over_versions, request.query_params.get("task", ""))
        return self._answer(request, "task.html", found)

    async def curves(self, request: Request) -> Response:
        """The numbers of all rounds, of this store and of the others."""
        own = await self._snapshots.read(curves, self._name)
        others = await self._others.curves()
        return as_json({"runs": [own, *others["runs"]], "unread": others["unread"]})

    async def schema(self, request: Request) -> Response:
        """The names that a question may use."""
        return as_json(await self._snapshots.read(schema))

    async def sql(self, request: Request) -> Response:
        """A question and its answer."""
        question = request.query_params.get("q", "")
        values: dict[str, Any] = {"q": question or EXAMPLE, "answer": None, "refused": None}
        status = 200
        if question.strip():
            try:
                values["answer"] = await self._snapshots.read_as_written(answer, question)
            except (QueryRefused, QueryStopped) as error:
                if request.url.path.endswith(".json"):
                    raise
                values["refused"], status = str(error), 400
        if request.url.path.endswith(".json"):
            return as_json(values["answer"])
        return self._answer(request, "sql.html", values | {"cookbook": cookbook()}, status)

    async def download(self, request: Request) -> Response:
        """The whole answer to a question, as a file.

        Raises NotFound for a format that there is not, and what a question raises that fails before its first rows.
        """
        kind, question = request.path_params["kind"], request.query_params.get("q", "")
        if kind not in FILES:
            raise NotFound(f"there is no format {kind!r}: choose one of {', '.join(FILES)}")
        await self._snapshots.read(check_question, question)
        media_type, form = FILES[kind]
        name = f'attachment; filename="answer.{kind}"'
        return _Download(self._file(form, question), media_type=media_type, headers={"content-disposition": name})

    async def _file(
        self, form: Callable[[duckdb.DuckDBPyConnection, str], Iterator[bytes]], question: str
    ) -> AsyncIterator[bytes]:
        """The chunks of a file, each computed when the reader has taken the one before it."""
        async with self._downloads:
            cursor = self._snapshots.newest.connection.cursor()
            thread = ThreadPoolExecutor(1, "weir-ui-download")  # one thread: what it is asked runs in that order
            loop = asyncio.get_running_loop()
            chunks = _asked(cursor, form(cursor, question))
            try:
                while (chunk := await loop.run_in_executor(thread, next, chunks, None)) is not None:
                    yield chunk
            finally:  # also for a reader who leaves while a chunk is computed: nothing here waits for it
                cursor.interrupt()
                thread.submit(chunks.close)
                thread.submit(cursor.close)
                thread.shutdown(wait=False)

    async def live(self, request: Request) -> Response:
        """Server-sent events: one `changed` for each renewal of the store's view that shows something new.

        What a page has is named by `seen`, and after a lost connection by the last event, so that no change between is
        missed; without either it is what there is now.
        """
        has = request.headers.get("last-event-id") or request.query_params.get("seen")
        seen = self._state_now() if not has else _counts(has)
        return StreamingResponse(
            self._events(seen), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def _events(self, seen: tuple[int, ...]) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        while True:
            if await self._snapshots.next_change(seen, LIVE_SILENCE_S, self._state_now) == seen:
                yield b": still here\n\n"
                continue
            seen = self._state_now()
            told = {"as_of": clock(self._snapshots.newest.taken_at), "calls": seen[0]}
            event = f"event: changed\nid: {_name(seen)}\ndata: "
            yield event.encode() + msgspec.json.encode(told) + b"\n\n"

    def _state_now(self) -> tuple[int, ...]:
        """What a page shows now, as numbers: what is recorded, the state of the servers, and the other stores."""
        self._snapshots.renew_if_old()
        self._servers.ask_if_old()
        self._others.read_if_old()
        return (*self._snapshots.newest.counts, self._servers.revision, self._others.revision)

    async def health(self, request: Request) -> Response:
        """Whether the page can answer, and how old its view of the store is."""
        newest, error = self._snapshots.newest, self._snapshots.last_error
        return as_json({"as_of": clock(newest.taken_at), "renewal_s": newest.cost_s, "error": error})

    def _answer(self, request: Request, template: str, values: dict[str, Any], status: int = 200) -> Response:
        if request.url.path.endswith(".json"):
            return as_json({name: value for name, value in values.items() if not callable(value)}, status)
        snapshot: Snapshot = request.state.snapshot
        frame = {
            "as_of": clock(snapshot.taken_at),
            "seen": _name(request.state.seen),
            "stale": self._snapshots.last_error,
            "path": request.url.path,
            "given": dict(request.query_params),
        }
        return self._pages.page(template, frame | values, status)


class _Download(StreamingResponse):
    """A file whose head is sent when there is a first chunk, so that what fails before that is answered as an error."""

    async def stream_response(self, send: Send) -> None:
        chunks = aiter(self.body_iterator)
        self.body_iterator = _continued(await anext(chunks, b""), chunks)
        await super().stream_response(send)


async def _continued(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for chunk in rest:
        yield chunk


def _asked(cursor: duckdb.DuckDBPyConnection, chunks: Iterator[bytes]) -> Generator[bytes]:
    with asking(cursor):
        yield from chunks


def _name(counts: tuple[int, ...]) -> str:
    return "-".join(map(str, counts))


def _counts(name: str) -> tuple[int, ...]:
    """What a page has, by the name that it was given; another text is another state."""
    return tuple(int(part) for part in name.split("-") if part.isdecimal() and len(part) <= COUNT_DIGITS)


def _id(request: Request, name: str) -> str:
    """What the page is of: an id in the path, or in the parameter `id` (`addresses.py`). Raises BadQuestion."""
    found: str = request.path_params.get(name) or request.query_params.get("id", "")
    if not found:
        raise BadQuestion("the parameter `id` is missing: it names what the page is of")
    return found


def _whole(request: Request, name: str) -> int | None:
    """A parameter that is an integer; None without it. Raises BadQuestion."""
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise BadQuestion(f"{name} = {text!r}: give an integer") from error
