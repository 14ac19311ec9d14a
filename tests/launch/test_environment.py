"""What a worker is given: torchrun's variables, the store's socket, cores; and the command line."""
import json
import os
import re
import socket
import sys

import pytest
from launches import TRAINRUN, Launch, free_port, sh, trainrun, wait_for_files

DUMP = [sys.executable, "-c", """
import json, os, sys
fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(json.dumps(
    {**os.environ, "cores": sorted(os.sched_getaffinity(0)),
     "fds": fds, "session": os.getsid(0), "pid": os.getpid()}))"""]


def environments(folder, *args, **options):
    """The environment of each rank, by rank."""
    status, _, err = trainrun(*args, *DUMP, folder, **options)
    assert status == 0, err
    return {int(file.name): json.loads(file.read_text()) for file in folder.iterdir()}


def test_torchrun_s_variables(tmp_path):
    ranks = environments(tmp_path, "--nproc-per-node=3", "--max-restarts=4", "--run-id=job")
    assert sorted(ranks) == [0, 1, 2]
    for rank, seen in ranks.items():
        expected = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3",
            "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": "3", "ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "4",
            "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_USE_AGENT_STORE": "False"}
        assert {name: seen.get(name) for name in expected} == expected
        assert seen["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 3))
        assert seen["session"] == seen["pid"]
    assert len({seen["MASTER_PORT"] for seen in ranks.values()}) == 1
    assert len({seen["TORCHELASTIC_ERROR_FILE"] for seen in ranks.values()}) == 3


def test_variables_of_a_launcher_above_do_not_leak(tmp_path):
    above = {"RANK": "9", "WORLD_SIZE": "10", "TORCHELASTIC_USE_AGENT_STORE": "True",
             "BRIM_STORE_FD": "77", "TORCHELASTIC_ERROR_FILE": str(tmp_path / "above.json")}
    (tmp_path / "ranks").mkdir()
    ranks = environments(tmp_path / "ranks", "--nproc-per-node=2", env=above)
    assert ranks[0]["RANK"] == "0" and ranks[0]["WORLD_SIZE"] == "2"
    assert "BRIM_STORE_FD" not in ranks[1] and ranks[0]["BRIM_STORE_FD"] != "77"
    assert not (tmp_path / "above.json").exists()


def test_threads_that_are_set_stay(tmp_path):
    assert environments(tmp_path, env={"OMP_NUM_THREADS": "7"})[0]["OMP_NUM_THREADS"] == "7"


def test_only_rank_0_gets_the_socket_and_nothing_else_is_inherited(tmp_path):
    ranks = environments(tmp_path, "--nproc-per-node=2")
    listing = 3  # of the folder itself
    store = int(ranks[0]["BRIM_STORE_FD"])
    assert store > listing
    assert ranks[0]["fds"] == [0, 1, 2, listing, store]
    assert ranks[1]["fds"] == [0, 1, 2, listing]


def test_the_launcher_lets_go_of_the_socket():
    # Kept open, it would take connections that no one answers once rank 0 is dead.
    status, _, err = trainrun(*sh("""socket=$(readlink /proc/self/fd/$BRIM_STORE_FD)
        case $socket in socket:*) ;; *) exit 1;; esac
        while ls -l /proc/$PPID/fd | grep -qF "$socket"; do sleep 0.01; done"""))
    assert status == 0, err


STORE = """
import datetime, os, sys, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
fd = os.environ.get("BRIM_STORE_FD")
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0,
                      datetime.timedelta(seconds=60),
                      master_listen_fd=int(fd) if fd else None)
store.set(f"from{rank}", str(rank))
assert store.get(f"from{1 - rank}") == str(1 - rank).encode()
store.add("done", 1)
while rank == 0 and store.add("done", 0) < world:
    pass
print("met as", rank)
"""


def test_two_launches_at_once_meet_through_their_sockets():
    launches = [Launch("--nproc-per-node=2", sys.executable, "-c", STORE) for _ in range(2)]
    for launch in launches:
        status, out, err = launch.finish()
        assert status == 0, err
        assert sorted(out.splitlines()) == ["[rank 1] met as 1", "met as 0"]


def test_two_nodes_are_one_world():
    nodes = [Launch("--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1",
                    f"--master-port={port}", sys.executable, "-c", STORE)
             for port in [free_port()] for node in (1, 0)]
    outputs = [node.finish() for node in nodes]
    assert [status for status, _, _ in outputs] == [0, 0], outputs
    assert [out for _, out, _ in outputs] == ["met as 1\n", "met as 0\n"]


def test_ranks_of_a_second_node_count_on(tmp_path):
    ranks = environments(tmp_path, "--nnodes=3:3", "--node_rank=1", "--nproc_per_node", "2",
                         "--master_addr", "198.51.100.7", "--master_port=4711")
    assert sorted(ranks) == [2, 3]
    for rank, seen in ranks.items():
        assert seen["WORLD_SIZE"] == "6" and seen["GROUP_RANK"] == "1"
        assert seen["LOCAL_RANK"] == str(rank - 2) and "BRIM_STORE_FD" not in seen
        assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("198.51.100.7", "4711")


def test_an_address_that_is_not_ours_is_listened_for_on_all_interfaces(tmp_path):
    port = free_port()
    ranks = environments(tmp_path, "--nnodes=2", "--node-rank=0", "--master-addr=198.51.100.7",
                         f"--master-port={port}")
    assert ranks[0]["MASTER_PORT"] == str(port) and "BRIM_STORE_FD" in ranks[0]


def test_a_port_that_is_taken_names_who_has_it():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = trainrun("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1",
                                  f"--master-port={port}", "true")
    assert status == 5
    assert err.startswith(f"error[resource]: port {port} on 127.0.0.1 is taken by process "
                          f"{os.getpid()} (")
    assert "choose another --master-port" in err


def test_a_host_that_does_not_exist():
    status, _, err = trainrun("--nnodes=2", "--node-rank=0", "--master-addr=no.such.host.invalid",
                              "--master-port=1234", "true")
    assert status == 2
    assert "--master-addr: 'no.such.host.invalid' means no address" in err


def test_options_from_the_environment_as_torchrun_has_them(tmp_path):
    ranks = environments(tmp_path, env={
        "PET_NPROC_PER_NODE": "2", "PET_NNODES": "2", "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "4711", "PET_STANDALONE": "0"})
    assert sorted(ranks) == [2, 3]


@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_torchrun_s_rendezvous(tmp_path, backend):
    ranks = environments(tmp_path, "--nnodes=2", "--node-rank=1", f"--rdzv-backend={backend}",
                         "--rdzv_endpoint=127.0.0.1:4711", "--rdzv_id=job")
    assert ranks[1]["MASTER_ADDR"] == "127.0.0.1" and ranks[1]["MASTER_PORT"] == "4711"
    assert ranks[1]["TORCHELASTIC_RUN_ID"] == "job"


@pytest.mark.parametrize("endpoint, address, port", [("127.0.0.1", "127.0.0.1", "29400"),
                                                     ("[::1]:4711", "::1", "4711"), ("::1", "::1", "29400")])
def test_endpoints(tmp_path, endpoint, address, port):
    ranks = environments(tmp_path, "--nnodes=2", "--node-rank=1", "--rdzv-endpoint", endpoint)
    assert (ranks[1]["MASTER_ADDR"], ranks[1]["MASTER_PORT"]) == (address, port)


def test_rendezvous_from_the_environment(tmp_path):
    ranks = environments(tmp_path, env={"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_BACKEND": "c10d",
                                        "PET_RDZV_ENDPOINT": "127.0.0.1:4711"})
    assert ranks[1]["MASTER_PORT"] == "4711"


@pytest.mark.parametrize("flags, words", [
    (["--rdzv-backend=etcd-v2"], "--rdzv-backend: expected c10d or static, found 'etcd-v2'"),
    (["--rdzv-endpoint=:4711"], "--rdzv-endpoint: expected HOST:PORT, found ':4711'"),
    (["--rdzv-conf", "timeout=3"], "--rdzv-conf: the rendezvous has no settings here"),
    (["-m"], "-m: trainrun starts programs, not Python modules"),
    (["--role=x"], "--role=x: all ranks are of one role")])
def test_what_torchrun_has_and_trainrun_does_not(flags, words):
    status, _, err = trainrun(*flags, "true")
    assert status == 2 and words in err, err


def test_the_command_line_wins_over_the_environment(tmp_path):
    assert len(environments(tmp_path, "--nproc-per-node=1", env={"PET_NPROC_PER_NODE": "2"})) == 1


cores = sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize("how", ["cores", "numa"])
def test_bound_ranks_share_no_core(tmp_path, how):
    if len(cores) < 2:
        pytest.fail("needs two cores")
    ranks = environments(tmp_path, "--nproc-per-node=2", f"--bind={how}")
    assert sorted(ranks[0]["cores"] + ranks[1]["cores"]) == cores


def test_unbound_ranks_keep_all_cores(tmp_path):
    assert environments(tmp_path)[0]["cores"] == cores


def test_more_bound_ranks_than_cores():
    status, _, err = trainrun(f"--nproc-per-node={len(cores) + 1}", "--bind=cores", "true")
    assert status == 2 and "--bind none" in err


def test_cpu_means_cores(tmp_path):
    ranks = environments(tmp_path, "--nproc-per-node=cpu", "--no-python", "--standalone")
    assert 1 <= len(ranks) <= len(cores)


def test_the_program_is_found_as_path_beside_trainrun_and_in_path(tmp_path):
    for folder in ("here", "path"):
        (tmp_path / folder).mkdir()
        for name in {"here": ["one"], "path": ["one", "two"]}[folder]:
            program = tmp_path / folder / name
            program.write_text(f"#!/bin/sh\necho {folder} {name}\n")
            program.chmod(0o755)
    env = {"PATH": f"{tmp_path}/path:/usr/bin:/bin"}
    run = lambda name: trainrun(name, env=env, cwd=tmp_path / "here")[1]
    assert run("one") == "here one\n"
    assert run("two") == "path two\n"
    assert run("../path/one") == "path one\n"
    assert "usage: trainrun" in trainrun(TRAINRUN.name, "--help", env=env, cwd=tmp_path)[1]
    assert re.fullmatch(r"brim \d+\.\d+\.\d+ \(.+\)\n", trainrun("--version")[1])


@pytest.mark.parametrize("args, message", [
    ([], "no program given"),
    (["--nproc-per-node=0", "true"], "--nproc-per-node: expected a number from 1 to 4096, found '0'"),
    (["--nproc-per-node=two", "true"], "expected auto, gpu, cpu or a number, found 'two'"),
    (["--nproc-per-nod=2", "true"], "did you mean '--nproc-per-node'?"),
    (["--frobnicate", "true"], "unknown option '--frobnicate'; see trainrun --help"),
    (["-x", "true"], "unknown option '-x'; see trainrun --help"),
    (["--max-restarts"], "--max-restarts needs a value: N"),
    (["--max-restarts=", "true"], "--max-restarts needs a value: N"),
    (["--standalone=1", "true"], "--standalone takes no value"),
    (["--nnodes=2", "true"], "--nnodes=2 needs --node-rank as well"),
    (["--nnodes=1:4", "true"], "a fixed number of nodes"),
    (["--nnodes=2", "--node-rank=2", "--master-addr=a", "--master-port=1", "true"],
     "--node-rank: expected less than --nnodes=2, found 2"),
    (["--nnodes=2", "--node-rank=0", "--master-addr=a", "--master-port=0", "true"],
     "--master-port=0: with several nodes all must know the port"),
    (["--nnodes=2", "--node-rank=0", "--master-addr=a", "--master-port=9", "--standalone", "true"],
     "--standalone and --nnodes=2 contradict"),
    (["--master-port=70000", "true"], "expected a number from 0 to 65535, found '70000'"),
    (["--redirects=4", "true"], "--redirects: expected a number from 0 to 3, found '4'"),
    (["--tee=0:1,1:3", "true"], "--tee: there is no local rank 1: 1 are started"),
    (["--tee=0:1,3", "true"], "expected LOCAL_RANK:STREAMS in '3'"),
    (["--local-ranks-filter=0,1", "true"], "--local-ranks-filter: there is no local rank 1"),
    (["--bind=socket", "true"], "--bind: expected none, cores or numa, found 'socket'"),
    (["--run-id=a/b", "true"], "--run-id: expected a word that can name a folder"),
    (["no-such-program"], "no program 'no-such-program': not in this folder, beside trainrun"),
    (["/no/such"], "/no/such: no such program"),
    (["/etc/passwd"], "/etc/passwd: not a program that may be executed"),
    (["train.py"], "for a script: trainrun … python3 train.py"),
])
def test_a_wrong_command_line_is_refused_in_words(args, message):
    status, out, err = trainrun(*args)
    assert (status, out) == (2, "")
    assert err.startswith("error[usage]: ") and err.count("\n") == 1
    assert message in err


def test_gpus_where_there_are_none():
    if any(name.startswith("nvidia") and name[6:].isdigit() for name in os.listdir("/dev")):
        return  # the count is tested on made-up machines (machine_test.cpp)
    status, _, err = trainrun("--nproc-per-node=gpu", "true")
    assert status == 2 and "no GPU is visible here" in err
