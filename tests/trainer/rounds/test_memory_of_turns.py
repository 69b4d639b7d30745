"""The memory of an engine and a trainer that take turns, as the system counts it: the two are never held at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from support_model import make_tiny_model
from support_rounds import Judge, add_group, run_in_process, trainer_config
from support_servers import ServerProcess, start_engine

from weir.store.config import StoreConfig

LAYERS, WIDTH = 4, 768
WEIGHTS_BYTES = 4 * LAYERS * WIDTH * (4 * WIDTH // 2 + WIDTH + 3 * 2 * WIDTH)  # of the layers' projections, in float32


class Held:
    """The bytes of its own that each side held, moment by moment."""

    def __init__(self) -> None:
        self.moments: list[tuple[int, int]] = []  # of the engine, of the trainer

    def look(self, engine: set[int]) -> None:
        trainer = {process.pid for process in psutil.Process().children(recursive=True)} - engine
        self.moments.append((sum(map(own_bytes, engine)), sum(map(own_bytes, trainer))))


def own_bytes(pid: int) -> int:
    """Memory of a process that is no file's; 0 once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    _, found, rest = status.partition("RssAnon:")
    return int(rest.split()[0]) * 1024 if found else 0


@contextmanager
def watched(engine: ServerProcess) -> Iterator[Held]:
    held, over = Held(), threading.Event()
    pids = {engine.process.pid, *(child.pid for child in psutil.Process(engine.process.pid).children(recursive=True))}

    def watch() -> None:
        while not over.wait(0.005):
            held.look(pids)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield held
    finally:
        over.set()
        watching.join()


def test_engine_and_trainer_together_hold_what_the_larger_one_holds_alone(
    judge: Judge, store: StoreConfig, tmp_path: Path
) -> None:
    model = make_tiny_model(tmp_path / "wide", hidden_size=WIDTH, num_layers=LAYERS)
    engine = start_engine(model, folder=tmp_path)
    try:
        config = trainer_config(judge, groups_per_round=1, engine_urls=[engine.url], takes_turns=True)
        for number in range(3):
            add_group(store, model, f"g{number}", [0.0, 0.3, 1.0])
        with watched(engine) as held:
            assert run_in_process(config, store, model, rounds=3) == 0
        assert engine.get("/model_info")["weight_version"] == "3"
    finally:
        engine.stop()
    of_engine, of_trainer = zip(*held.moments, strict=True)
    asleep = min(of_engine)
    state_came = next(at for at, size in enumerate(of_trainer) if size > max(of_trainer) - WEIGHTS_BYTES)
    serving = [trainer for engine, trainer in held.moments[state_came:] if engine > asleep + WEIGHTS_BYTES]
    away = median(serving)
    # What neither side gives back belongs to the interpreter and its libraries.
    alone = max(of_engine) - asleep, max(of_trainer) - away
    assert alone[0] > WEIGHTS_BYTES, "the engine gave its weights back"
    assert alone[1] > 3 * WEIGHTS_BYTES, "weights and moments of training went out while the engine served"
    assert max(engine - asleep + max(0, trainer - away) for engine, trainer in held.moments) <= 1.1 * max(alone)
