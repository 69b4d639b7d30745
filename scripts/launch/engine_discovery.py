"""The engines that a run publishes to where no setting names them: those that the proxy's upstream lists.

`[engine]` names the engines that `weir up` starts. Where it has none, or the proxy's upstream is another router, that
router is asked which engines it has; an upstream that lists none and answers as an engine is the engine itself.
"""

from __future__ import annotations

from typing import Any

import httpx

from weir.proxy.engines.router_routes import workers_of, workers_url
from weir.scripts.launch.fleet import engine_urls
from weir.scripts.launch.settings import Settings

_LIMIT_S = 5.0


def publishing_urls(settings: Settings) -> list[str]:
    """The engines that serve the run's weights, where [trainer] names none; empty where nobody knows of any."""
    upstream = settings.proxy.upstream_url
    known = engine_urls(settings)
    if upstream is None:
        return known
    return engines_behind(upstream) or known


def engines_behind(upstream: str) -> list[str]:
    """The engines that a router lists, or the upstream itself where it is one; empty where it does not answer."""
    base = upstream.rstrip("/")
    with httpx.Client(trust_env=False, timeout=_LIMIT_S) as http:
        workers = workers_of(_answer(http, workers_url(base)))
        if workers is not None:
            return [worker.url for worker in workers]
        info = _answer(http, f"{base}/model_info")
    return [base] if isinstance(info, dict) and "model_path" in info else []


def _answer(http: httpx.Client, url: str) -> Any:
    try:
        response = http.get(url)
        return response.json() if response.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
