"""Two hosts, made of network namespaces with a cable between them, and what comes of cutting it.

Needs root and Debian's iproute2.
"""
import re
import subprocess
import uuid

import pytest

from runs import SHORT_TIMEOUT_S, TRAINER, by_port, job, run, wait_until  # noqa: F401

ADDRESSES = ["10.213.77.1", "10.213.77.2"]
PORT = 29500  # no one else is in these namespaces


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    def __init__(self):
        mark = uuid.uuid4().hex[:8]
        self.names = [f"brim-{mark}-{i}" for i in range(2)]

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        first, second = self.names
        ip("-n", first, "link", "add", "cable", "type", "veth", "peer", "name", "cable",
           "netns", second)
        for name, address in zip(self.names, ADDRESSES):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def cut(self):
        ip("-n", self.names[0], "link", "set", "cable", "down")

    def command(self, host, command):
        return ["ip", "netns", "exec", self.names[host], *command]


@pytest.fixture
def hosts():
    with Hosts() as hosts:
        yield hosts


def endless_job(output):
    return [TRAINER, *job(output, train__steps=1000000, checkpoint__every_steps=1000,
                          distributed__timeout_s=SHORT_TIMEOUT_S)]


def start(run, hosts, command):
    """One rank a host."""
    return [run.start(hosts.command(rank, command),
                      {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                       "LOCAL_WORLD_SIZE": "1", **by_port(PORT, ADDRESSES[0])})
            for rank in range(2)]


def test_two_hosts_train_together(run, hosts, tmp_path):
    results = [run.finish(rank) for rank in start(run, hosts, [TRAINER, *job(tmp_path / "run")])]
    assert [result.status for result in results] == [0, 0], results[0].stderr + results[1].stderr
    assert "done: 6 steps" in results[0].stderr


def test_a_cable_that_is_cut_ends_both_hosts_in_words(run, hosts, tmp_path):
    command = endless_job(tmp_path / "run")
    ranks = start(run, hosts, command)
    wait_until((tmp_path / "run" / "metrics.jsonl").exists, "the first step")
    hosts.cut()
    results = [run.finish(rank) for rank in ranks]
    assert [result.status for result in results] == [6, 6], results[0].stderr + results[1].stderr
    assert "rank 1" in results[0].error and "network" in results[0].error
    assert "rank 0" in results[1].error and "network" in results[1].error


def test_trainrun_starts_both_hosts_and_ends_them_when_the_cable_is_cut(run, hosts, tmp_path):
    trainrun = TRAINER.parent / "trainrun"
    command = endless_job(tmp_path / "run")
    launchers = [run.start(hosts.command(node, [
        trainrun, "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2",
        f"--master-addr={ADDRESSES[0]}", f"--master-port={PORT}", *command])) for node in range(2)]
    wait_until((tmp_path / "run" / "metrics.jsonl").exists, "the first step")
    hosts.cut()
    results = [run.finish(launcher) for launcher in launchers]
    assert [result.status for result in results] == [6, 6], results[0].stderr + results[1].stderr
    assert re.search(r"error\[distributed\]: rank [23] ", results[0].stderr), results[0].stderr
    assert "error[distributed]: rank 0, which serves the store" in results[1].stderr
