"""bfloat16 and 8-bit floats compared with torch's conversions; libdevice's functions compared with torch's."""

from __future__ import annotations

import json
import subprocess
import sys

CHECK = r"""
import os
os.environ["TRITON_INTERPRET"] = "1"
import json
import numpy as np, torch, triton.language as tl
from weir.kernel_eval.interpreter import libdevice, narrow_floats as nf

edges = [0.0, -0.0, np.inf, -np.inf, 3.39e38, 1e-45, 448, 449, 464.1, 57344, 61441, 2**-9, 2**-10, 1.5 * 2**-10]
scales = 10.0 ** np.random.default_rng(0).integers(-30, 30, 50_000)
every_float = np.concatenate([torch.randn(50_000).numpy() * scales, edges]).astype(np.float32)
result = {}
fp8 = ((tl.float8e4nv, torch.float8_e4m3fn, 448.0), (tl.float8e5, torch.float8_e5m2, 57344.0))
for kind, torch_kind, limit in ((tl.bfloat16, torch.bfloat16, None), *fp8):
    got = nf.decode(nf.encode(every_float, kind), kind)
    wanted = torch.from_numpy(every_float)
    wanted = (wanted if limit is None else wanted.clamp(-limit, limit)).to(torch_kind).float().numpy()
    result[str(kind)] = int((got != wanted).sum())
    bits = np.arange(65536 if kind == tl.bfloat16 else 256).astype(np.uint16 if kind == tl.bfloat16 else np.uint8)
    values = nf.decode(bits, kind)
    again = nf.encode(values, kind)
    result[str(kind) + " round trip"] = int(((again != bits) & np.isfinite(values)).sum())
    result[str(kind) + " nan"] = bool(np.isnan(nf.decode(nf.encode(np.array([np.nan], np.float32), kind), kind)).all())
x = torch.linspace(0.05, 0.95, 400)
for name in ("tanh", "erf", "log1p", "expm1", "asin", "atanh", "lgamma", "sin", "rsqrt", "erfinv"):
    function = getattr(torch, name, None) or getattr(torch.special, name)
    got = libdevice.find(f"__nv_{name}f")(x.numpy())
    result[name] = float(np.abs(got - function(x).numpy()).max())
result["unknown"] = libdevice.find("__nv_byte_perm") is None
print(json.dumps(result))
"""


def test_narrow_floats_and_libdevice_agree_with_torch() -> None:
    """In a process of its own, because Triton's interpreter is chosen at import."""
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result.pop("unknown") is True
    for name, value in result.items():
        if name.endswith("nan"):
            assert value is True
        elif name in ("bf16", "fp8e4nv", "fp8e5") or name.endswith("round trip"):
            assert value == 0, name
        else:
            assert value < 2e-6, name
