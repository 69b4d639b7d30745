"""Seeds that a client cannot predict: derived from a secret of the evaluation.

Every evaluation has a secret of its own, so that nothing it showed helps in the next. Seeds of different purposes are
independent, so that a worker, which gets the seed of the weights, cannot compute that of the inputs.
"""

from __future__ import annotations

import hashlib
import random


def derive_seed(secret: bytes, *purpose: str | int) -> int:
    """The seed of a purpose; 63 bits."""
    text = "\x00".join(str(part) for part in purpose).encode()
    return int.from_bytes(hashlib.blake2b(text, key=secret, digest_size=8).digest(), "little") >> 1


def seed_everything(seed: int, *, on_gpu: bool = False) -> None:
    """Seed all generators that a task or a candidate may use; those of GPUs only with `on_gpu`."""
    import numpy as np
    import torch

    if on_gpu:
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
