import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["columns"])
@triton.jit
def row_sum(x_ptr, out_ptr, columns, stride_row, stride_column, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_row + column * stride_column, mask=column < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0) * scale)


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        assert x.is_cuda
        out = torch.empty(x.shape[0], device="cuda", dtype=x.dtype)
        row_sum[(x.shape[0],)](x, out, x.shape[1], x.stride(0), x.stride(1), self.scale)
        torch.cuda.synchronize()
        return out
