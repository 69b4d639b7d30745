"""Checks of an upstream by real calls of a few tokens: levels, streams, versions, abort, pause and continue.

Only what the wanted level needs is required; the other findings show which levels would be possible.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.version_labels import remark_on_versions
from weir.proxy.errors import SetupError, UpstreamLost, UpstreamNotTaken
from weir.proxy.probe.engines import missing_for_abort, missing_for_pause
from weir.proxy.probe.upstream import WHAT_IS_MISSING, Probe, remarks
from weir.proxy.relay.client import RelayUpstream
from weir.proxy.relay.levels import Level, RouteForm
from weir.scripts.cli.doctor.finding import Finding, found

ABOUT = "upstream"
ORDER = list(Level)
TRAINABLE = (Level.TOKENS, Level.PASSTHROUGH, "auto")  # levels whose calls rounds are to train on


async def upstream_findings(
    config: ProxyConfig, url: str, model: str, *, leave_engines: bool = False
) -> AsyncGenerator[Finding, None]:
    """Check one upstream; the level of `config` is required of it.

    With `leave_engines`, abort, pause and continue are not tried.
    """
    upstream = RelayUpstream(url, config)
    probe = Probe(upstream, model, config.upstream_api_key)
    try:
        async for finding in _Certifying(upstream, probe, config, leave_engines=leave_engines).findings():
            yield finding
    except (SetupError, UpstreamNotTaken, UpstreamLost) as error:
        yield found(ABOUT, "answers", "", str(error), "check the URL, the key and the model's name", required=True)
    finally:
        await upstream.close()


class _Certifying:
    """The checks of one upstream, level by level."""

    def __init__(self, upstream: RelayUpstream, probe: Probe, config: ProxyConfig, *, leave_engines: bool) -> None:
        self._upstream = upstream
        self._probe = probe
        self._wanted: str = config.level
        self._assumed = config.assumed_version
        self._leave_engines = leave_engines

    async def findings(self) -> AsyncGenerator[Finding, None]:
        yield await self._front()
        missing = await self._probe.missing_for_tokens()
        yield self._level(Level.TOKENS, "ids, logprobs and a version by /generate", missing, "put SGLang there")
        forms = {dialect: await self._probe.form(dialect) for dialect in ("chat", "completions")}
        chat = forms["chat"] or RouteForm()
        for level in (Level.PASSTHROUGH, Level.LOGPROBS):
            flags = ", ".join(chat.flags) or "no flags"
            lacks = None if _reaches(chat.level, level) else "not in its chat answers, streamed and not"
            yield self._level(level, f"whole and streamed, with {flags}", lacks, WHAT_IS_MISSING[level])
        served = [dialect for dialect, form in forms.items() if form is not None]
        lacks = None if served else "neither chat completions nor completions for this model"
        yield self._level(Level.TEXT, " and ".join(served), lacks, "check the model's name")
        completions = forms["completions"]
        gives = completions.level.value if completions is not None else "not served"
        yield found(ABOUT, "/v1/completions", gives, required=False)
        async for finding in self._engines(has_generate=missing is None, level=chat.level):
            yield finding

    async def _front(self) -> Finding:
        workers = await self._upstream.listed_engines()
        if workers is None:
            return found(ABOUT, "in front", f"no router; the checks used {self._upstream.url} directly", required=False)
        problem = None if workers else "a router without engines"
        return found(ABOUT, "in front", f"a router with {len(workers)} engines", problem, "add engines", required=True)

    def _level(self, level: Level, seen: str, missing: str | None, advice: str) -> Finding:
        return found(ABOUT, f"level {level.value}", seen, missing, advice, required=self._wanted == level.value)

    async def _engines(self, *, has_generate: bool, level: Level) -> AsyncGenerator[Finding, None]:
        infos = await self._upstream.model_info()
        versions = sorted({str(info["weight_version"]) for info in infos if info.get("weight_version") is not None})
        problem = (
            None if len(versions) == 1 else f"engines differ: {', '.join(versions)}" if versions else "none reported"
        )
        advice = "publish a version to all, or set proxy.assumed_version for engines that cannot say (vLLM)"
        unnumbered = remark_on_versions(versions, self._assumed)
        problem = unnumbered or problem
        yield found(
            ABOUT,
            "weight version",
            ", ".join(versions),
            problem,
            "" if unnumbered else advice,
            required=unnumbered is not None and self._assumed is None and self._wanted in TRAINABLE,
        )
        for remark in remarks(level, infos, self._assumed):
            if remark != unnumbered:
                yield found(ABOUT, "remark", "", remark, required=False)
        if not has_generate or self._leave_engines:
            return
        needed = self._wanted == Level.TOKENS
        advice = "weight updates cut calls in flight with it: use SGLang 0.5.19 or later"
        yield found(
            ABOUT, "abort", "a call in flight", await missing_for_abort(self._upstream), advice, required=needed
        )
        paused = await missing_for_pause(self._upstream)
        yield found(ABOUT, "pause and continue", "mode retract", paused, advice, required=needed)


def _reaches(has: Level, level: Level) -> bool:
    return ORDER.index(has) <= ORDER.index(level)
