"""Runs the real trainer on several ranks, with and without a launcher, for the fault tests.

Every run is marked in its environment, so that a test can see that no process of it is left. One
rank may be broken on purpose: see fault.cpp.
"""
import functools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("cli", "support")]
import marked  # noqa: E402
from trainer import DIGITS, TRAINER, ForkServer, environment, server, sets  # noqa: E402

TRAINRUN = TRAINER.parent / "trainrun"
FAULT_LIBRARY = TRAINER.parent / "libbrim_fault.so"
MARK = "BRIM_TEST_RUN"
LIMIT_S = 300  # only to catch a hang
# [distributed] timeout_s. Short where the test waits for it to run out; else so long that a busy
# machine does not reach it.
TIMEOUT_S, SHORT_TIMEOUT_S = 100, 10


def job(output, **values):
    """Arguments of a short run that saves every 2 steps and evaluates at its end."""
    values = {"distributed__timeout_s": TIMEOUT_S, "train__steps": 6, "checkpoint__every_steps": 2,
              "telemetry__every_steps": 1, **values}
    return ["--recipe", DIGITS, "--output", output, *sets(**values)]


def with_fault(command, fault):
    """The command with fault.cpp in the trainer alone: a launcher is left as it is."""
    return ["env", f"LD_PRELOAD={FAULT_LIBRARY}", f"BRIM_TEST_FAULT={fault}", *command]


@functools.cache
def server_with_faults():
    return ForkServer(TRAINER, environment(), FAULT_LIBRARY)


def popen(command, env, **options):
    """Popen of the command, forked where it is the trainer, unless it breaks before main."""
    if command[0] == str(TRAINER):
        return server().popen(*command[1:], env=env, **options)
    if command[0] == "env" and command[3] == str(TRAINER) and "where=start" not in command[2]:
        name, fault = command[2].split("=", 1)
        return server_with_faults().popen(*command[4:], env={**env, name: fault}, **options)
    return subprocess.Popen(command, env=env, **options)


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"still waiting: {what}"
        time.sleep(0.01)


class Finished:
    def __init__(self, status, stderr):
        self.status, self.stderr = status, stderr

    @property
    def errors(self):
        """The lines that say why it ended."""
        return [line for line in self.stderr.splitlines() if line.startswith("error[")]

    @property
    def error(self):
        assert self.errors, self.stderr
        return self.errors[-1]


class Run:
    """Processes of one run. As a context it ends with none left, or fails."""

    def __init__(self, folder):
        self.folder, self.mark, self.started = pathlib.Path(folder), uuid.uuid4().hex, []

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        left = self.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for process, _ in self.started:
            process.wait()
        if kind is None:
            assert not left, f"processes are left: {left}"

    def processes(self):
        forked = {process.pid: "trainer" for process, _ in self.started if process.poll() is None}
        return {**forked, **marked.processes(MARK, self.mark)}

    def start(self, command, variables=None):
        path = self.folder / f"stderr-{self.mark[:8]}-{len(self.started)}"
        clean = {name: value for name, value in environment().items()
                 if not name.startswith(("PET_", "MASTER_", "BRIM_TEST"))}
        with path.open("wb") as stderr:
            process = popen(list(map(str, command)), {**clean, **(variables or {}), MARK: self.mark}, stderr=stderr,
                            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.started.append((process, path))
        return process

    def finish(self, process):
        path = next(path for started, path in self.started if started is process)
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            text = path.read_text(errors="replace")
            raise AssertionError(f"it hangs; its output so far:\n{text}") from None
        return Finished(status, path.read_text(errors="replace"))

    def start_rank(self, rank, world, command, rendezvous):
        return self.start(command, {"RANK": str(rank), "WORLD_SIZE": str(world),
                                    "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
                                    **rendezvous})

    def start_ranks(self, world, command, rendezvous=None):
        """`command`: the same for all, or a list of one a rank."""
        rendezvous = rendezvous or by_file(self.folder)
        return [self.start_rank(rank, world, command[rank] if isinstance(command[0], list)
                                else command, rendezvous) for rank in range(world)]

    def trainrun(self, world, command, *options):
        return self.start([TRAINRUN, f"--nproc-per-node={world}", *options, *command])


def by_file(folder):
    return {"BRIM_RENDEZVOUS_FILE": str(folder / f"rendezvous-{uuid.uuid4().hex}")}


def free_port():
    """One that no one has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def by_port(port, host="127.0.0.1"):
    return {"MASTER_ADDR": host, "MASTER_PORT": str(port)}


@pytest.fixture
def run(tmp_path):
    with Run(tmp_path) as run:
        yield run
