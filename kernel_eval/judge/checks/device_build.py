"""Makes machine code of a record's IR for the GPU of the evaluation, in processes that run no code of the candidate.

A builder compiles the IR to PTX, assemblers make machine code of it; what they make is what a player launches in trials
and is timed with. The IR is the text that two recorders wrote alike, and that Triton's compiler prints of what it
reads. Of an autotuned kernel each configuration that can be built is, up to a number that the time allows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from weir.kernel_eval.ipc.forkserver import ASSEMBLER, BUILDER, Leases
from weir.kernel_eval.ipc.framing import MAX_FRAME_BYTES
from weir.kernel_eval.ipc.messages import Assemble, Build, BuiltKernel, Compiled, DeviceKernel, KernelIr, RefusedKernel
from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.channel.contained_program import run_program
from weir.kernel_eval.judge.channel.deadline import Deadline
from weir.kernel_eval.judge.channel.faults import FaultDetected, rule_broken
from weir.kernel_eval.judge.channel.worker_channel import WorkerChannel
from weir.kernel_eval.judge.checks.assembly import described, refused_for
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.toolchain.ptx_parameters import layouts_in

_OPTIONAL_SHARE = 0.5  # of the time limit, after which no further configuration is compiled


class DeviceBuild:
    """The kernels of one candidate. `limits`: those of processes without a GPU."""

    def __init__(self, leases: Leases, limits: Limits, deadline: Deadline, relaxed: frozenset[str]) -> None:
        self._leases = leases
        self._limits = limits
        self._deadline = deadline
        self._relaxed = relaxed
        self._irs: list[KernelIr] = []
        self._built: list[DeviceKernel | RefusedKernel | None] = []
        self._reports: list[dict[str, Any]] = []
        self._printed = ""
        self._seconds = 0.0

    def kernels(self, trace: Trace, irs: Sequence[KernelIr]) -> tuple[DeviceKernel | None, ...]:
        """The kernels of a record, by the number of their IR; those that were built for another record are kept.

        Raises `FaultDetected` if a launch cannot be made in any of its configurations.
        """
        started = time.monotonic()
        new = [ir for ir in dict.fromkeys(map(_key, irs)) if ir not in map(_key, self._irs)]
        wanted = [next(ir for ir in irs if _key(ir) == key) for key in new]
        optional = {_key(irs[n]) for launch in trace.launches for n in _numbers(launch) if launch.alternatives}
        required = {_key(irs[n]) for launch in trace.launches for n in _numbers(launch) if not launch.alternatives}
        if wanted:
            self._build(wanted, frozenset(n for n, key in enumerate(new) if key in optional - required))
        self._seconds += time.monotonic() - started
        found = [self._built[[_key(known) for known in self._irs].index(_key(ir))] for ir in irs]
        for launch in trace.launches:
            ways = [found[number] for number in _numbers(launch)]
            if not any(isinstance(way, DeviceKernel) for way in ways):
                refused = next((way for way in ways if isinstance(way, RefusedKernel)), None)
                refused = refused or RefusedKernel(0, launch.name, "compile", "no configuration was compiled in time")
                raise refused_for(refused, self._limits.target, self._printed)
        return tuple(one if isinstance(one, DeviceKernel) else None for one in found)

    def report(self, chosen: Sequence[KernelIr]) -> dict[str, Any]:
        """The resources of the kernels that are launched: all, of autotuned ones those that a player chose."""
        kernels = [
            report
            for ir, report in zip(self._irs, self._reports, strict=True)
            if report and (not report["is_optional"] or _key(ir) in map(_key, chosen))
        ]
        shown = [{name: value for name, value in report.items() if name != "is_optional"} for report in kernels]
        return {"target": self._limits.target, "kernels": shown, "seconds": round(self._seconds, 4)}

    def _build(self, irs: list[KernelIr], optional: frozenset[int]) -> None:
        compiled = self._compile(irs, optional)
        by_number: dict[int, BuiltKernel] = {built.number: built for built in compiled.built}
        refused = {one.number: one for one in compiled.refused}
        for number, ir in enumerate(irs):
            built = by_number.get(number)
            report: dict[str, Any] = {}
            code: DeviceKernel | RefusedKernel | None = refused.get(number)
            if built is not None:
                if built.ir != ir.text and "ir_differs" not in self._relaxed:
                    raise rule_broken("ir_differs", "the IR's text is not as the compiler prints what it reads there")
                try:
                    code, report = self._assemble(ir, built)
                    report["is_optional"] = number in optional
                except FaultDetected as error:
                    if number not in optional:
                        raise
                    code = RefusedKernel(number, ir.kernel, "compile", error.message)
            self._irs.append(ir)
            self._built.append(code)
            self._reports.append(report)

    def _compile(self, irs: list[KernelIr], optional: frozenset[int]) -> Compiled:
        limits = self._limits
        builder = WorkerChannel(self._leases.compiler, limits, self._deadline, BUILDER)
        with contextlib.ExitStack() as closing:
            closing.callback(builder.end_and_close)
            limit_s = limits.compile_timeout_s
            builder.send(Build(tuple(irs), limits.target, optional, limit_s * _OPTIONAL_SHARE), ())
            compiled = builder.receive(Compiled, "compile", limit_s, MAX_FRAME_BYTES)
            builder.end()  # so that its output is complete
            self._printed = builder.output_tail()
        for one in compiled.refused:
            if one.number not in optional:
                raise refused_for(one, limits.target, self._printed)
        return compiled

    def _assemble(self, ir: KernelIr, built: BuiltKernel) -> tuple[DeviceKernel, dict[str, Any]]:
        """Raises `FaultDetected` if the assembler refuses the text."""
        limits = self._limits
        message = Assemble(built.assembly, limits.target, ir.options.get("enable_fp_fusion") is not False)
        run = run_program(self._leases.program, limits, ASSEMBLER, message, limits.compile_timeout_s, writes=True)
        report = described(run, built)
        layout = next((one for one in layouts_in(built.assembly) if one.kernel == built.form.entry), None)
        sizes = tuple(parameter.size for parameter in layout.parameters) if layout else ()
        return DeviceKernel(built.form, sizes, run.written), report


def _key(ir: KernelIr) -> tuple[Any, ...]:
    return ir.kernel, ir.text, *sorted(ir.options.items(), key=lambda item: item[0])


def _numbers(launch: Any) -> list[int]:
    """The IR of a launch and of its alternatives, by number."""
    return [way.ir for way in (launch, *launch.alternatives) if way.ir is not None]
