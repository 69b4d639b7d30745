import torch
class Model(torch.nn.Module):
    """Segment maxima with -inf made 0 for empty segments, and where they are."""
    def forward(self, x, seg):
        out = torch.full((32, x.shape[1]), float("-inf")).scatter_reduce(0, seg[:, None].expand_as(x), x, "amax")
        count = torch.zeros(32).index_add(0, seg, torch.ones(seg.shape[0]))
        return torch.where(count[:, None] > 0, out, 0.0)
def get_inputs(): return [torch.randn(256, 16), torch.randint(0, 32, (256,))]
def get_init_inputs(): return []
