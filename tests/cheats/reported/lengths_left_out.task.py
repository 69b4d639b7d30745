import torch
class Model(torch.nn.Module):
    def forward(self, x, lengths):
        t = torch.arange(x.shape[1], device=x.device)
        m = (t[None] < lengths[:, None]).to(x.dtype)
        return (x * m[..., None]).sum(1) / lengths[:, None].to(x.dtype)

def get_inputs():
    return [torch.randn(16, 32, 64), torch.full((16,), 32)]

