"""The library of faults: compiled on the spot, put under a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pushlane_storage.sqlite.folder import DATABASE
from tests.powerloss.recording import REPOSITORY, compile_library

HERE = Path(__file__).parent
TIMEOUT_S = 60


def compile_faults(folder: Path) -> Path:
    return compile_library(HERE / "faults.c", folder)


def run_faulty(
    library: Path, store: Path, control: Path, module: str, *args: object
) -> subprocess.CompletedProcess[str]:
    """Run a module on a store whose disk does what the control says."""
    environment = dict(os.environ)
    environment |= {
        "LD_PRELOAD": str(library),
        "FAULTS_DATABASE": str(store.resolve() / DATABASE),
        "FAULTS_CONTROL": str(control),
    }
    command = [sys.executable, "-m", module, str(store), *map(str, args)]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
