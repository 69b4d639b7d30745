import torch
class Model(torch.nn.Module):
    """Suppresses the end token before a least length, and all but it at the largest length."""
    def forward(self, logits, cur, eos, min_len, max_len):
        v = torch.arange(logits.shape[1])
        is_eos = v == eos[:, None]
        early = (cur < min_len)[:, None] & is_eos
        late = (cur >= max_len - 1)[:, None] & ~is_eos
        return torch.where(early | late, float("-inf"), logits)
def get_inputs():
    return [torch.randn(16, 100), torch.randint(0, 40, (16,)), torch.randint(0, 100, (16,)), torch.randint(0, 10, (16,)), torch.randint(20, 60, (16,))]
def get_init_inputs(): return []
