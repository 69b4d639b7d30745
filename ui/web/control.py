"""The addresses at which people act: a login, what an action would do, doing it, and the audit.

Invariants: nothing is done by a GET; a POST is refused unless the browser says that it comes from a page of this server
and, but for the login, it bears the login's signature of exactly what it sends. Every form works without JavaScript.
"""

from __future__ import annotations

import asyncio
import datetime
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from weir.store.catalog.audit.actions import Action, end_action, find_action, latest_actions
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.pins import pins
from weir.store.config import StoreConfig
from weir.store.query.trajectories import Policy
from weir.store.records.ids import new_id
from weir.ui.control.actions import ROUND, Who, begin, perform, plan_action
from weir.ui.control.commands import Commands
from weir.ui.control.exports import FORMATS, export_file
from weir.ui.control.login import LOGIN_S, Login, Logins
from weir.ui.control.pins import PREFIX
from weir.ui.control.plan import NOTE_CHARACTERS, Plan, View
from weir.ui.control.weights import plan_round
from weir.ui.errors import BadQuestion, Forbidden, NotFound, UiError, Unavailable
from weir.ui.snapshots import Snapshots
from weir.ui.web.rendering import Pages, as_json

FORM_BYTES = 65_536
FORM_FIELDS = 40
SHOWN_ACTIONS = 200
SHOWN_VERSIONS = 30
KEPT_PLANS = 100

Frame = dict[str, Any]


class ControlRoutes:
    """The handlers of logins and actions."""

    def __init__(
        self, snapshots: Snapshots, pages: Pages, catalog: Catalog, logins: Logins, commands: Commands
    ) -> None:
        self._snapshots = snapshots
        self._pages = pages
        self._catalog = catalog
        self._logins = logins
        self._commands = commands
        self._plans: dict[str, tuple[str, Plan]] = {}  # by action: its kind, and what was shown, the oldest first

    def routes(self) -> list[BaseRoute]:
        """All addresses."""
        return [
            Route("/login", self.login_form, methods=["GET"]),
            Route("/login", self.login, methods=["POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/do/{kind}", self.show, methods=["GET"]),
            Route("/do/{kind}", self.do, methods=["POST"]),
            Route("/actions.json", self.actions, methods=["GET"]),
            Route("/actions", self.actions, methods=["GET"]),
            Route("/actions/{action_id}.json", self.action, methods=["GET"]),
            Route("/actions/{action_id}", self.action, methods=["GET"]),
            Route("/actions/{action_id}/file", self.file, methods=["GET"]),
        ]

    async def login_form(self, request: Request) -> Response:
        """Where the control key is given."""
        following = _own_path(request.query_params.get("next", ""))
        return self._page(request, "login.html", {"next": following})

    async def login(self, request: Request) -> Response:
        """Open a login, and go on to where it was asked for. Raises what `Logins.open` does, and Forbidden."""
        form = await _form(request)
        cookie = self._logins.open(form.get("key", ""), form.get("person", ""))
        answer = RedirectResponse(_own_path(form.get("next", "")), 303)
        answer.set_cookie(
            _cookie_name(request),
            cookie,
            max_age=int(LOGIN_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def logout(self, request: Request) -> Response:
        """End the login. Raises Forbidden."""
        await self._signed_form(request)
        self._logins.close(request.cookies.get(_cookie_name(request), ""))
        answer = RedirectResponse("/actions", 303)
        answer.delete_cookie(_cookie_name(request), httponly=True, samesite="strict")
        return answer

    async def show(self, request: Request) -> Response:
        """What an action would do, and the form that does it. Raises BadQuestion, and what planning raises."""
        login = self._login(request)
        if login is None:
            here = f"{request.url.path}?{request.url.query}"
            return RedirectResponse(f"/login?{urllib.parse.urlencode({'next': here})}", 303)
        kind, note = request.path_params["kind"], request.query_params.get("note", "")
        if len(note) > NOTE_CHARACTERS:
            raise BadQuestion(f"the note has {len(note):,} characters; {NOTE_CHARACTERS:,} are kept: make it shorter")
        plan = await plan_round(self._commands) if kind == ROUND else await self._plan(kind, request.query_params)
        fields = {**plan.given, "note": note, "action": self._keep(kind, plan)}
        values = {"plan": plan, "fields": fields, "signature": login.sign(request.url.path, fields)}
        return self._page(request, "do.html", values)

    async def do(self, request: Request) -> Response:
        """Do what was shown; then its row of the audit. Raises Forbidden, Unavailable, and what doing it raises."""
        login, form = await self._signed_form(request)
        action_id = form["action"]
        if action_id not in self._plans:
            raise Unavailable("this form is too old: open the action again, and confirm what it shows then")
        kind, plan = self._plans[action_id]
        if plan.command is not None:
            self._commands.require_free(exclusive=plan.exclusive)
        who = Who(person=login.person, address=request.client.host if request.client else "")
        if await run_in_threadpool(begin, self._catalog, plan, kind, action_id, form["note"], who):
            await self._perform(plan, action_id, who)
        return RedirectResponse(f"/actions/{action_id}", 303)

    async def _perform(self, plan: Plan, action_id: str, who: Who) -> None:
        if plan.command is None:
            await run_in_threadpool(perform, self._catalog, plan, action_id, who)
            return
        try:
            await self._commands.start(action_id, plan.command(action_id), exclusive=plan.exclusive)
        except (UiError, OSError) as error:
            await run_in_threadpool(end_action, self._catalog, action_id, done=False, message=str(error))
            raise Unavailable(f"the command could not be started: {error}") from error

    def _keep(self, kind: str, plan: Plan) -> str:
        """Remember what is shown, under the id that the action will have."""
        action_id = new_id("action")
        self._plans[action_id] = kind, plan
        while len(self._plans) > KEPT_PLANS:
            del self._plans[next(iter(self._plans))]
        return action_id

    async def actions(self, request: Request) -> Response:
        """The audit, and the pins."""
        done = await run_in_threadpool(latest_actions, self._catalog, SHOWN_ACTIONS)
        if request.url.path.endswith(".json"):
            return as_json(done)
        pinned = await run_in_threadpool(pins, self._catalog)
        times = {pin.name: _moment(pin.pinned_us) for pin in pinned}
        versions = (await run_in_threadpool(self._catalog.versions))[: -SHOWN_VERSIONS - 1 : -1]
        values = {"actions": [_shown(one) for one in done], "pins": pinned, "pinned_at": times, "prefix": PREFIX}
        values |= {"versions": versions, "formats": list(FORMATS), "policies": list(Policy)}
        return self._page(request, "actions.html", values)

    async def action(self, request: Request) -> Response:
        """One row of the audit, with what its command has said so far. Raises NotFound."""
        found = await self._found(request)
        output = self._commands.output_of(found.action_id)
        file = _exported(self._snapshots.store, found)
        if request.url.path.endswith(".json"):
            return as_json({"action": found, "output": output, "file": None if file is None else file.name})
        return self._page(request, "action.html", {"action": _shown(found), "output": output, "file": file})

    async def file(self, request: Request) -> Response:
        """The file of an export. Raises NotFound, and Forbidden without a login."""
        if self._login(request) is None:
            raise Forbidden("only who gave the control key may take this file: log in at /login")
        file = _exported(self._snapshots.store, await self._found(request))
        if file is None:
            raise NotFound("this action has no file, or somebody removed it")
        return FileResponse(file, filename=file.name)

    async def _found(self, request: Request) -> Action:
        name = request.path_params["action_id"]
        found = await run_in_threadpool(find_action, self._catalog, name)
        if found is None:
            raise NotFound(f"there is no action {name!r}; the page of actions lists them")
        return found

    async def _plan(self, kind: str, given: Mapping[str, str]) -> Plan:
        taken_us = int(self._snapshots.newest.taken_at * 1e6)
        store, catalog = self._snapshots.store, self._catalog

        def plan(cursor: duckdb.DuckDBPyConnection) -> Plan:
            return plan_action(View(cursor=cursor, taken_us=taken_us, catalog=catalog, store=store), kind, given)

        return await self._snapshots.read(plan)

    def _login(self, request: Request) -> Login | None:
        return self._logins.find(request.cookies.get(_cookie_name(request), ""))

    async def _signed_form(self, request: Request) -> tuple[Login, dict[str, str]]:
        form = await _form(request)
        login = self._login(request)
        if login is None:
            raise Forbidden("only who gave the control key may do this: log in at /login")
        signature = form.pop("signature", "")
        login.check(request.url.path, form, signature)
        return login, form

    def _page(self, request: Request, template: str, values: Frame) -> Response:
        login = self._login(request)
        frame = {
            "as_of": "",
            "stale": None,
            "path": request.url.path,
            "given": dict(request.query_params),
            "login": login,
            "logout": login.sign("/logout", {}) if login else "",
        }
        answer = self._pages.page(template, frame | values)
        answer.headers["cache-control"] = "no-store"
        return answer


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form that a page of this server sent. Raises Forbidden and BadQuestion."""
    _refuse_other_sites(request)
    body = bytearray()
    async with asyncio.timeout(60):
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES:
                raise BadQuestion(f"the form has more than {FORM_BYTES:,} bytes: shorten what it says")
    try:
        fields = urllib.parse.parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise BadQuestion(f"this is not a form of the page: {error}") from error
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def _refuse_other_sites(request: Request) -> None:
    """Raise Forbidden unless the browser says that a page of this server sends the request.

    Browsers set Sec-Fetch-Site themselves, where the address is this machine's or has TLS; elsewhere there is the
    Origin.
    """
    site = request.headers.get("sec-fetch-site")
    if site != "same-origin" if site is not None else _origin(request) != request.headers.get("host"):
        raise Forbidden(
            "this request does not come from a page of this server: open the page itself, and send it there"
        )


def _origin(request: Request) -> str:
    """Host and port of the page that sends a request; empty where it names none."""
    try:
        return urllib.parse.urlsplit(request.headers.get("origin", "")).netloc
    except ValueError:  # e.g. half of an address of IPv6
        return ""


def _own_path(text: str) -> str:
    """A path of this server; the page of actions in place of any other address."""
    parts = urllib.parse.urlsplit(text)
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and not (parts.scheme or parts.netloc)
    return text if is_own and text.isprintable() else "/actions"


def _cookie_name(request: Request) -> str:
    """Of this server: cookies of one host are shared by its ports."""
    return f"weir_control_{request.url.port or request.url.scheme}"


def _shown(action: Action) -> Frame:
    ended = None if action.ended_us is None else _moment(action.ended_us)
    return {"row": action, "asked_at": _moment(action.asked_us), "ended_at": ended}


def _exported(store: StoreConfig, action: Action) -> Path | None:
    """The file of an export that is done and still there."""
    if action.kind != "export" or action.outcome != "done":
        return None
    file = export_file(store, action.action_id, action.given["format"])
    return file if file.is_file() else None


def _moment(at_us: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at_us / 1e6, datetime.UTC)
