"""Ranks that can't meet, or shouldn't, end with status 6 and say why; strangers are left aside."""
import contextlib
import os
import re
import socket
import sys
import threading

import pytest

from runs import (SHORT_TIMEOUT_S, TRAINER, by_file, by_port, free_port, job, run,  # noqa: F401
                  wait_until)
from trainer import metrics, sets


@pytest.fixture
def port():
    return free_port()


def hasty_job(output):
    return job(output, distributed__timeout_s=SHORT_TIMEOUT_S)


def statuses(results):
    return [result.status for result in results]


def test_ranks_that_were_told_different_numbers_say_so(run, tmp_path):
    rendezvous = by_file(tmp_path)
    command = [TRAINER, *hasty_job(tmp_path / "run")]
    first = run.start_rank(0, 2, command, rendezvous)
    second = run.start_rank(1, 3, command, rendezvous)
    results = [run.finish(first), run.finish(second)]
    assert statuses(results) == [6, 6]
    words = "told that there are [23] ranks, another one that there are [23]"
    assert any(re.search(words, result.stderr) for result in results), results[0].stderr
    # The one that was told so first waits for its other rank, or rank 1 for a rank 0 that has ended.
    waits = (f"rank 1 did not reach the rendezvous within {SHORT_TIMEOUT_S} s|"
             "rank 0, which serves the store, does not answer|rank 1 could not reach rank 0 at ")
    assert any(re.search(waits, result.stderr) for result in results), [result.stderr for result in results]


def test_a_rank_that_is_claimed_twice_is_named(run, tmp_path):
    rendezvous = by_file(tmp_path)
    command = [TRAINER, *hasty_job(tmp_path / "run")]
    ranks = [run.start_rank(rank, 3, command, rendezvous) for rank in (0, 1, 1)]
    results = [run.finish(rank) for rank in ranks]
    assert statuses(results) == [6, 6, 6]
    assert sum("two processes claim to be rank 1" in result.stderr for result in results) == 1
    assert f"rank 2 did not reach the rendezvous within {SHORT_TIMEOUT_S} s" in results[0].error


def test_a_limit_on_open_files_is_named(run, tmp_path):
    few = ["sh", "-c", 'ulimit -n 21; exec "$@"', "sh", TRAINER, *hasty_job(tmp_path / "run")]
    result = run.finish(run.trainrun(2, few))
    assert result.status == 5, result.stderr
    assert "may open no more files: connections to ranks, workers and files of data count. Raise the limit (ulimit -n)" in result.stderr


def test_a_master_that_is_not_there_is_given_up_on(run, tmp_path, port):
    rank = run.start_rank(1, 2, [TRAINER, *hasty_job(tmp_path / "run")], by_port(port))
    result = run.finish(rank)
    assert result.status == 6
    assert f"rank 1 could not reach rank 0 at 127.0.0.1:{port} within {SHORT_TIMEOUT_S} s (Connection refused)" in result.error


def test_a_master_without_a_name_is_given_up_on(run, tmp_path, port):
    rank = run.start_rank(1, 2, [TRAINER, *hasty_job(tmp_path / "run")],
                          by_port(port, host="nowhere.invalid"))
    result = run.finish(rank)
    assert result.status == 6
    assert "nowhere.invalid" in result.error


def test_a_stranger_at_the_master_s_port_is_given_up_on(run, tmp_path):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        result = run.finish(run.start_rank(1, 2, [TRAINER, *hasty_job(tmp_path / "run")], by_port(port)))
    assert result.status == 6
    assert f"rank 1 could not reach rank 0 at 127.0.0.1:{port}" in result.error
    assert "does not answer as a store does" in result.error


def test_a_port_that_is_taken_is_reported_by_rank_0(run, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = run.finish(run.start_rank(0, 2, [TRAINER, *hasty_job(tmp_path / "run")], by_port(port)))
    assert result.status == 6
    assert f"rank 0 can't listen on 127.0.0.1:{port}: Address already in use" in result.error
    assert "choose another MASTER_PORT" in result.error


def listening_addresses(port):
    """Of this machine's sockets on that port, as the kernel writes them."""
    lines = [line.split() for kind in ("tcp", "tcp6") for line in open(f"/proc/net/{kind}").readlines()[1:]]
    return {words[1].split(":")[0] for words in lines
            if words[3] == "0A" and int(words[1].split(":")[1], 16) == port}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_store_of_several_machines_listens_where_it_is_told(run, tmp_path, port, host):
    rank = run.start([TRAINER, *hasty_job(tmp_path / "run")],
                     {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **by_port(port, host)})
    wait_until(lambda: listening_addresses(port) or rank.poll() is not None, "rank 0's port")
    loopback = {"0100007F", "00000000000000000000000001000000"}
    assert listening_addresses(port) and listening_addresses(port) <= loopback, listening_addresses(port)
    rank.kill()
    rank.wait()


def test_a_store_s_answer_is_shown_without_control_characters(run, tmp_path, port):
    """A stranger that is first at the store says that there are "2\x1b[2J" ranks."""
    command = [TRAINER, *hasty_job(tmp_path / "run")]
    stranger = """import sys, time
from torch.distributed import PrefixStore, TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
store.set("brim/start", "0")
PrefixStore("brim-attempt-0", store).set("brim/world", "2\x1b[2J")
time.sleep(600)"""
    server = run.start([sys.executable, "-c", stranger, port])
    wait_until(lambda: listening_addresses(port) or server.poll() is not None, "the stranger's port")
    result = run.finish(run.start_rank(1, 2, command, by_port(port)))
    server.kill()
    server.wait()
    assert result.status == 6
    assert "\x1b" not in result.stderr and "2\\x1b[2J" in result.stderr, result.stderr


def pass_on(source, target, until=None):
    """Bytes from one socket to the other, until some of them are seen; then both are closed."""
    with contextlib.suppress(OSError):
        while (words := source.recv(65536)) and (until is None or until not in words):
            target.sendall(words)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_a_store_that_goes_while_a_rank_joins(run, tmp_path, port):
    """As rank 0's does when that one has found a mistake first: its connections end in the middle."""
    command = [TRAINER, *hasty_job(tmp_path / "run")]
    first = run.start_rank(0, 2, command, by_port(port))
    wait_until(lambda: listening_addresses(port) or first.poll() is not None, "rank 0's port")
    with socket.create_server(("127.0.0.1", 0)) as between:
        second = run.start_rank(1, 2, command, by_port(between.getsockname()[1]))
        while second.poll() is None:
            between.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                rank, store = between.accept()[0], socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=pass_on, args=(rank, store, b"brim/world")).start()
                threading.Thread(target=pass_on, args=(store, rank)).start()
        result = run.finish(second)
    assert result.status == 6
    assert "rank 0, which serves the store, does not answer: it ended before rank 1 had joined" in result.error
    assert run.finish(first).status == 6


GARBAGE = {
    "nothing": b"",
    "random": os.urandom(100_000),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(65536),
    "lengths": b"\xff" * 4096,
    # The store's own magic number and a key whose length says 2^63.
    "magic": bytes([3]) + (0x3C85F7CE).to_bytes(4, "little") + b"\x00" + (1 << 63).to_bytes(8, "little"),
    "half": bytes([3]) + (0x3C85F7CE).to_bytes(4, "little") + bytes([0, 5]),
}


def test_garbage_at_the_rendezvous_port_does_no_harm(run, tmp_path, port):
    """Strangers call before, while and after the ranks meet; some keep their connection."""
    command = [TRAINER, *job(tmp_path / "run", train__steps=300, checkpoint__every_steps=100)]
    ranks = [run.start_rank(0, 3, command, by_port(port))]
    kept = []

    def call():
        for words in GARBAGE.values():
            for keeps in (True, False):
                stranger = socket.create_connection(("127.0.0.1", port), timeout=30)
                try:
                    stranger.sendall(words)
                except OSError:  # it was shown the door
                    pass
                kept.append(stranger) if keeps else stranger.close()

    def listens():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=30).close()
            return True
        except ConnectionRefusedError:
            assert ranks[0].poll() is None
            return False

    wait_until(listens, "rank 0's port")
    call()
    ranks += [run.start_rank(rank, 3, command, by_port(port)) for rank in (1, 2)]
    wait_until((tmp_path / "run" / "metrics.jsonl").exists, "the first step")
    call()
    results = [run.finish(rank) for rank in ranks]
    assert statuses(results) == [0, 0, 0], results[0].stderr
    assert "done: 300 steps" in results[0].stderr
    for stranger in kept:
        stranger.close()


def test_two_launches_at_once_do_not_meet(run, tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    launchers = [run.trainrun(2, [TRAINER, *job(folder)]) for folder in folders]
    results = [run.finish(launcher) for launcher in launchers]
    assert statuses(results) == [0, 0], results[0].stderr + results[1].stderr
    for folder, result in zip(folders, results):
        assert "done: 6 steps" in result.stderr and str(folder) in result.stderr
        steps = [line["step"] for line in metrics(folder) if "loss" in line]
        assert steps == list(range(1, 7))


def test_different_recipes_are_told_apart_by_line(run, tmp_path):
    jobs = [[TRAINER, *job(tmp_path / "run", run__seed=seed)] for seed in (1, 1, 2)]
    results = [run.finish(rank) for rank in run.start_ranks(3, jobs)]
    assert statuses(results) == [6, 6, 6]
    assert 'rank 2 has another recipe than rank 0: "seed = 1" there, "seed = 2" here' in \
        "".join(result.stderr for result in results)


def test_different_data_are_told_apart_before_the_first_step(run, tmp_path):
    commands = []
    for rank, tokens in enumerate((4097, 3073)):
        folder = tmp_path / f"machine-{rank}"
        folder.mkdir()
        (folder / "ids.bin").write_bytes(bytes(2 * tokens))
        commands.append(["env", "-C", folder, "env", TRAINER, "--recipe", "text_bytes", "--output", tmp_path / "run",
                         *sets(data__train__path="/proc/self/cwd/ids.bin", data__length=64, eval__enabled=False)])
    results = [run.finish(rank) for rank in run.start_ranks(2, commands)]
    assert statuses(results) == [6, 6]
    assert 'rank 1 has another dataset than rank 0: "64 training samples" there, "48 training samples" here' in \
        "".join(result.stderr for result in results)
    assert not (tmp_path / "run").exists()


def test_different_models_are_told_apart(run, tmp_path):
    jobs = [[TRAINER, *job(tmp_path / "run", model__hidden=width)] for width in (256, 128)]
    results = [run.finish(rank) for rank in run.start_ranks(2, jobs)]
    assert statuses(results) == [6, 6]
    assert '"hidden = 256" there, "hidden = 128" here' in "".join(r.stderr for r in results)
