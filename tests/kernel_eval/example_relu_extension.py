import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void relu(const float* x, float* out, long n) {
    long i = blockIdx.x * (long) blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0.0f);
}
torch::Tensor launch(torch::Tensor x) {
    auto out = torch::empty_like(x);
    relu<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
extension = load_inline(
    "relu_extension", "torch::Tensor launch(torch::Tensor x);", cuda_sources=SOURCE, functions=["launch"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.launch(x)
