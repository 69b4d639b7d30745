"""A real S3 server for tests: moto's, in a process of its own, on a port that the kernel gives it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

# As the AWS clients of any process find them; the server takes any.
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running server."""

    url: str

    def new_root(self) -> str:
        """The URL of an empty prefix in a bucket of its own."""
        bucket = f"weir-{uuid.uuid4().hex}"
        httpx.put(f"{self.url}/{bucket}", trust_env=False, timeout=60).raise_for_status()
        return f"s3://{bucket}/runs/one"


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """A server without buckets, until the block ends."""
    with tempfile.NamedTemporaryFile(prefix="weir-s3-", suffix=".log") as log:
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield S3Server(url=_url(server, Path(log.name)))
        finally:
            server.terminate()
            server.wait()


def _url(server: subprocess.Popen[bytes], log: Path) -> str:
    while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text(errors="replace"))):
        assert server.poll() is None, log.read_text(errors="replace")
        time.sleep(0.02)
    return found[1]
