"""A maximum of each channel, over images and pixels, that starts at zero."""

import torch
import triton
import triton.language as tl


@triton.jit
def largest(x_ptr, out_ptr, num_images, num_channels, SIZE: tl.constexpr):
    channel = tl.program_id(0)
    at = tl.arange(0, SIZE)
    most = tl.zeros((SIZE,), tl.float32)
    for image in range(num_images):
        most = tl.maximum(most, tl.load(x_ptr + (image * num_channels + channel) * SIZE + at))
    tl.store(out_ptr + channel, tl.max(most, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        images, channels, height, width = x.shape
        out = torch.empty(channels, device=x.device)
        largest[(channels,)](x, out, images, channels, SIZE=height * width)
        return out
