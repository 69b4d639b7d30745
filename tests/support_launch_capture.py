"""The beginning of scripts that capture launches, in a process of their own, since Triton is patched there."""

BEGUN = """import json, sys, msgspec, torch, triton, triton.language as tl
from weir.kernel_eval.recording import launch_capture
from weir.kernel_eval.toolchain import stub_driver
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.worker.host_tensors import HostTensors
from weir.kernel_eval.worker.kernel_values import HostReads, KernelValues
from weir.kernel_eval.worker.recorder import Recorder

stub = stub_driver.install(TARGETS["sm_90"])
values, hosts = KernelValues(), HostTensors()
recorder = Recorder(values, hosts)
capture = launch_capture.LaunchCapture(recorder, values, hosts, stub)
launch_capture.stop_at_ttir()
capture.install()
"""
