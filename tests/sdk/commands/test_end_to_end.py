"""The command line against a real server, all in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PUSHLANE = Path(sys.prefix, "bin", "pushlane")


class Machine:
    """A folder with a server in it, and a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: subprocess.Popen[str] | None = None
        clean = {name: value for name, value in os.environ.items() if "PUSHLANE" not in name}
        self.environment = clean

    def start(self, *flags: str) -> None:
        self._server = subprocess.Popen(
            [PUSHLANE, "serve", "--listen", "127.0.0.1:0", *flags],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        ready = self._server.stdout.readline()
        assert ready.startswith("ready on http://"), ready
        self.environment = {**self.environment, "PUSHLANE_URL": ready.split()[-1]}

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self._server is not None
        server, self._server = self._server, None
        server.send_signal(number)
        with server:
            return server.wait(timeout=30)

    def end(self) -> None:
        if self._server is not None:
            self.stop(signal.SIGKILL)

    def until_refused(self, text: str) -> None:
        """Publish until that is refused in these words."""
        for _ in range(40):
            done = self.run("publish", "orders", "x", status=None)
            if done.returncode == 4 and text in done.stderr:
                return
        pytest.fail(f"never {text}")

    def run(
        self, *args: str, status: int | None = 0, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PUSHLANE, *args],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done

    def __call__(self, *args: str, status: int = 0, stdin: str | None = None) -> str:
        return self.run(*args, status=status, stdin=stdin).stdout


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.end()


def test_publish_kill_restart_consume(machine: Machine) -> None:
    machine.start()
    ids = machine("publish", "orders", '{"id": 1}', "hello", "-5").split()
    ids += machine("publish", "orders", "-", stdin="four\n\n[5]\n").split()
    assert len(set(ids)) == 5
    machine.stop(signal.SIGKILL)
    machine.start()
    first = json.loads(machine("consume", "orders", "--max", "1", "--json"))
    assert (first["id"], first["body"], first["attempt"]) == (ids[0], {"id": 1}, 1)
    assert machine("consume", "orders", "--max", "4") == "hello\n-5\nfour\n[5]\n"
    assert machine("consume", "orders", "--idle", "0.5") == "", "all were acked"
    assert machine.stop() == 0


def test_a_program_that_fails_gets_the_message_again(machine: Machine) -> None:
    machine.start("--set", "queues.template.backoff_base_ms=1")
    machine("publish", "orders", "once")
    command = 'cat; test "$MESSAGE_ATTEMPT" = 2'
    failed = machine.run("consume", "orders", "--max", "1", "--exec", command, status=1)
    assert failed.stdout == "once"
    assert machine("consume", "orders", "--max", "1", "--exec", command) == "once"
    assert machine("consume", "orders", "--idle", "0.5") == ""


@pytest.mark.parametrize("exec", ["", "--exec 'cat; echo'"])
def test_a_reader_that_leaves_is_no_fault(machine: Machine, exec: str) -> None:
    machine.start()
    machine("publish", "orders", *map(str, range(50)))
    script = f"{PUSHLANE} consume orders {exec} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=machine.folder,
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)
    stats = json.loads(machine("queue", "stats", "orders", "--json"))
    assert stats["acked"] + stats["retrying"] + stats["ready"] == 50
    assert stats["retrying"] <= 1, "only the one that could not be printed has failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_gives_back_what_it_holds(
    machine: Machine, number: signal.Signals
) -> None:
    machine.start()
    machine("publish", "orders", "slow")
    marker = machine.folder / "began"
    consumer = subprocess.Popen(
        [PUSHLANE, "consume", "orders", "--exec", f"echo $$ > {marker}; sleep 60"],
        cwd=machine.folder,
        env=machine.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    with consumer:
        try:
            _wait_for(marker)
            consumer.send_signal(number)
            assert consumer.wait(timeout=20) == 130
        finally:
            consumer.kill()
        assert consumer.stderr is not None
        assert "Traceback" not in consumer.stderr.read()
    with pytest.raises(ProcessLookupError):  # the program and all that it started
        os.killpg(int(marker.read_text()), 0)
    assert machine("consume", "orders", "--max", "1") == "slow\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_also_when_the_server_is_gone(
    machine: Machine, number: signal.Signals
) -> None:
    machine.start()
    machine("publish", "orders", "one")
    consumer = subprocess.Popen(
        [PUSHLANE, "consume", "orders"],
        cwd=machine.folder,
        env=machine.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with consumer:
        try:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "one\n"
            machine.stop()
            consumer.send_signal(number)
            assert consumer.wait(timeout=20) == 130
        finally:
            consumer.kill()


def test_what_is_unknown_and_what_keeps_messages_back(machine: Machine) -> None:
    machine.start()
    made = machine.run("consume", "orders", "--idle", "0")
    assert "there was no queue orders: it is made now" in made.stderr
    assert machine.run("consume", "orders", "--idle", "0").stderr == ""
    machine("queue", "pause", "orders")
    machine("publish", "orders", "a", "b")
    paused = machine.run("consume", "orders", "--idle", "0")
    assert "orders is paused" in paused.stderr
    assert "pushlane queue resume orders" in paused.stderr
    assert machine("queue", "list").split()[-1] == "paused"

    (id,) = machine("publish", "orders", "c").split()
    assert "paused" in machine("explain", "orders", id)
    unknown = machine.run("explain", "orders", id[:-4] + "7fff", status=5)
    assert "unknown" in unknown.stdout
    assert "knows nothing" in unknown.stderr


def test_keys_from_the_first_to_the_last(machine: Machine) -> None:
    machine.start("--set", "auth.reload_ms=100")
    machine("publish", "orders", "before")
    key = json.loads(machine("token", "create", "ci", "--allow", "publish:orders*", "--json"))
    machine.until_refused("unauthorized")

    machine.environment["PUSHLANE_TOKEN"] = key["token"]
    machine("publish", "orders", "with a key")
    refused = machine.run("publish", "bills", "x", status=4)
    assert "forbidden" in refused.stderr
    refused = machine.run("consume", "orders", "--max", "1", status=4)
    assert "forbidden" in refused.stderr
    assert key["token"] not in refused.stderr

    machine("token", "revoke", key["id"])
    machine.until_refused("revoked")
    assert machine("token", "list") == ""


def test_a_session_ends_with_its_key(machine: Machine) -> None:
    key = json.loads(machine("token", "create", "ci", "--allow", "admin:*", "--json"))
    machine.start("--set", "auth.reload_ms=100", "--set", "session.goaway_ms=100")
    machine.environment["PUSHLANE_TOKEN"] = key["token"]
    machine("publish", "orders", "one")
    consumer = subprocess.Popen(
        [PUSHLANE, "consume", "orders"],
        cwd=machine.folder,
        env=machine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "one\n"
        machine("token", "revoke", key["id"])
        assert consumer.wait(timeout=30) == 4
        assert consumer.stderr is not None
        assert "unauthorized" in consumer.stderr.read()


def test_an_exposed_address_needs_keys(machine: Machine) -> None:
    refused = machine.run("serve", "--listen", "0.0.0.0:0", status=2)
    assert "pushlane token create" in refused.stderr
    assert refused.stdout == ""


def test_doctor_finds_both_sides_well(machine: Machine) -> None:
    machine.start()
    found = {check["name"]: check["status"] for check in json.loads(machine("doctor", "--json"))}
    assert found["connection"] == found["token"] == found["version"] == "ok"
    assert found["store folder"] == found["configuration"] == "ok"
    machine.stop()
    text = machine("doctor", status=1)
    assert "FAILED   connection" in text
    assert "ok       store folder" in text


def test_no_server_is_said_within_seconds(machine: Machine) -> None:
    machine.environment["PUSHLANE_URL"] = "ws://127.0.0.1:9"
    started = time.monotonic()
    refused = machine.run("publish", "orders", "x", status=3)
    assert "Is the server running" in refused.stderr
    assert time.monotonic() - started < 20


def _wait_for(path: Path) -> None:
    for _ in range(200):
        if path.exists():
            return
        time.sleep(0.05)
    pytest.fail(f"no {path}")
