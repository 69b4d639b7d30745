"""Few elements of a copy that torch made are changed."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, logits, tokens, lengths, bad_words):
        n = self.n
        start = lengths[:, None] - (n - 1) + torch.arange(n - 1)
        suffix = tokens.gather(1, start.clamp(min=0))
        windows = tokens.unfold(1, n, 1)
        pos = torch.arange(windows.shape[1])
        match = (windows[:, :, : n - 1] == suffix.unsqueeze(1)).all(dim=-1)
        match = match & (pos + n <= lengths[:, None]) & (lengths[:, None] >= n)
        hits = torch.zeros_like(logits).scatter_add_(1, windows[:, :, -1], match.to(logits.dtype))
        banned = hits > 0
        banned[:, bad_words] = True
        return logits.masked_fill(banned, -1e9), banned.sum(dim=1)


def get_inputs():
    return [
        torch.randn(16, 64),
        torch.randint(0, 64, (16, 160)),
        torch.randint(0, 161, (16,)),
        torch.randint(0, 64, (4,)),
    ]


def get_init_inputs():
    return [2]


@triton.jit
def ban_ngrams(tok_ptr, len_ptr, out_ptr, flag_ptr, T, V, N: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    L = tl.load(len_ptr + b)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = (p + N <= L) & (p + N <= T)
    for k in tl.static_range(N - 1):
        want = tl.load(tok_ptr + b * T + tl.maximum(L - (N - 1) + k, 0))
        ok = ok & (tl.load(tok_ptr + b * T + p + k, mask=p + k < T, other=-1) == want)
    nxt = tl.load(tok_ptr + b * T + p + N - 1, mask=ok, other=0)
    tl.store(out_ptr + b * V + nxt, -1e9, mask=ok)
    tl.store(flag_ptr + b * V + nxt, 1, mask=ok)


@triton.jit
def ban_words(w_ptr, out_ptr, flag_ptr, V, W, BW: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BW)
    w = tl.load(w_ptr + i, mask=i < W, other=0)
    tl.store(out_ptr + b * V + w, -1e9, mask=i < W)
    tl.store(flag_ptr + b * V + w, 1, mask=i < W)


@triton.jit
def count(flag_ptr, c_ptr, V, BV: tl.constexpr):
    b = tl.program_id(0)
    v = tl.arange(0, BV)
    f = tl.load(flag_ptr + b * V + v, mask=v < V, other=0)
    tl.store(c_ptr + b, tl.sum(f.to(tl.int64), axis=0))


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, logits, tokens, lengths, bad_words):
        B, T = tokens.shape
        V = logits.shape[1]
        out = logits.clone()
        flag = torch.zeros((B, V), dtype=torch.int8, device=logits.device)
        c = torch.empty(B, dtype=torch.int64, device=logits.device)
        ban_ngrams[(B, triton.cdiv(T, 64))](tokens.contiguous(), lengths, out, flag, T, V, self.n, BLOCK=64)
        ban_words[(B,)](bad_words, out, flag, V, bad_words.shape[0], BW=triton.next_power_of_2(bad_words.shape[0]))
        count[(B,)](flag, c, V, BV=triton.next_power_of_2(V))
        return out, c
