"""tests/services.py: the workers of one run use one server, and two runs use two."""

import os
import subprocess
import sys
from pathlib import Path

from tests.repo import ROOT
from tests.tools.test_process import wait_gone

SUITE = """
import os
import time
from pathlib import Path

import pytest

from tests.services import redis_service, service

HERE = Path(__file__).parent


@pytest.mark.parametrize("number", [1, 2])
def test_one(number, redis_service):
    assert service("redis") == redis_service
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    (HERE / worker).write_text(str(redis_service.pid))
    end = time.monotonic() + 60
    while worker != "alone" and len(list(HERE.glob("gw*"))) < 2:  # both have it at once
        assert time.monotonic() < end
        time.sleep(0.05)
"""


def run(folder: Path, *options: str) -> dict[str, int]:
    """Run the suite; the Redis of each worker."""
    folder.mkdir()
    (folder / "test_suite.py").write_text(SUITE)
    outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=ROOT,
        env=outside,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        path.name: int(path.read_text())
        for path in folder.iterdir()
        if path.is_file() and not path.suffix
    }


def test_workers_share_and_runs_do_not(tmp_path: Path) -> None:
    together = run(tmp_path / "together", "-n", "2")
    assert sorted(together) == ["gw0", "gw1"]
    alone = run(tmp_path / "alone")
    assert len(set(together.values())) == 1
    assert set(alone.values()).isdisjoint(together.values())
    for pid in (*together.values(), *alone.values()):
        wait_gone(pid)
