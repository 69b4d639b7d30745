"""Which ranks send a version, and what becomes of a publish whose ranks do not answer."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from rich.console import Console
from support_http import QuietHandler, listening
from support_rounds import Judge, trainer_config

from weir.engine.transfer.group import join_store
from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerError
from weir.trainer.model.owned_tensors import Meeting, OwnedBucket, Sent
from weir.trainer.publishing.members import Member
from weir.trainer.publishing.rank_sender import send_by_ranks
from weir.trainer.settings.publishing import PublishConfig
from weir.trainer.trainer import Trainer


@dataclass
class Hanging:
    """Ranks that answer nothing until they are killed."""

    folder: Path = Path("/none")
    is_alive: bool = True
    address: str | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def offer(self, bucket_bytes: int) -> list[OwnedBucket]:
        assert self.ended.wait(30.0), "nobody killed them"
        raise TrainerError("they were killed")

    def kill(self) -> None:
        self.ended.set()


class Source:
    bucket_bytes = 1
    num_sent = 0

    def keep_memory(self) -> None:
        """Nothing was sent."""


def member_at(url: str) -> Member:
    return Member(
        url=url,
        stages=True,
        relays=True,
        takes_deltas=True,
        takes_fp8=True,
        takes_adapters=True,
        serves_adapters=False,
        folder="",
        version="0",
        dtype="float32",
        device="cpu",
        groups=(),
        num_ranks=1,
        gpus=(0,),
        one_replica=True,
        is_local=True,
        shares_memory=False,
    )


def sent_by(ranks: Any, url: str, limit_s: float) -> tuple[dict[str, str], int]:
    """What becomes of a version that such ranks send to one engine."""
    source: Any = Source()
    no_catalog: Any = None  # the engines name their groups

    async def send() -> tuple[dict[str, str], int]:
        async with httpx.AsyncClient() as http:
            return await send_by_ranks(http, [member_at(url)], source, 1, limit_s, ranks, no_catalog)

    return asyncio.run(send())


def test_ranks_that_do_not_answer_within_the_limit_are_killed() -> None:
    with pytest.raises(TrainerError, match=r"they gave no answer within 0\.2 s, and were killed"):
        sent_by(Hanging(), "http://127.0.0.1:9", 0.2)


class Meets(Hanging):
    """Ranks that wait for engines to join, as long as the publisher serves the group's store."""

    def offer(self, bucket_bytes: int) -> list[OwnedBucket]:
        return [OwnedBucket(owner=0, tensors=(("a", torch.float32, (1,)),))]

    def send(self, meeting: Meeting) -> Sent:
        store = join_store(meeting.address, meeting.port, meeting.world_size, 30.0)
        with pytest.raises(RuntimeError) as ended:
            store.get("never set")
        return Sent(num_bytes=0, failure=str(ended.value))


def test_an_engine_that_hangs_as_it_joins_is_lost_and_the_ranks_are_not() -> None:
    ended, ranks = threading.Event(), Meets()

    class Hangs(QuietHandler):
        def do_POST(self) -> None:
            ended.wait(30.0)

    with listening(Hangs) as url:
        failed, num_ranks = sent_by(ranks, url, 0.5)
        ended.set()
    assert list(failed) == [url]
    assert "init_weights_update_group: TimeoutError no complete answer within 0.5 s" in failed[url]
    assert (num_ranks, ranks.ended.is_set()) == (0, False)


@pytest.mark.parametrize(
    ("by_ranks", "is_alive", "at", "expected"),
    [(True, True, 1, True), (False, True, 1, False), (True, False, 1, False), (True, True, 2, False)],
)
def test_the_ranks_that_hold_a_version_send_it(
    by_ranks: bool, is_alive: bool, at: int, expected: bool, store: StoreConfig, judge: Judge, tmp_path: Path
) -> None:
    given: list[Any] = []
    publish = PublishConfig(way="distributed", by_ranks=by_ranks)
    trainer = Trainer(
        trainer_config(judge, publish=publish),
        store,
        model_path=tmp_path,
        serve=lambda *_, ranks: given.append(ranks),
    )
    backend: Any = Hanging(folder=tmp_path / "1", is_alive=is_alive)
    trainer._backend.put(backend)
    trainer._serve_version(tmp_path / str(at), trainer.catalog, store, trainer.config, Console())
    assert given == [backend if expected else None]
    trainer.catalog.close()
