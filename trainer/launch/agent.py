"""torchrun's agent of one machine: the command that starts its ranks, and machines that wait for the first one.

Invariant: the ranks of a machine end with its agent. An agent never restarts ranks: one that ends, ends all, and what
started the first machine's decides what follows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from weir.trainer.errors import TrainerUsageError
from weir.trainer.launch.nodes import POLL_S, address, run_once
from weir.trainer.settings.launch import LaunchConfig

MODULE = "weir.trainer.learner.rank_main"
AGENT_PID = "WEIR_RANKS_AGENT_PID"
NO_FOLDER = "-"  # in place of the work folder, which the first machine alone has


def agent_command(*, processes: int, launch: LaunchConfig, node: int, folder: str, device: str) -> list[str]:
    """The command line of a machine's agent; `processes` are those of all machines."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes // launch.nodes)]
    if launch.nodes == 1:
        command += ["--standalone"]
    else:
        host, port = address(launch)
        command += ["--nnodes", str(launch.nodes), "--node-rank", str(node)]
        command += ["--master-addr", host, "--master-port", str(port + 1)]
        command += ["--rdzv-conf", f"timeout={int(launch.timeout_s)}"]
    # the ranks know by the variable whether the agent still lives when they ask to end with it
    return ["/bin/sh", "-c", f'export {AGENT_PID}=$$; exec "$@"', "sh", *command, "-m", MODULE, folder, device]


def run_node(
    node: int,
    *,
    processes: int,
    launch: LaunchConfig,
    device: str,
    once: bool,
    say: Callable[[str], None],
) -> int:
    """Run the ranks of a further machine whenever the first one's wait for them; with `once`, a single time.

    Returns the status of the last run. Raises `TrainerUsageError` for a number that is no further machine's.
    """
    if launch.rendezvous is None:
        raise TrainerUsageError(
            "trainer.launch.by = 'ray' starts the processes of all machines: `weir ranks` is not needed"
        )
    if not 1 <= node < launch.nodes:
        raise TrainerUsageError(
            f"--node {node} is no further machine of trainer.launch.nodes = {launch.nodes}: name 1 to "
            f"{launch.nodes - 1}; `weir round` runs on machine 0"
        )
    command = agent_command(processes=processes, launch=launch, node=node, folder=NO_FOLDER, device=device)
    while True:
        say(f"waits for {launch.rendezvous}")
        status = run_once(command, node, launch, say)
        say(f"has ended with status {status}")
        if once:
            return status
        time.sleep(POLL_S)
