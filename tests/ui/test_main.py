"""`weir ui` as a command: what it says where it cannot serve, and how it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
from support_stores import Recording
from support_ui import record_run, session_calls

from weir.store.config import StoreConfig
from weir.ui.config import UiConfig

WEIR = [sys.executable, "-m", "weir.scripts.cli.main"]


def test_a_damaged_store_is_named_in_one_line(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=2)
    subprocess.run([*WEIR, "store", "compact", "--root", str(config.root)], check=True, cwd=tmp_path)
    for file in config.root.rglob("*.parquet"):
        file.chmod(0o600)
        file.write_bytes(file.read_bytes()[:200])
    recording = Recording(config, "later")  # calls of the log are placed beside those in files
    recording.record(*session_calls("session_0_9", "group_0", 0, 1, is_right=True))
    recording.close()
    command = [*WEIR, "ui", str(config.root), "--port", "0"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and ended.stderr.startswith("weir: cannot read the store's files: "), ended.stderr
    assert "weir store verify" in ended.stderr and "Traceback" not in ended.stderr


def test_the_page_steps_back_behind_other_sessions_too(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=1)
    command = [*WEIR, "ui", str(config.root), "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True) as page:
        try:
            assert page.stdout is not None and "http://" in page.stdout.readline()
            assert psutil.Process(page.pid).nice() == UiConfig().nice
            weighed = Path(f"/proc/{page.pid}/autogroup")
            if weighed.exists():  # a kernel that weighs sessions against each other
                assert weighed.read_text().split()[-1] == str(UiConfig().nice)
        finally:
            page.terminate()
