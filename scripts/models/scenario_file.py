"""The weir.toml that `weir init` writes: every setting with the reason for its value above it.

A setting that starts with `#` is off: an alternative, or what only the user can know.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from weir.scripts.launch.sglang_engines import PARSERS
from weir.scripts.models.scenario import GIB, SESSIONS, Setup
from weir.trainer.model.memory import serving_memory, training_memory
from weir.trainer.settings.defaults import LORA_SOURCE, default_lr, size_defaults

WIDTH = 110
GROUPS = {"cpu": (4, 4), "one-gpu": (8, 8), "node": (16, 8), "cluster": (16, 8)}  # groups of a round, samples of each


@dataclass(frozen=True, slots=True)
class Line:
    """One setting, and why it has its value; `off`: written as a comment."""

    key: str
    value: object
    why: str
    off: bool = False


def scenario_text(setup: Setup, *, file: str, first_port: int | None = None) -> str:
    """The text of the file, which is to be called `file`; its servers take ports from `first_port` on."""
    parts = [_head(setup, file)]
    for name, lines in _sections(setup, first_port).items():
        parts.append(f"[{name}]\n" + "\n".join(_setting(line) for line in lines))
    return "\n\n".join(parts) + "\n"


def to_set(setup: Setup) -> str | None:
    """What the user has to set before the servers can start; None where nothing is missing."""
    if setup.scenario != "cluster":
        return None
    return "store.root and store.catalog_url (shared by all machines), engine.urls (where SGLang serves)"


def _setting(line: Line) -> str:
    prefix = "# " if line.off else ""
    return f"{_wrapped(line.why)}\n{prefix}{line.key} = {json.dumps(line.value)}"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False))


def _head(setup: Setup, file: str) -> str:
    """What the file is for, and the two commands that check it, each on a line."""
    need, room = training_memory(setup.shape, setup.plan).peak / GIB, f"{setup.training_bytes / GIB:.4g}"
    summary = (
        f"Scenario {setup.scenario}: {setup.model.name}, {setup.shape.model_type}, "
        f"{setup.shape.num_parameters / 1e9:.3f} B parameters, {_machine(setup)}. "
        f"Training needs {need:.1f} GiB of {room} GiB (docs/models.md). All settings: docs/configuration.md."
    )
    plan = f"weir round --plan --config {file} --device-gib {room}"
    return f"{_wrapped(summary)}\n#\n#   weir up --check --config {file}\n#   {plan}"


def _machine(setup: Setup) -> str:
    size = f"{setup.capacity / GIB:.4g} GiB"
    return f"{size} of memory" if not setup.gpus else f"{_gpus(setup.gpus)} of {size}"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _sections(setup: Setup, first_port: int | None) -> dict[str, list[Line]]:
    sections = {
        "store": list(_store(setup)),
        "model": [
            Line("path", str(setup.model), "The first weights; later ones come from the store."),
            Line("name", setup.model.name, "The name in the agents' requests."),
        ],
        "engine": list(_engine(setup)),
        "placement": [*_ports(first_port), *_placement(setup)],
        "agents": list(_agents(setup)),
        "trainer": list(_trainer(setup)),
    }
    return {name: lines for name, lines in sections.items() if lines}


def _store(setup: Setup) -> Iterator[Line]:
    yield Line("root", f"weir-data/{setup.model.name}", "Calls, rewards and weight versions; a folder of this machine.")
    if setup.scenario == "cluster":
        shared = "SET THIS instead, the same on every machine: "
        yield Line("root", "s3://BUCKET/PREFIX", f"{shared}a bucket that all machines read and write.", off=True)
        url = "postgresql://USER@HOST/weir"
        yield Line("catalog_url", url, f"{shared}the catalog, which needs PostgreSQL to be shared.", off=True)


def _engine(setup: Setup) -> Iterator[Line]:
    family, gpu = setup.shape.model_type, setup.gpus > 0
    if setup.embedded:
        yield Line("kind", "embedded", f"Weir's own engine: enough for a small {family} model on a CPU.")
    else:
        reason = "it serves every model family" if not gpu else "it is made for GPUs"
        yield Line("kind", "sglang", f"SGLang: {reason}.")
        python = (
            'The environment that has it: python3 -m venv sglang-env && sglang-env/bin/pip install "sglang>=0.5.20"'
        )
        yield Line("python", "sglang-env", python, off=setup.scenario == "cluster")
    if setup.scenario == "cluster":
        yield Line("count", 0, "SGLang runs on other machines, started as docs/sglang.md says (By hand).")
        urls = "SET THIS to your engines, one URL each; `weir up` starts the router in front of them here."
        yield Line("urls", ["http://serving-1:31000", "http://serving-2:31000"], urls)
        return
    yield Line("count", setup.engines, _count_reason(setup))
    yield Line("device", "cuda" if gpu else "cpu", "Where it computes.")
    yield Line(
        "dtype", setup.dtype, "The precision of the model's config.json, which halves memory where it is bfloat16."
    )
    yield Line("max_model_len", setup.longest, "Prompt and output of a call; as long as trainer.max_sample_tokens.")
    if setup.embedded:
        yield Line("max_running", SESSIONS[setup.scenario], "As many requests as there are sessions at a time.")
    else:
        yield from _sglang(setup)


def _count_reason(setup: Setup) -> str:
    weights = serving_memory(setup.shape, dtype=setup.dtype, tokens=0).weights / GIB
    share = f", {_gpus(setup.width)} for each" if setup.scenario == "node" else ""
    return f"Engines of this machine{share}: {weights:.1f} GiB of weights in each, and the KV cache."


def _sglang(setup: Setup) -> Iterator[Line]:
    family = setup.shape.model_type
    if parsers := PARSERS.get(family):
        known = f"`weir up` adds the parsers of {family} ({' '.join(parsers)}) at levels below tokens."
    else:
        known = f"No parsers of {family} are known: name them here for levels below tokens."
    if setup.scenario != "one-gpu":
        yield Line("args", [], f"Further flags of SGLang. {known}")
        return
    static = serving_memory(setup.shape, dtype=setup.dtype, tokens=SESSIONS[setup.scenario] * setup.longest // 2)
    fraction = ceil(100 * static.total / setup.capacity) / 100
    why = (
        f"{static.total / GIB:.1f} GiB: weights and {static.tokens} tokens of KV cache; training has the rest. {known}"
    )
    yield Line("args", ["--mem-fraction-static", f"{fraction:.2f}"], why)


def _ports(first_port: int | None) -> Iterator[Line]:
    if first_port is not None:
        why = "The proxy's port; page, judge, router, the router's metrics and the engines have the next ones."
        yield Line("first_port", first_port, why)


def _placement(setup: Setup) -> Iterator[Line]:
    train = setup.plan.processes
    if setup.scenario == "cpu":
        return
    if setup.scenario == "one-gpu":
        yield Line("serve", [0], "The only GPU serves, trains and judges.")
        yield Line("train", [0], "The same.")
        yield Line("judge", [0], "The same; times that it measures are noisy while others use it.")
        yield Line("colocated", True, "Allows it; engines give their memory back while a round trains.")
        return
    yield Line("train", list(range(train)), f"{_gpus(train)} for weights, gradients and moments, each with its share.")
    last = train + setup.engines * setup.width
    if setup.engines:
        yield Line("serve", list(range(train, last)), f"{_gpus(setup.width)} for each engine.")
    if setup.judges:
        yield Line("judge", list(range(last, setup.gpus)), "Kernels are timed where nothing else computes.")
    else:
        yield Line("judge", [setup.gpus - 1], "No GPU is left for the judge alone; it shares all of them.", off=True)


def _agents(setup: Setup) -> Iterator[Line]:
    _, samples = GROUPS[setup.scenario]
    yield Line("samples", samples, "Sessions of a group: advantages compare them with each other.")
    yield Line("concurrency", SESSIONS[setup.scenario], "Sessions at a time; the engines batch them.")
    yield Line("turns", 2, "Answers of a session.")
    yield Line("max_tokens", max(1, setup.longest // 4), "Of an answer: two turns and their prompts fit into a sample.")


def _trainer(setup: Setup) -> Iterator[Line]:
    groups, _ = GROUPS[setup.scenario]
    plan, row = setup.plan, size_defaults(setup.shape.num_parameters)
    adapters = default_lr(setup.shape.num_parameters, lora=True)
    yield Line("algorithm", "dapo", "Group-relative, without a critic and without a reference model in memory.")
    yield Line("groups_per_round", groups, "Groups of a round; more are slower and less noisy.")
    yield Line("min_groups", groups, "A round waits until all of them are ready.")
    yield Line("lr", row.lr, f"By the model's size. Source: {row.source}.")
    yield Line("lora_rank", 16, f"Adapters alone; set lr = {adapters:g} then. Source: {LORA_SOURCE}.", off=True)
    yield Line("precision", plan.precision, _precision_reason(setup))
    yield Line("device", "cuda" if setup.gpus else "cpu", "Where rounds compute.")
    if plan.processes > 1:
        yield Line("processes", plan.processes, "One for each GPU of placement.train.")
    activations = training_memory(setup.shape, plan).activations / GIB
    yield Line("token_budget", plan.tokens, f"Tokens of a micro-batch: {activations:.1f} GiB of activations.")
    yield Line("max_sample_tokens", setup.longest, "Longer samples are not trained on; the arithmetic counts on it.")
    saved = "Activations do not fit otherwise." if plan.checkpointing else "Activations fit; recomputing costs a third."
    yield Line("gradient_checkpointing", plan.checkpointing, saved)
    moments = "Moments wait in CPU memory." if plan.offload_optimizer else "AdamW's moments (8 bytes a parameter) fit."
    yield Line("offload_optimizer", plan.offload_optimizer, moments)
    stored = "Rounds reward by the kernel judge. This line: by the numbers that your agents post (docs/sglang.md)."
    yield Line("rewards.mine.stored", True, stored, off=True)


def _precision_reason(setup: Setup) -> str:
    if setup.plan.precision == "float32":
        return "CPUs are not faster in bfloat16." if not setup.gpus else "That of the model's config.json."
    return "Of computation and of published weights; the optimiser steps float32 weights in any case."
