"""The routes that change weights: from a folder, shared memory, a process group, as differences or adapters; and
their checksums.

Requests and answers have SGLang's forms. Other than SGLang, which changes the served tensors with every request of an
update, this engine keeps what arrives beside them, and switches at /end_weight_update, between two steps. Invariants:
every update is served whole or not at all; a request that is refused leaves the old weights.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import torch
from starlette.requests import Request
from starlette.responses import Response

from weir.engine.errors import BadRequest, WeightsRefused
from weir.engine.loop import EngineLoop
from weir.engine.responses import JsonResponse, read_body
from weir.engine.transfer.adapter import Adapter, found_base
from weir.engine.transfer.bucket import FORMAT, BadBucket, laid_out, unpacked
from weir.engine.transfer.group import WeightGroup, join_store
from weir.engine.transfer.staging import Staging
from weir.engine.weights import checksums, is_fp8, read_weights

T = TypeVar("T")
JOIN_LIMIT_S = 60.0
RECEIVE_LIMIT_S = 600.0


class DiskBody(msgspec.Struct, frozen=True, kw_only=True):
    """/update_weights_from_disk."""

    model_path: str
    weight_version: str | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True
    keep_pause: bool = False


class BeginBody(msgspec.Struct, frozen=True, kw_only=True):
    """/begin_weight_update."""

    selector: Literal["target", "all"] = "all"


class EndBody(msgspec.Struct, frozen=True, kw_only=True):
    """/end_weight_update; `discard` is this engine's own: forget what has arrived."""

    discard: bool = False


class TensorBody(msgspec.Struct, frozen=True, kw_only=True):
    """/update_weights_from_tensor."""

    serialized_named_tensors: list[str]
    load_format: Literal["flattened_bucket"]
    flush_cache: bool = True
    abort_all_requests: bool = False
    weight_version: str | None = None
    selector: Literal["target", "all"] = "all"


class GroupBody(msgspec.Struct, frozen=True, kw_only=True):
    """/init_weights_update_group; `relayed` is this engine's own: members pass on what they get to two others."""

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    group_name: str
    backend: Literal["gloo", "nccl"] = "nccl"
    relayed: bool = False


class LeaveBody(msgspec.Struct, frozen=True, kw_only=True):
    """/destroy_weights_update_group."""

    group_name: str


class DistributedBody(msgspec.Struct, frozen=True, kw_only=True):
    """/update_weights_from_distributed."""

    names: list[str]
    dtypes: list[Literal["float32", "float16", "bfloat16"]]
    shapes: list[list[int]]
    group_name: str
    load_format: Literal["flattened_bucket"] | None = None
    flush_cache: bool = True
    abort_all_requests: bool = False
    weight_version: str | None = None
    selector: Literal["target", "all"] = "all"


class DeltaBody(msgspec.Struct, frozen=True, kw_only=True):
    """/update_weights_from_delta, this engine's own: tensors as differences to those of the served `base_version`."""

    base_version: str
    names: list[str]
    dtypes: list[Literal["float32", "float16", "bfloat16"]]
    shapes: list[list[int]]
    blocks: bytes  # of all tensors, one after the other, in base64
    flush_cache: bool = True
    abort_all_requests: bool = False
    weight_version: str | None = None


class AdapterBody(msgspec.Struct, frozen=True, kw_only=True):
    """/update_weights_from_adapter, this engine's own: a part of an adapter of LoRA, merged into its base at the last.

    `base_path` is where the trainer has the base; the folder that the engine was started on is looked at too.
    """

    base_path: str
    base_files: dict[str, str]  # name → sha256, of the base's safetensors
    scaling: float
    dtype: Literal["float32", "float16", "bfloat16"]  # of the merged weights
    adapter: bytes  # safetensors with peft's names, in base64
    last: bool
    flush_cache: bool = True
    abort_all_requests: bool = False
    weight_version: str | None = None


class CheckBody(msgspec.Struct, frozen=True):
    """/weights_checker; `staged` is this engine's own: the tensors of the open update instead of the served ones."""

    action: Literal["checksum"] = "checksum"
    staged: bool = False


class Updates:
    """The handlers of the routes; `model_path` is the folder of the last weights that came from one."""

    def __init__(self, engine: EngineLoop, model_path: Path) -> None:
        self.model_path = str(model_path)
        self.quantization = _quantization(model_path)  # of the weights that are served, before they were loaded
        self._first_path = model_path
        self._engine = engine
        self._staging: Staging | None = None
        self._groups: dict[str, WeightGroup] = {}
        self._turn = asyncio.Lock()  # of updates: one at a time

    @property
    def groups(self) -> list[str]:
        """The process groups that this engine is in, by name."""
        return sorted(self._groups)

    async def from_disk(self, request: Request) -> Response:
        """Read and check a folder's weights, then switch to them between two steps."""
        asked = await read_body(request, DiskBody)

        async def act() -> str:
            if asked.abort_all_requests:
                await self._abort_all()
            decoder = self._engine.decoder
            tensors = await asyncio.to_thread(read_weights, Path(asked.model_path), decoder.model)
            prepared = await asyncio.to_thread(decoder.prepare, tensors)
            await self._ask(lambda: self._engine.swap(prepared, asked.weight_version, flush=asked.flush_cache))
            self.model_path, self.quantization = asked.model_path, _quantization(Path(asked.model_path))
            named = f" Weight version updated to {asked.weight_version}." if asked.weight_version is not None else ""
            return "Succeeded to update model weights." + named

        return await self._answered(act, num_paused_requests=0)

    async def begin(self, request: Request) -> Response:
        """Open an update; one that was left open is forgotten."""
        await read_body(request, BeginBody)
        self._staging = Staging(self._engine.decoder)
        return _answer(True, "Success")

    async def from_tensor(self, request: Request) -> Response:
        """Take a bucket from shared memory. Raises BadRequest."""
        asked = await read_body(request, TensorBody)
        if len(asked.serialized_named_tensors) != 1:
            raise BadRequest("serialized_named_tensors has one entry for each rank, and this engine is one rank")

        def take(staging: Staging) -> None:
            flat, entries = unpacked(asked.serialized_named_tensors[0])
            staging.add(flat, entries)

        return await self._take(asked, take)

    async def from_distributed(self, request: Request) -> Response:
        """Take a bucket, or tensors one by one, that the trainer broadcasts. Raises BadRequest."""
        asked = await read_body(request, DistributedBody)
        listed = _listed(asked)

        def take(staging: Staging) -> None:
            group = self._groups.get(asked.group_name)
            if group is None:
                raise WeightsRefused(f"no group {asked.group_name!r}; call /init_weights_update_group first")
            for entries in [laid_out(listed)] if asked.load_format == FORMAT else [laid_out([one]) for one in listed]:
                flat = group.room(entries[-1].end_idx)
                try:
                    group.broadcast(flat if asked.load_format == FORMAT else flat.view(entries[0].dtype))
                except RuntimeError:  # a member is gone, and no broadcast of the group succeeds again
                    self._groups.pop(asked.group_name, None)
                    group.leave()
                    raise
                staging.add(flat.cpu(), entries)

        return await self._take(asked, take)

    async def from_delta(self, request: Request) -> Response:
        """Take tensors as differences to those that are served. Raises BadRequest."""
        asked = await read_body(request, DeltaBody)
        entries = laid_out(_listed(asked))

        def take(staging: Staging) -> None:
            if not self._engine.has_weights:
                raise WeightsRefused("the weights' memory was given back, and there is nothing to change")
            if self._engine.version != asked.base_version:
                raise WeightsRefused(
                    f"the difference is to version {asked.base_version}, and {self._engine.version} is served"
                )
            staging.change(entries, io.BytesIO(asked.blocks))

        return await self._take(asked, take)

    async def from_adapter(self, request: Request) -> Response:
        """Take a part of an adapter, to be merged into its base."""
        asked = await read_body(request, AdapterBody)

        def take(staging: Staging) -> None:
            base = found_base((Path(asked.base_path), self._first_path), asked.base_files)
            adapter = Adapter(base=base, scaling=asked.scaling, dtype=getattr(torch, asked.dtype))
            staging.adapt(adapter, asked.adapter, last=asked.last)

        return await self._take(asked, take)

    async def end(self, request: Request) -> Response:
        """Serve the update from the next step on."""
        asked = await read_body(request, EndBody)

        async def act() -> str:
            staging = self._open()
            if not asked.discard:
                prepared = staging.prepared()
                await self._ask(lambda: self._engine.swap(prepared, staging.version, flush=staging.flush))
                self.quantization = None
            self._staging = None
            return "Success"

        return await self._answered(act)

    async def join(self, request: Request) -> Response:
        """Become a member of a process group; answers once all members are there."""
        asked = await read_body(request, GroupBody)

        def enter() -> WeightGroup:
            store = join_store(asked.master_address, asked.master_port, asked.world_size, JOIN_LIMIT_S)
            return WeightGroup(
                store,
                asked.group_name,
                rank=asked.rank_offset,
                world_size=asked.world_size,
                backend=asked.backend,
                timeout_s=RECEIVE_LIMIT_S,
                relayed=asked.relayed,
            )

        if asked.group_name in self._groups:
            return _answer(False, f"this engine is in a group {asked.group_name!r} already")
        try:
            self._groups[asked.group_name] = await asyncio.to_thread(enter)
        except (RuntimeError, ValueError) as error:
            return _answer(False, f"Failed to initialize custom process group: {error}")
        return _answer(True, "Succeeded to initialize custom process group.")

    async def leave(self, request: Request) -> Response:
        """Leave a process group; a broadcast that still waits there fails."""
        group = self._groups.pop((await read_body(request, LeaveBody)).group_name, None)
        if group is None:
            return _answer(False, "The group to be destroyed does not exist.")
        await asyncio.to_thread(group.leave)
        return _answer(True, "Succeeded to destroy custom process group.")

    async def check(self, request: Request) -> Response:
        """Checksums of the served tensors, or of those of the open update."""
        asked = await read_body(request, CheckBody)
        try:
            if asked.staged:
                sums = await asyncio.to_thread(self._open().checksums)
            else:
                sums = await self._ask(self._served_checksums)
        except WeightsRefused as error:
            return _answer(False, str(error))
        return JsonResponse({"success": True, "message": "Success.", "ranks": [{"checksums": sums}]})

    async def _take(
        self, asked: TensorBody | DistributedBody | DeltaBody | AdapterBody, take: Callable[[Staging], None]
    ) -> Response:
        async def act() -> str:
            staging = self._open()
            if asked.abort_all_requests:
                await self._abort_all()
            try:
                await asyncio.to_thread(take, staging)
            except (BadBucket, RuntimeError) as error:
                raise WeightsRefused(str(error)) from error
            staging.version = asked.weight_version or staging.version
            staging.flush = staging.flush or asked.flush_cache
            return "Success"

        return await self._answered(act)

    def _served_checksums(self) -> dict[str, str]:
        if not self._engine.has_weights:
            raise WeightsRefused("the weights' memory was given back, and none have come since")
        return checksums(dict(self._engine.decoder.model.state_dict(keep_vars=True)))

    def _open(self) -> Staging:
        if self._staging is None:
            raise WeightsRefused("it must run between begin_weight_update() and end_weight_update()")
        return self._staging

    async def _answered(self, act: Callable[[], Awaitable[str]], **more: int) -> Response:
        async with self._turn:
            try:
                return _answer(True, await act(), **more)
            except WeightsRefused as error:
                return _answer(False, f"Weights refused, the old ones stay: {error}", **more)

    async def _abort_all(self) -> None:
        await self._ask(lambda: self._engine.abort(lambda _: True))

    async def _ask(self, action: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._engine.ask(action))


def _listed(asked: DistributedBody | DeltaBody) -> list[tuple[str, torch.dtype, list[int]]]:
    """Names, types and shapes of the tensors of a request. Raises BadRequest."""
    if not len(asked.names) == len(asked.dtypes) == len(asked.shapes):
        raise BadRequest("names, dtypes and shapes differ in length")
    if any(size < 0 for shape in asked.shapes for size in shape):
        raise BadRequest("a shape has a negative size")
    return list(zip(asked.names, (getattr(torch, name) for name in asked.dtypes), asked.shapes, strict=True))


def _quantization(folder: Path) -> str | None:
    return "fp8" if is_fp8(folder) else None


def _answer(success: bool, message: str, **more: int) -> Response:
    return JsonResponse({"success": success, "message": message, **more}, 200 if success else 400)
