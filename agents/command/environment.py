"""The environment of an agent's command: where to call and as what, in the variables that SDKs and agents read.

Nothing is inherited but PATH, so that no credential of `weir run` reaches an agent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_QUIET = {  # programs that would call home find nobody there; these keep them from waiting for it
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "ANONYMIZED_TELEMETRY": "false",
}


def base_environment(home: str, temporary: str) -> dict[str, str]:
    """What every contained command gets: programs, home, locale, and no way around the relay."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": temporary,
        "NO_PROXY": "*",
        "no_proxy": "*",
    }


def model_environment(values: Mapping[str, str]) -> dict[str, str]:
    """The variables of SDKs and agents, from the values of the placeholders."""
    openai, anthropic, key, model = (values[n] for n in ("base_url", "anthropic_base_url", "api_key", "model"))
    urls = dict.fromkeys(
        (
            *("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_BASE", "LLM_BASE_URL", "AIDER_OPENAI_API_BASE"),
            *("HOSTED_VLLM_API_BASE", "VLLM_API_BASE", "CUSTOM_API_BASE"),
        ),
        openai,
    )
    keys = dict.fromkeys(
        (
            *("OPENAI_API_KEY", "LLM_API_KEY", "AIDER_OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "CODEX_API_KEY"),
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ),
        key,
    )
    models = dict.fromkeys(
        (
            *("OPENAI_MODEL", "LLM_MODEL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"),
            *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("HAIKU", "SONNET", "OPUS")),
        ),
        model,
    )
    own = {
        "WEIR_SESSION": values["session"],
        "WEIR_TASK_ID": values["task_id"],
        "WEIR_PROMPT_FILE": values["prompt_file"],
    }
    anthropic_urls = dict.fromkeys(("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), anthropic)
    return _QUIET | urls | anthropic_urls | keys | models | own
