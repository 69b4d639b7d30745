"""The probe of an upstream by real calls: the forms of its routes, and the best capture level that they allow.

Invariant: nothing is certified that was not seen in an answer; every refusal comes with a reason that a person can act
on. The calls are short (a few tokens), and none is recorded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weir.proxy.config import ProxyConfig
from weir.proxy.dialects.registry import ROUTES
from weir.proxy.engines.capture import decode_chunk
from weir.proxy.engines.version_labels import remark_on_versions
from weir.proxy.errors import SetupError, UpstreamLost, UpstreamNotTaken
from weir.proxy.http.sse import EventSplitter, data_of
from weir.proxy.probe.wishes import ignored_wishes
from weir.proxy.relay.chat_answer import ChatAnswerParser
from weir.proxy.relay.client import RelayUpstream, arriving
from weir.proxy.relay.levels import AT_TOKENS, STRIPPED, Certified, Level, RouteForm
from weir.proxy.relay.wire import read_fields
from weir.store.records.ids import new_id

_encode = msgspec.json.Encoder().encode
_ROUTE_OF = {dialect.name: route for route, dialect in ROUTES.items()}
_SGLEXT = {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True}
# Tried in this order: no flags for ids, SGLang's flags, vLLM's flag (SGLang refuses it in chat streams).
_FLAGS: Mapping[str, Sequence[dict[str, Any]]] = {
    "chat": ({"logprobs": True}, {"logprobs": True, **_SGLEXT}, {"logprobs": True, "return_token_ids": True}),
    "completions": ({"logprobs": 0}, {"logprobs": 0, "return_token_ids": True}),
}
_ASKED: Mapping[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Say hello."}]},
    "completions": {"prompt": "Say hello."},
}
_LIMITS: Sequence[dict[str, Any]] = ({"max_tokens": 4}, {"max_completion_tokens": 4}, {})
_PAUSE_S = 0.25
_CHECK_LIMIT_S = 10.0  # for the check of an upstream that level `tokens` can start without

logger = logging.getLogger("weir.proxy.probe.upstream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One answer of an upstream: its JSON objects (one, or those of its events) and its parser."""

    objects: list[dict[str, Any]]
    parsed: ChatAnswerParser

    @property
    def has_ids(self) -> bool:
        """Whether it has the token ids of prompt and output."""
        parsed = self.parsed.choices.get(0)
        return parsed is not None and parsed.prompt_ids is not None and parsed.output_ids is not None

    @property
    def has_logprobs(self) -> bool:
        """Whether it has logprobs of output tokens."""
        parsed = self.parsed.choices.get(0)
        return parsed is not None and bool(parsed.logprobs)

    def nulls(self) -> frozenset[str]:
        """The members in `STRIPPED` that are present and null."""
        holders = [*self.objects, *(c for o in self.objects for c in o.get("choices") or () if isinstance(c, dict))]
        return frozenset(name for name in STRIPPED for holder in holders if name in holder and holder[name] is None)


class Probe:
    """Makes the probing calls to one upstream."""

    def __init__(self, upstream: RelayUpstream, model: str, key: str | None) -> None:
        self._upstream = upstream
        self._model = model
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})

    async def missing_for_tokens(self) -> str | None:
        """Why /generate cannot serve level `tokens`; None where it can. Raises `UpstreamNotTaken` or `UpstreamLost`."""
        params = {"max_new_tokens": 2, "temperature": 1.0}
        body = {"rid": new_id("rid"), "input_ids": [1, 2, 3], "sampling_params": params, "return_logprob": True}
        async with self._upstream.relay("POST", "/generate", _encode(body), self._headers) as response:
            _raise_for_absence(response.status)
            answer = await response.read()
            if response.status != 200:
                return f"its /generate answered {response.status}: {answer[:200].decode(errors='replace')}"
        try:
            meta = decode_chunk(answer).meta_info
        except msgspec.DecodeError as error:
            return f"its /generate answers in another form: {error}"
        if meta.output_token_logprobs is None:
            return "its /generate gives no logprobs"
        return None

    async def form(self, dialect: str, wanted: Level | None = None) -> RouteForm | None:
        """How a route is made to say most, up to `wanted`; None where the upstream does not serve it."""
        limit = await self._first_served(dialect)
        if limit is None:
            return None
        plain = [await self._ask(dialect, limit, stream=stream) for stream in (False, True)]
        best = RouteForm()
        for flags in _FLAGS.get(dialect, ()):
            whole, streamed = [await self._ask(dialect, limit | flags, stream=stream) for stream in (False, True)]
            level = _level_of(whole, streamed)
            if level is Level.TEXT or best.level is level:
                continue
            best = RouteForm(
                level=level if wanted is None else max(level, wanted, key=list(Level).index),
                flags={name: _encode(value).decode() for name, value in flags.items()},
                null=plain[0].nulls() if plain[0] else frozenset(),
                null_streamed=plain[1].nulls() if plain[1] else frozenset(),
            )
            if best.level in (Level.PASSTHROUGH, wanted):
                break
        return best

    async def ignored_wishes(self, form: RouteForm) -> frozenset[str]:
        """The paths of the wishes that reach no prompt of chat answers, whose ids this form gives."""
        limit = await self._first_served("chat") or {}
        flags = {name: msgspec.json.decode(text) for name, text in form.flags.items()}

        async def prompted(wish: Mapping[str, Any]) -> Sequence[int] | None:
            seen = await self._ask("chat", {**limit, **flags, **wish}, stream=False)
            choice = seen.parsed.choices.get(0) if seen is not None else None
            return choice.prompt_ids if choice is not None else None

        return await ignored_wishes(prompted)

    async def _first_served(self, dialect: str) -> dict[str, Any] | None:
        """The first field in `_LIMITS` that a route accepts; None where it accepts none."""
        for limit in _LIMITS:
            if await self._ask(dialect, limit, stream=False) is not None:
                return limit
        return None

    async def _ask(self, dialect: str, fields: Mapping[str, Any], *, stream: bool) -> Seen | None:
        """Make one call; None where it is refused. Raises `UpstreamNotTaken` where nobody answers."""
        body = _encode({"model": self._model, **_ASKED[dialect], **fields} | ({"stream": True} if stream else {}))
        parsed = ChatAnswerParser({})
        async with self._upstream.relay("POST", _ROUTE_OF[dialect], body, self._headers) as response:
            _raise_for_absence(response.status)
            if response.status != 200:
                return None
            if not stream:
                data = parsed.whole(await response.read())
                return Seen(objects=[read_fields(data)], parsed=parsed)
            splitter, objects = EventSplitter(), []
            async for part in arriving(response):
                for data in filter(None, map(data_of, splitter.feed(part))):
                    parsed.event(data)
                    objects.append(read_fields(data))
        return Seen(objects=objects, parsed=parsed) if parsed.is_complete else None


async def certify(config: ProxyConfig, upstream_url: str, model: str, *, can_render: bool) -> Certified:
    """The level to serve and the forms of its routes. Raises `SetupError` with what is missing.

    Waits for an upstream that does not answer yet; level `tokens` starts without it, with a warning.
    """
    if config.level == "text":
        return Certified(level=Level.TEXT)
    upstream = RelayUpstream(upstream_url, config)
    probe = Probe(upstream, model, config.upstream_api_key)
    try:
        if config.level == "tokens":
            is_verified = await _check_tokens(upstream)
            return await _at_tokens(upstream, config.assumed_version) if is_verified else AT_TOKENS
        return await _waited_for(probe, upstream, config, can_render=can_render)
    finally:
        await upstream.close()


async def _waited_for(probe: Probe, upstream: RelayUpstream, config: ProxyConfig, *, can_render: bool) -> Certified:
    wanted, limit_s, assumed_version = config.level, config.probe_limit_s, config.assumed_version
    deadline = time.monotonic() + limit_s
    while True:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await _probed(probe, upstream, wanted, assumed_version, can_render=can_render)
        except (UpstreamNotTaken, UpstreamLost, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise SetupError(
                    f"level {wanted} needs an upstream that answers, and {upstream.url} did not for {limit_s:g} s "
                    f"(proxy.probe_limit_s): {error!r}"
                ) from error
        await asyncio.sleep(_PAUSE_S)


async def _at_tokens(upstream: RelayUpstream, assumed_version: int | None) -> Certified:
    """Level `tokens`, with remarks on the engines' versions."""
    infos = await upstream.model_info()
    return msgspec.structs.replace(AT_TOKENS, remarks=remarks(Level.TOKENS, infos, assumed_version))


async def _check_tokens(upstream: RelayUpstream) -> bool:
    """Whether the upstream answers; raises `SetupError` for one without /generate.

    No call is made: engines count every sampled token.
    """
    try:
        async with asyncio.timeout(_CHECK_LIMIT_S), upstream.relay("GET", "/generate", b"", {}) as response:
            status = response.status
    except (UpstreamNotTaken, UpstreamLost, TimeoutError) as error:
        logger.warning("level tokens is not verified yet, the upstream does not answer: %r", error)
        return False
    if status == 404:
        raise SetupError(
            f"{upstream.url} does not support level tokens: it has no /generate; put sglang-router, smg or SGLang "
            'there, or set proxy.level = "passthrough", or "auto" for the best that it gives'
        )
    return True


async def _probed(
    probe: Probe, upstream: RelayUpstream, wanted: str, assumed_version: int | None, *, can_render: bool
) -> Certified:
    if wanted == "auto" and can_render and await probe.missing_for_tokens() is None:
        return await _at_tokens(upstream, assumed_version)
    limit = Level.LOGPROBS if wanted == Level.LOGPROBS else None
    found = {dialect: await probe.form(dialect, limit) for dialect in _FLAGS}
    forms = {dialect: form for dialect, form in found.items() if form is not None}
    best = forms.get("chat", RouteForm()).level
    if not forms:
        raise SetupError(
            f"{upstream.url} serves neither /v1/chat/completions nor /v1/completions for this model; check "
            "proxy.upstream_url and the model's name (model.name)"
        )
    if wanted not in ("auto", best.value):
        raise SetupError(f"{upstream.url} does not support level {wanted}: {WHAT_IS_MISSING[Level(wanted)]}")
    if best is Level.PASSTHROUGH:
        ignored = await probe.ignored_wishes(forms["chat"])
        forms["chat"] = msgspec.structs.replace(forms["chat"], ignored_wishes=ignored)
    infos = await upstream.model_info()
    reports = any(info.get("weight_version") is not None for info in infos)
    return Certified(level=best, forms=forms, reports_version=reports, remarks=remarks(best, infos, assumed_version))


def remarks(level: Level, infos: Sequence[Mapping[str, Any]], assumed_version: int | None) -> tuple[str, ...]:
    """Warnings about an upstream that works at this level."""
    if level not in (Level.TOKENS, Level.PASSTHROUGH):
        return ()
    versions = [info.get("weight_version") for info in infos]
    remark = remark_on_versions(versions, assumed_version)
    remarks = [remark] if remark is not None else []
    if level is Level.TOKENS:
        return tuple(remarks)
    if assumed_version is None and not any(version is not None for version in versions):
        remarks.append(
            "the engines report no weight version: calls are recorded as logprobs unless proxy.assumed_version is set"
        )
    parsers = ("reasoning_parser", "tool_call_parser")
    if any("tool_call_parser" in info and not any(info.get(name) for name in parsers) for info in infos):
        remarks.append(
            "SGLang without a parser drops the logprobs of streamed tokens that show no text (the end of turn is one): "
            "start it with --tool-call-parser or --reasoning-parser, else streamed calls are recorded without logprobs"
        )
    return tuple(remarks)


def _raise_for_absence(status: int) -> None:
    """Raise `UpstreamNotTaken` where no engine answers, or `SetupError` where the key is refused."""
    if status in (408, 429) or status >= 500:
        raise UpstreamNotTaken(f"the upstream answered {status}")
    if status in (401, 403):
        raise SetupError(f"the upstream refuses the key ({status}): set proxy.upstream_api_key to one that it takes")


def _level_of(whole: Seen | None, streamed: Seen | None) -> Level:
    """The level that whole and streamed answers both allow."""
    if whole is None or streamed is None or not (whole.has_logprobs and streamed.has_logprobs):
        return Level.TEXT
    return Level.PASSTHROUGH if whole.has_ids and streamed.has_ids else Level.LOGPROBS


WHAT_IS_MISSING = {
    Level.PASSTHROUGH: "its chat answers name no token ids, streamed and not; start SGLang with --return-input-ids "
    "--return-output-ids (0.5.20 or later), or use vLLM (return_token_ids), or smg instead of sglang-router, which "
    'drops request flags; or set proxy.level = "auto"',
    Level.LOGPROBS: 'its chat answers give no logprobs, streamed and not; set proxy.level = "text"',
}
