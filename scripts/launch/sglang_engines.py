"""SGLang servers that `weir up` starts: the command line and environment of each, and the check of their interpreter.

The flags are those that exact records and rounds need: an integer weight version, incremental streams, and, where the
engine itself renders, ids in its answers and a parser, without which it drops the logprobs of tokens that show no text.
A paused engine must stay alive for its router: its health check must not sample a token.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from weir.engine.config import EngineConfig
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.placement import PlacementConfig, num_gpus, of_engine, visible
from weir.scripts.launch.servers import Server

OLDEST = (0, 5, 20)  # version spans of a call since 0.5.19, ids in chat answers since 0.5.20
TESTED = "0.5.23"
ENVIRONMENT = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false", "TOKENIZERS_PARALLELISM": "false"}
IDS_IN_ANSWERS = ("--return-input-ids", "--return-output-ids")
MEMORY_SAVER = "--enable-memory-saver"  # without it, memory that is released stays taken
OF_SETTINGS = {
    "--model-path": "[model] path",
    "--served-model-name": "[model] name",
    "--host": "engine.host",
    "--port": "engine.port",
    "--weight-version": "engine.weight_version",
}
# model_type of config.json → parsers of SGLang, for levels at which the engine renders
PARSERS: Mapping[str, tuple[str, ...]] = {
    "qwen2": ("--tool-call-parser", "qwen25"),
    "qwen3": ("--reasoning-parser", "qwen3", "--tool-call-parser", "qwen25"),
    "qwen3_moe": ("--reasoning-parser", "qwen3", "--tool-call-parser", "qwen25"),
    "deepseek_v3": ("--reasoning-parser", "deepseek-r1", "--tool-call-parser", "deepseekv3"),
    "gpt_oss": ("--reasoning-parser", "gpt-oss", "--tool-call-parser", "gpt-oss"),
    "glm4_moe": ("--reasoning-parser", "glm45", "--tool-call-parser", "glm45"),
    "kimi_k2": ("--tool-call-parser", "kimi_k2"),
    "llama": ("--tool-call-parser", "llama3"),
    "mistral": ("--tool-call-parser", "mistral"),
}
_CHECK_LIMIT_S = 120
_VERSION_OF_SGLANG = (
    "import importlib.metadata, importlib.util\n"
    "assert importlib.util.find_spec('sglang')\n"
    "print(importlib.metadata.version('sglang'))"
)


def sglang_servers(
    config: EngineConfig,
    urls: Sequence[str],
    *,
    model: Path,
    name: str,
    version: str,
    renders: bool,
    logs: Path,
    placement: PlacementConfig = PlacementConfig(),
) -> list[Server]:
    """One server for each URL, on its port. `version` is the version of the model's weights.

    `renders`: agents' chat calls reach the engine itself (levels below `tokens`). Raises `UsageError` for an
    interpreter without a usable SGLang, and for settings that contradict each other.
    """
    _check_arguments(config, version)
    python = interpreter(config)
    check_sglang(python)
    flags = [*_flags_of_settings(config), "--incremental-streaming-output", "--weight-version", version]
    there = num_gpus()
    if placement.takes_turns and there and MEMORY_SAVER not in config.args:
        flags.append(MEMORY_SAVER)
    if renders:
        flags += [*IDS_IN_ANSWERS, *parsers_of(model)]
    servers = []
    for number, url in enumerate(urls):
        gpus = of_engine(placement, number, len(urls))
        command = [str(python), "-m", "sglang.launch_server", "--model-path", str(model), "--served-model-name", name]
        command += ["--host", config.host, "--port", str(config.port + number), *flags]
        if "seed" in config.model_fields_set:
            command += ["--random-seed", str(config.seed + number)]
        if there and gpus is not None and len(gpus) > 1:
            command += ["--tp-size", str(len(gpus))]
        servers.append(
            Server(
                name=f"engine-{number}",
                argv=[*command, *config.args],
                ready_url=f"{url}/health",
                log_path=logs / f"engine-{number}.log",
                environment=ENVIRONMENT | visible(gpus, there) | config.env,
            )
        )
    return servers


def interpreter(config: EngineConfig) -> Path:
    """The Python of SGLang's environment: `engine.python`, which may name the environment's folder; else this one."""
    python = Path(sys.executable) if config.python is None else config.python.expanduser()
    return python / "bin" / "python" if python.is_dir() else python


def check_sglang(python: Path) -> str:
    """The version of SGLang that an interpreter imports. Raises `UsageError` where it has none, or one too old."""
    try:
        asked = subprocess.run(
            [python, "-c", _VERSION_OF_SGLANG], capture_output=True, text=True, timeout=_CHECK_LIMIT_S, check=False
        )
    except OSError as error:
        raise UsageError(
            f"engine.python = {str(python)!r} cannot be run ({error.strerror}): name the python of an environment that "
            f"has SGLang; to make one: {_install('sglang-env')}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{python} did not answer within {_CHECK_LIMIT_S} s: check engine.python") from error
    if asked.returncode:
        why = asked.stderr.strip().rpartition("\n")[2] or f"status {asked.returncode}"
        raise UsageError(
            f"{python} has no SGLang ({why}): install it there with `{python} -m pip install 'sglang>={_oldest()}'`, "
            f"or make an environment for it and name it by engine.python: {_install('sglang-env')}"
        )
    version = asked.stdout.strip()
    if version_numbers(version) < OLDEST:
        raise UsageError(
            f"{python} has SGLang {version}; Weir needs {_oldest()} or later, which name the weights of every token "
            f"(tested with {TESTED}): `{python} -m pip install -U 'sglang>={_oldest()}'`"
        )
    return version


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 5, 23) of "0.5.23.post1"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


def parsers_of(model: Path) -> tuple[str, ...]:
    """The parsers for a model folder's family; none for an unknown one, which `weir doctor` names."""
    try:
        family = json.loads((model / "config.json").read_text()).get("model_type")
    except (OSError, ValueError):
        return ()
    return PARSERS.get(family, ())


def _flags_of_settings(config: EngineConfig) -> list[str]:
    """Flags for the settings of [engine] that are set; SGLang's own defaults stand for the others."""
    flags = {
        "device": "--device",
        "dtype": "--dtype",
        "max_running": "--max-running-requests",
        "max_model_len": "--context-length",
    }
    return [
        text
        for name, flag in flags.items()
        if name in config.model_fields_set
        for text in (flag, str(getattr(config, name)))
    ]


def _check_arguments(config: EngineConfig, version: str) -> None:
    given = {argument.partition("=")[0] for argument in config.args}
    for flag, setting in OF_SETTINGS.items():
        if flag in given:
            raise UsageError(f"engine.args has {flag}, which `weir up` sets itself: set {setting} instead")
    if not version.isdecimal():
        raise UsageError(f"engine.weight_version = {version!r}: with kind = 'sglang' it must be an integer, e.g. \"0\"")


def _oldest() -> str:
    return ".".join(map(str, OLDEST))


def _install(folder: str) -> str:
    return f"`python3 -m venv {folder} && {folder}/bin/pip install 'sglang>={_oldest()}'`"
