"""Seeds that a client cannot foresee: a secret of the server mixed with the seed of the request.

The same request gives the same inputs for as long as a server lives; seeds of different purposes say nothing of each
other, so that a worker, which must know the seed of the weights, cannot compute that of the inputs.
"""

from __future__ import annotations

import hashlib
import random


def derive_seed(secret: bytes, *purpose: str | int) -> int:
    """A seed of 63 bits for a purpose."""
    text = "\x00".join(str(part) for part in purpose).encode()
    return int.from_bytes(hashlib.blake2b(text, key=secret, digest_size=8).digest(), "little") >> 1


def seed_everything(seed: int, *, on_gpu: bool = False) -> None:
    """Seed all generators that a task or a candidate may draw from; torch's for GPUs only where one is used."""
    import numpy as np
    import torch

    if on_gpu:
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
