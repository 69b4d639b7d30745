import torch
import triton
import triton.language as tl


@triton.jit
def cross_entropy(logits_ptr, targets_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    logits = tl.load(logits_ptr + row * n + offs, mask=mask, other=-float("inf"))
    largest = tl.max(logits, axis=0)
    log_sum = largest + tl.log(tl.sum(tl.exp(logits - largest), axis=0))
    target = tl.load(targets_ptr + row)
    tl.store(out_ptr + row, log_sum - tl.load(logits_ptr + row * n + target))


class ModelNew(torch.nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        rows, n = logits.shape
        out = torch.empty(rows, dtype=logits.dtype, device=logits.device)
        cross_entropy[(rows,)](logits, targets, out, n, BLOCK=triton.next_power_of_2(n))
        return out
