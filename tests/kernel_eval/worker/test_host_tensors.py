"""Which tensors of a model would lie on the host, and that a launch does not take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from weir.kernel_eval.worker.host_tensors import HostTensors
from weir.kernel_eval.worker.kernel_values import HostReads, KernelValues
from weir.kernel_eval.worker.recorder import Recorder

ON_HOST = [
    "torch.empty(4)",
    "torch.tensor([1.0, 2.0])",
    "torch.arange(4).float()[1:] * 2",
    "torch.cat([torch.ones(2), torch.zeros(2)])",
    "torch.empty_like(torch.ones(4))",
    "torch.ones(4).to(torch.float16)",
    "torch.ones(4, device='cpu')",
    "torch.FloatTensor(4)",
    "torch.as_tensor(np.ones(4))",
    "torch.nn.functional.one_hot(torch.tensor([1, 2]))",
    "x.cpu()",
    "x.to('cpu', torch.float16)",
    "torch.zeros(4, device=torch.ones(1).device)",
    "x.to(torch.ones(1))",
    "torch.zeros(4, device='cuda').cpu().view(2, 2)",
    "moved_away(torch.ones(4))",
]
ON_DEVICE = [
    "x",
    "torch.empty_like(x)",
    "x.new_empty(4)",
    "torch.empty(4, device=x.device)",
    "torch.empty(4, device='cuda')",
    "torch.empty(4, device=0)",
    "torch.empty(4, device='cuda:0')",
    "torch.ones(4).cuda()[1:]",
    "torch.ones(4).to('cuda', torch.float16)",
    "torch.ones(4).to(device=x.device)",
    "torch.ones(4).to(x)",
    "x * torch.tensor(2.0)",
    "x[torch.tensor([0, 1])]",
    "torch.as_tensor(torch.ones(4), device='cuda')",
    "torch.nn.functional.one_hot(torch.tensor([1, 2], device='cuda'))",
    "torch.nn.functional.pad(x, (0, 1))",
    "torch.full((4,), 2.0, device='cpu').cuda()",
    "in_context()",
]


def moved_away(tensor: torch.Tensor) -> torch.Tensor:
    tensor.cuda()  # a copy, which nobody keeps
    return tensor


def in_context() -> torch.Tensor:
    with torch.device("cuda"):
        return torch.ones(4)


def placed(expression: str) -> tuple[HostTensors, torch.Tensor, torch.device, bool]:
    values, hosts = KernelValues(), HostTensors()
    x = torch.ones(4)
    names: dict[str, Any] = {"torch": torch, "np": np, "x": x, "moved_away": moved_away, "in_context": in_context}
    with Recorder(values, hosts), HostReads(values, hosts):
        tensor = eval(expression, names)
        return hosts, tensor, tensor.device, tensor.is_cuda


@pytest.mark.parametrize("expression", ON_HOST)
def test_tensors_of_no_named_device_lie_on_the_host(expression: str) -> None:
    hosts, tensor, device, is_cuda = placed(expression)
    assert hosts.lies_on_host(tensor)
    assert (device.type, is_cuda) == ("cpu", False)
    with pytest.raises(ValueError, match=r"add is given out_ptr in memory of the host.*device=x\.device"):
        hosts.check_launch("add", "out_ptr", tensor)


@pytest.mark.parametrize("expression", ON_DEVICE)
def test_tensors_that_come_from_inputs_or_name_the_device_lie_on_it(expression: str) -> None:
    hosts, tensor, device, is_cuda = placed(expression)
    assert not hosts.lies_on_host(tensor)
    assert (device.type, is_cuda) == ("cuda", True)
    hosts.check_launch("add", "out_ptr", tensor)


def test_a_copy_between_devices_is_a_copy() -> None:
    values, hosts = KernelValues(), HostTensors()
    with HostReads(values, hosts):
        host = torch.zeros(4)
        device = host.cuda()
        device += 1
        back = device.cpu()
        device += 1
    assert (host.tolist(), device.tolist(), back.tolist()) == ([0.0] * 4, [2.0] * 4, [1.0] * 4)


def test_a_tensor_without_elements_has_no_address_that_could_be_wrong() -> None:
    hosts, tensor, _, _ = placed("torch.empty(0)")
    hosts.check_launch("add", "out_ptr", tensor)
