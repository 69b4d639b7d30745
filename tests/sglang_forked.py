"""`python -m sglang.launch_server` whose scheduler and detokenizer are forked, not spawned; for SGLang's own Python.

Spawned, each of them imports torch and SGLang anew, which is two thirds of what a start costs a CPU. What is forked
before any thread or device exists is the same otherwise.
"""

from __future__ import annotations

import multiprocessing
import runpy

multiprocessing.set_start_method("fork")
multiprocessing.set_start_method = lambda *_, **__: None  # type: ignore[assignment]  # SGLang asks for "spawn"
runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
