"""`weir bench …`: benchmarks. Each measures a peer in the same run and prints one JSON object on its last line."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.settings import ConfigOption, load_settings

PHASE_CHANGES = 100


class Peer(enum.StrEnum):
    """Peers of the proxy's benchmark."""

    LITELLM = "litellm"


def proxy(
    against: Annotated[Peer | None, typer.Option(help="A peer that gets the same load in the same run.")] = None,
    peer_env: Annotated[Path, typer.Option(help="Folder of the peer's own environment, created if missing.")] = Path(
        ".litellm"
    ),
) -> None:
    """CPU per call and added latency, with and without the proxy.

    The same calls go through the proxy and straight to the router.
    """
    from weir.scripts.bench.proxy.run import main

    main(peer_env if against else None)


def gate(
    agents: Annotated[int, typer.Option(min=1, help="Agents with a call in flight.")] = 256,
    updates: Annotated[int, typer.Option(min=1, help="Weight updates meanwhile.")] = 30,
    held: Annotated[int, typer.Option(min=1, help="Calls held at once afterwards.")] = 5000,
    hold_s: Annotated[float, typer.Option(min=0, help="How long they are held, in seconds.")] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of the proxy.")] = 1,
    load: Annotated[int, typer.Option(min=0, help="Busy processes beside it.")] = 0,
    with_phases: Annotated[
        bool, typer.Option("--phases", help="Instead: 100 phase changes of engines (weir bench phases).")
    ] = False,
) -> None:
    """Weight updates under agents: errors, tokens, holds, memory.

    Afterwards thousands of calls are held and released at once.
    """
    if with_phases:
        return phases(agents=agents, changes=PHASE_CHANGES)
    from weir.scripts.bench.gate.run import main

    main(agents, updates, held, hold_s, workers, load)


def phases(
    agents: Annotated[int, typer.Option(min=2, help="Agents with a call in flight.")] = 32,
    changes: Annotated[int, typer.Option(min=1, help="Phase changes of engines.")] = PHASE_CHANGES,
    only_json: Annotated[bool, typer.Option("--json", help="Print only the last line, with all figures.")] = False,
) -> None:
    """Engines taken for training and given back, under agents.

    Errors, tokens, silences that agents see, seconds of a switch, idle time by cause.
    """
    from weir.scripts.bench.phases.run import main

    main(agents, changes, only_json)


def publish(
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder; default: a small random model.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps, of which each figure is the median.")] = 3,
    lr: Annotated[float, typer.Option(min=0, help="Learning rate of a step.")] = 1e-6,
    only_json: Annotated[bool, typer.Option("--json", help="Print only the last line, with all figures.")] = False,
    ways: Annotated[
        bool, typer.Option("--ways", help="Instead: publishing by disk, shared memory and broadcast, and the gate.")
    ] = False,
    layers: Annotated[int, typer.Option(min=1, help="With --ways: layers of the model, about 23 MB each.")] = 12,
    engines: Annotated[int, typer.Option(min=1, help="With --ways: tiny engines that one trainer sends to.")] = 20,
    faults: Annotated[
        int | None, typer.Option(min=1, help="Instead: so many publishes under calls, with a random fault in each.")
    ] = None,
    seed: Annotated[int, typer.Option(help="With --faults: draws faults, ways and moments.")] = 0,
) -> None:
    """Sizes and rates of weight differences, and of ways to publish.

    Copying the same file is measured in the same run.
    """
    if ways:
        from weir.scripts.bench.publish.ways import main as measure_ways

        return measure_ways(layers, steps, engines)
    if faults is not None:
        from weir.scripts.bench.publish.faults import main as measure_faults

        return measure_faults(faults, seed)
    from weir.scripts.bench.publish.run import main

    main(model, steps, lr, only_last=only_json)


def engine(
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder to serve; default: a random model.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of which each figure is the median.")] = 5,
    new_tokens: Annotated[int, typer.Option(min=1, help="Output tokens of a request.")] = 192,
    config: ConfigOption = None,
) -> None:
    """Tokens per second, beside a bare decode loop.

    All use the same model and alternate. With [engine] kind = "sglang" in the configuration SGLang is measured too.
    """
    from weir.scripts.bench.engine.run import main

    main(model, load_settings(config).engine, rounds=rounds, new_tokens=new_tokens)


def store(
    num_calls: Annotated[int, typer.Option(min=640, help="Calls to append and compact.")] = 8000,
    queried: Annotated[int, typer.Option(min=640, help="Calls of the store for SQL queries.")] = 40_000,
    grow: Annotated[
        bool, typer.Option("--grow", help="Instead: the queries at 4,000, 40,000 and 400,000 short calls.")
    ] = False,
    copies: Annotated[
        int | None, typer.Option(min=1, help="Instead: the queries over so many copies of 40,000 short calls.")
    ] = None,
    s3: Annotated[
        bool, typer.Option("--s3", help="Instead: what a question fetches from object storage (moto's, extra `test`).")
    ] = False,
) -> None:
    """Appends, compaction, sizes and queries, beside peers.

    Queries also run while a proxy writes. The comparison with Delta needs the extra `bench`.
    """
    from weir.scripts.bench.store.run import main

    main(num_calls, queried, grow, copies, s3=s3)


def trainer(
    peer_env: Annotated[Path, typer.Option(help="Folder of TRL's own environment, created if missing.")] = Path(".trl"),
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Measure models of Qwen3's forms on this machine's GPU instead.")
    ] = False,
    case: Annotated[list[str] | None, typer.Option(help="With --gpu, a case; may be repeated. Default: all.")] = None,
    peak_tflops: Annotated[
        float, typer.Option(min=1, help="With --gpu, the device's dense peak in bfloat16; an H100's or H200's is 989.")
    ] = 989.0,
    steps: Annotated[int, typer.Option(min=1, help="With --gpu, steps of which a figure is the median.")] = 3,
    host_gb: Annotated[
        float | None, typer.Option(min=1, help="With --gpu, CPU memory that may be used. Default: what is free.")
    ] = None,
) -> None:
    """Tokens per second of a loss and backward pass, and TRL's.

    Trees of sequences are also compared with the same sequences one by one.
    """
    if case and not gpu:
        raise typer.BadParameter("a case is measured on a GPU: add --gpu", param_hint="--case")
    if gpu:
        from weir.scripts.bench.trainer.on_gpu import main as main_on_gpu

        main_on_gpu(case or [], peak_tflops, steps, host_gb)
        return
    from weir.scripts.bench.trainer.run import main

    main(peer_env)


def round_(rounds: Annotated[int, typer.Option(min=1, help="Rounds to measure.")] = 12) -> None:
    """Time of a round outside judging, training and loading.

    Rounds of the demo's size, with its servers, step by step.
    """
    from weir.scripts.bench.round.run import main

    main(rounds)


def scale(
    model: Annotated[
        Path | None, typer.Option(help="Hugging Face folder; default: two random models, of SmolLM2's form and MoE.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Steps of each side, of which each figure is the median.")] = 3,
    samples: Annotated[int, typer.Option(min=2, help="Samples of a step, of 256 tokens; an even number.")] = 8,
    megatron_shims: Annotated[
        Path | None,
        typer.Option(exists=True, help="Measure Megatron-core, too: tests/support_megatron_cpu.py lets it use CPUs."),
    ] = None,
    only_json: Annotated[bool, typer.Option("--json", help="Print only the last line, with all figures.")] = False,
) -> None:
    """Two training ranks beside one process that has both cores.

    Tokens per second, memory over the plan's, checkpoints over the disk's rate, bytes read to resume.
    """
    from weir.scripts.bench.scale.run import main
    from weir.scripts.bench.scale.workload import Work

    main(["smollm2", "moe"], model, Work(num_samples=samples), rounds, megatron_shims, only_json=only_json)


def kernel_eval(
    evaluations: Annotated[int, typer.Option(min=1, help="Evaluations to measure.")] = 200,
    trials: Annotated[
        int, typer.Option(min=1, help="Correctness trials of each. With --mutants: evaluations of each.")
    ] = 3,
    hostile: Annotated[int, typer.Option(min=0, help="Instead: that many candidates, most of them attacks.")] = 0,
    corpus: Annotated[
        Path | None,
        typer.Option(help="Instead: which cheats of that folder `tests` are rewarded, and which honest kernels not."),
    ] = None,
    mutants: Annotated[
        Path | None,
        typer.Option(help="Instead: what kernels could leave out of the tasks of that folder, and still pass."),
    ] = None,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Instead: the accuracy of kernel timing on a GPU. With --corpus: GPUs judge it."),
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Instead: memory of an evaluation of large tensors.")
    ] = False,
) -> None:
    """CPU and latency of one evaluation of a small kernel.

    All processes are counted together. With --hostile: the effect of attacks on the server and on other candidates.
    """
    if corpus is not None:
        from weir.scripts.bench.kernel_eval.corpus import main as judge_corpus

        return judge_corpus(corpus, trials, on_gpu=gpu)
    if mutants is not None:
        from weir.scripts.bench.kernel_eval.mutants.run import main as ask_of_mutants

        return ask_of_mutants(mutants, trials)
    if memory:
        from weir.scripts.bench.kernel_eval.memory import main as measure_memory

        return measure_memory()
    if gpu:
        from weir.scripts.bench.kernel_eval.gpu_timing import main as time_gpu

        return time_gpu()
    if hostile:
        from weir.scripts.bench.kernel_eval.hostile import main

        return main(hostile)
    from weir.scripts.bench.kernel_eval.run import bench_kernel_eval

    bench_kernel_eval(evaluations, trials)


def ui(
    calls: Annotated[int, typer.Option(min=1000, help="Calls of the store, in sessions of ten.")] = 1_000_000,
    store: Annotated[Path | None, typer.Option(help="Folder of the store, made if missing, and kept.")] = None,
    only_json: Annotated[bool, typer.Option("--json", help="Print only the last line, with all figures.")] = False,
) -> None:
    """Time and memory of the page over a large store.

    Pages, filters, orders, long sessions, and a reader who takes a gigabyte slowly.
    """
    from weir.scripts.bench.ui.run import main

    main(calls, store, only_json=only_json)
