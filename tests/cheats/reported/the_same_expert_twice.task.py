import torch
class Model(torch.nn.Module):
    """Routing: the two best experts of each token, and their weights."""
    def forward(self, logits):
        p = torch.softmax(logits, -1)
        w, e = torch.topk(p, 2, -1)
        return w / w.sum(-1, keepdim=True), e
def get_inputs(): return [torch.randn(512, 64)]
def get_init_inputs(): return []
