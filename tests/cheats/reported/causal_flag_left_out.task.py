import torch
class Model(torch.nn.Module):
    def forward(self, q, k, v, causal: bool):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

def get_inputs():
    return [torch.randn(4, 64, 32), torch.randn(4, 64, 32), torch.randn(4, 64, 32), False]

def get_init_inputs():
    return []

