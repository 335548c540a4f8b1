"""The library of faults: compiled on the spot, put under a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pushlane_storage.sqlite.folder import DATABASE
from tests.powerloss.recording import REPOSITORY, NoCompiler

HERE = Path(__file__).parent
TIMEOUT_S = 60


def compile_faults(folder: Path) -> Path:
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        raise NoCompiler(
            "the test of failing disks compiles tests/faults/faults.c, but there is no C compiler: "
            "install gcc (apt-get install gcc libc6-dev)"
        )
    library = folder / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, "-o", str(library), str(HERE / "faults.c")], capture_output=True, text=True
    )
    if done.returncode:
        raise NoCompiler(f"faults.c can't be compiled with {compiler}:\n{done.stderr}")
    return library


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
