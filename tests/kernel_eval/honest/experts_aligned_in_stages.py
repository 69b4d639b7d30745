"""Tokens sorted by expert, each padded to whole blocks: the bound is one of blocks, not of experts."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """vLLM's moe_align_block_size: token slots in the order of experts, each expert padded to a block."""

    def __init__(self, experts, block):
        super().__init__()
        self.experts, self.block = experts, block

    def forward(self, topk_ids):
        flat = topk_ids.flatten()
        n = flat.numel()
        E, bs = self.experts, self.block
        counts = torch.bincount(flat, minlength=E)
        padded = (counts + bs - 1) // bs * bs
        ends = padded.cumsum(0)
        cap = n + E * (bs - 1)
        starts = ends - padded
        order = torch.argsort(flat, stable=True)
        first = counts.cumsum(0) - counts
        rank = torch.arange(n, device=flat.device) - first[flat[order]]
        ids = torch.full((cap,), n, dtype=torch.int32, device=flat.device)
        ids[starts[flat[order]] + rank] = order.to(torch.int32)
        nb = (cap + bs - 1) // bs
        b = torch.arange(nb, device=flat.device) * bs
        eid = torch.searchsorted(ends, b, right=True).clamp(max=E - 1).to(torch.int32)
        eid = torch.where(b < ends[-1], eid, torch.full_like(eid, -1))
        return ids, eid, ends[-1:].to(torch.int32)


def get_inputs():
    return [torch.randint(0, 8, (40, 2))]


def get_init_inputs():
    return [8, 16]


@triton.jit
def count_stage(ids_ptr, cnt_ptr, n, per, E: tl.constexpr):
    pid = tl.program_id(0)
    base = (pid + 1) * E
    for j in range(per):
        i = pid * per + j
        if i < n:
            e = tl.load(ids_ptr + i)
            c = tl.load(cnt_ptr + base + e)
            tl.store(cnt_ptr + base + e, c + 1)
            tl.debug_barrier()


@triton.jit
def scan_stage(cnt_ptr, P, E: tl.constexpr):
    e = tl.program_id(0)
    last = 0
    for p in range(1, P + 1):
        c = tl.load(cnt_ptr + p * E + e)
        last = last + c
        tl.store(cnt_ptr + p * E + e, last)


@triton.jit
def ends_stage(cnt_ptr, start_ptr, total_ptr, P, E: tl.constexpr, BS: tl.constexpr):
    last = 0
    for e in range(E):
        c = tl.load(cnt_ptr + P * E + e)
        tl.store(start_ptr + e, last)
        last = last + tl.cdiv(c, BS) * BS
    tl.store(start_ptr + E, last)
    tl.store(total_ptr, last)


@triton.jit
def place_stage(ids_ptr, cnt_ptr, start_ptr, sorted_ptr, eid_ptr, n, per, nb, E: tl.constexpr, BS: tl.constexpr):
    pid = tl.program_id(0)
    s = tl.load(start_ptr + pid)
    t = tl.load(start_ptr + pid + 1)
    for b in range(s // BS, t // BS):
        tl.store(eid_ptr + b, pid)
    for j in range(per):
        i = pid * per + j
        if i < n:
            e = tl.load(ids_ptr + i)
            c = tl.load(cnt_ptr + pid * E + e)
            tl.store(sorted_ptr + tl.load(start_ptr + e) + c, i)
            tl.debug_barrier()
            tl.store(cnt_ptr + pid * E + e, c + 1)
            tl.debug_barrier()


class ModelNew(nn.Module):
    def __init__(self, experts, block):
        super().__init__()
        self.experts, self.block = experts, block

    def forward(self, topk_ids):
        E, BS = self.experts, self.block
        flat = topk_ids.reshape(-1)
        n = flat.numel()
        per = triton.cdiv(n, E)
        cap = n + E * (BS - 1)
        nb = triton.cdiv(cap, BS)
        dev = topk_ids.device
        cnt = torch.zeros((E + 1, E), dtype=torch.int32, device=dev)
        start = torch.zeros(E + 1, dtype=torch.int32, device=dev)
        sorted_ids = torch.empty((cap,), dtype=torch.int32, device=dev).fill_(n)
        eid = torch.full((nb,), -1, dtype=torch.int32, device=dev)
        total = torch.empty((1,), dtype=torch.int32, device=dev)
        count_stage[(E,)](flat, cnt, n, per, E=E)
        scan_stage[(E,)](cnt, E, E=E)
        ends_stage[(1,)](cnt, start, total, E, E=E, BS=BS)
        place_stage[(E,)](flat, cnt, start, sorted_ids, eid, n, per, nb, E=E, BS=BS)
        return sorted_ids, eid, total
