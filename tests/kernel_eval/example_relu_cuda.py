import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void relu(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0.0f);
}
"""
extension = load_inline("relu_extension", "", cuda_sources=SOURCE, functions=["launch"], extra_cuda_cflags=["-O3"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.launch(x)
