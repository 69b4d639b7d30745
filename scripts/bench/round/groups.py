"""Groups for `weir bench round`: what the demo's agents would record, without a model that writes kernels.

Each session follows the example agent: a kernel, the judge's feedback where it was wrong, another kernel. Kernels are
drawn from the demo's corpus; ids, rendering and logprobs are the demo model's own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch
from tokenizers import Tokenizer

from weir.agents.config import AgentsConfig
from weir.agents.corpus import draw_kernel
from weir.agents.family import Member, member_task, members
from weir.agents.kernel_agent import first_message, open_judge, said
from weir.kernel_eval.client import KernelEvalClient, KernelTask, candidate_source
from weir.scripts.launch.resolve import agents_config, chat_renderer
from weir.scripts.launch.settings import Settings
from weir.store.catalog.catalog import Catalog
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    VersionSpan,
    pack_ids,
    pack_logprobs,
)
from weir.trainer.credit.samples import Sample
from weir.trainer.data.chat_rows import ChatRenderer
from weir.trainer.data.dataset import Message
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.scoring import score
from weir.trainer.model.token_model import load_model
from weir.trainer.settings.config import TrainerConfig

SECOND_TURN_FAULTS = 0.6  # relative to a first answer's


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One call of a session, before it has logprobs."""

    call_id: str
    prompt_ids: list[int]
    output_ids: list[int]
    messages: list[Message]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The sessions of one task."""

    group_id: str
    task: KernelTask
    version: int  # that sampled its calls
    sessions: list[list[Turn]]


def record_groups(settings: Settings, rounds: int) -> None:
    """Record the finished groups of `rounds` rounds in the store."""
    groups = asyncio.run(_groups(settings, rounds))
    logprobs = _logprobs(settings, groups)
    catalog = Catalog.open(settings.store)
    log = LogWriter(settings.store.folder, "bench", settings.store)
    for group in groups:
        _record(group, logprobs, catalog, log)
    log.close()
    catalog.close()


async def _groups(settings: Settings, rounds: int) -> list[Group]:
    """The groups in the order in which rounds claim them; the version of each is the one that its round starts from."""
    assert settings.model.path is not None
    agents, per_round = agents_config(settings, {}), settings.trainer.groups_per_round
    renderer = chat_renderer(settings.model.path, settings)
    draw = random.Random(settings.trainer.seed)
    trainable = itertools.cycle(member for member in members() if member.split == "train")
    groups: list[Group] = []
    async with aclosing(open_judge(agents)) as judge:
        model = Answering(settings.model.path, renderer)
        for number, member in enumerate(itertools.islice(trainable, rounds * per_round)):
            ids = [f"g{number:04}-{i}" for i in range(agents.samples)]
            sessions = [_session(session_id, member, model, judge, agents, draw) for session_id in ids]
            groups.append(
                Group(
                    group_id=f"g{number:04}",
                    task=member_task(member),
                    version=number // per_round,
                    sessions=list(await asyncio.gather(*sessions)),
                )
            )
    return groups


class Answering:
    """The demo model's token ids: of its prompts, and of given answers."""

    def __init__(self, folder: Path, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def prompt(self, messages: list[Message]) -> list[int]:
        """The ids of a first turn."""
        return list(self._renderer.render(messages, add_generation_prompt=True).token_ids)

    def answer(self, text: str) -> list[int]:
        """The ids of an answer, with its end-of-turn token."""
        return [*self._tokenizer.encode(text, add_special_tokens=False).ids, self._renderer.get_stop_token_ids()[0]]

    def next_prompt(self, turn: Turn, new: list[Message]) -> list[int]:
        """The ids of the turn's next prompt."""
        bridged = self._renderer.bridge_to_next_turn(turn.prompt_ids, turn.output_ids, new)
        assert bridged is not None, "the demo's renderer extends exact ids"
        return list(bridged.token_ids)


async def _session(
    session_id: str,
    member: Member,
    model: Answering,
    judge: KernelEvalClient,
    agents: AgentsConfig,
    draw: random.Random,
) -> list[Turn]:
    """A session of the example agent, with drawn answers."""
    task = member_task(member)
    messages: list[Message] = [{"role": "user", "content": first_message(task)}]
    prompt = model.prompt(messages)
    turns: list[Turn] = []
    while True:
        text, _ = draw_kernel(member, draw, faults=SECOND_TURN_FAULTS if turns else 1.0)
        call_id = f"{session_id}-{len(turns)}"
        turn = Turn(
            call_id=call_id, prompt_ids=prompt, output_ids=model.answer(text), messages=list(messages), text=text
        )
        turns.append(turn)
        if len(turns) == agents.turns:
            return turns
        candidate = candidate_source(task, text)
        result = await judge.evaluate(task, candidate, num_correct_trials=agents.feedback_trials, use_cache=True)
        if result.correct:
            return turns
        new: list[Message] = [{"role": "user", "content": said(result, agents)}]
        messages += [{"role": "assistant", "content": text}, *new]
        prompt = model.next_prompt(turn, new)


def _logprobs(settings: Settings, groups: list[Group]) -> dict[str, np.ndarray]:
    """The first weights' logprobs of every output, by call."""
    assert settings.model.path is not None
    torch.set_num_threads(1)
    samples = [_sample(turn) for turn in _turns(groups)]
    config, cpu = TrainerConfig(), torch.device("cpu")
    return score(load_model(settings.model.path, cpu), samples, config, cpu, Ranks())


def _turns(groups: list[Group]) -> Iterator[Turn]:
    return (turn for group in groups for session in group.sessions for turn in session)


def _sample(turn: Turn) -> Sample:
    length = len(turn.output_ids)
    return Sample(
        call_id=turn.call_id,
        group_id="",
        prompt_ids=np.asarray(turn.prompt_ids, dtype=np.int32),
        output_ids=np.asarray(turn.output_ids, dtype=np.int32),
        old_logprobs=np.zeros(length, dtype=np.float32),
        versions=np.zeros(length, dtype=np.int32),
        temperature=1.0,
        advantage=0.0,
    )


def _record(group: Group, logprobs: dict[str, np.ndarray], catalog: Catalog, log: LogWriter) -> None:
    for session in group.sessions:
        session_id = session[0].call_id.rsplit("-", 1)[0]
        catalog.register_session(
            session_id,
            group.group_id,
            task=msgspec.to_builtins(group.task),
            group_size=len(group.sessions),
            metadata={},
            key_hash=None,
        )
        for future in [log.append(_call(turn, session_id, group, logprobs[turn.call_id])) for turn in session]:
            future.result()
        catalog.finish_session(session_id, status="done", info={})


def _call(turn: Turn, session_id: str, group: Group, logprobs: np.ndarray) -> CallRecord:
    return CallRecord(
        call_id=turn.call_id,
        session_id=session_id,
        session_source=SessionSource.KEY,
        group_id=group.group_id,
        dialect="chat",
        level=CaptureLevel.TOKENS,
        model="weir",
        stream=False,
        started_us=1_000_000,
        finished_us=2_000_000,
        prompt_ids=pack_ids(turn.prompt_ids),
        output_ids=pack_ids(turn.output_ids),
        output_logprobs=pack_logprobs(logprobs),
        spans=(VersionSpan(0, len(turn.output_ids), str(group.version)),),
        finish=FinishReason.STOP,
        request=json.dumps({"messages": turn.messages}).encode(),
        answer=json.dumps({"role": "assistant", "content": turn.text}).encode(),
        sampling={"temperature": 1.0, "top_p": 1.0, "top_k": -1},
    )
