"""Runs the real trainrun with small workers for the tests of the launcher.

Every launch is marked in its environment, so that a test can see that no process of it is left.
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import marked  # noqa: E402

BIN = pathlib.Path(os.environ["BRIM_BIN_DIR"])
TRAINRUN = BIN / "trainrun"
LIMIT_S = 120  # only to catch a hang
MARK = "BRIM_TEST_LAUNCH"


class Launch:
    """A running trainrun; `with` it, nothing may be left at the end."""

    def __init__(self, *args, env=None, cwd=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 program=TRAINRUN):
        self.mark = uuid.uuid4().hex
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("OMP_", "PET_", "TORCHELASTIC", "CUDA_VISIBLE"))}
        self.process = subprocess.Popen([program, *map(str, args)], cwd=cwd, stdout=stdout,
                                        stderr=stderr, stdin=subprocess.DEVNULL,
                                        env={**clean, **(env or {}), MARK: self.mark})

    def finish(self, leaves=False):
        """Waits; returns the status, stdout and stderr, and asserts that no process is left, unless it `leaves` some."""
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.end()
            pytest.fail("trainrun hangs")
        left = self.processes()
        self.end()
        assert leaves or not left, f"processes are left: {left}"
        decode = lambda data: None if data is None else data.decode(errors="replace")
        return self.process.returncode, decode(out), decode(err)

    def end(self):
        self.process.poll() is None and self.process.kill()
        self.process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def processes(self):
        return marked.processes(MARK, self.mark)

    def workers(self):
        return subprocess.run(["ps", "--no-headers", "--ppid", str(self.process.pid)], capture_output=True,
                              text=True).stdout.splitlines()

    def signal(self, number):
        self.process.send_signal(number)


def trainrun(*args, leaves=False, **options):
    return Launch(*args, **options).finish(leaves)


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"still waiting: {what}"
        time.sleep(0.01)


def wait_for_files(folder, *names):
    wait_until(lambda: all((folder / name).exists() for name in names), f"files {names}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sh(text):
    """The words that run a shell script as a worker; "$RANK" and the like are its variables."""
    return ["sh", "-c", text]
