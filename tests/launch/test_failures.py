"""A rank that fails ends all others within 5 s, and is named; restarts; nothing is left."""
import json
import os
import signal
import time

import pytest
from launches import TRAINRUN, Launch, sh, trainrun, wait_for_files, wait_until

WAIT = "sleep 1000"


def error_line(err):
    lines = [line for line in err.splitlines() if line.startswith("error[")]
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize("name", ["KILL", "SEGV", "ABRT", "BUS", "TERM"])
def test_a_killed_rank_is_named_with_its_signal(name):
    number = getattr(signal, f"SIG{name}")
    status, _, err = trainrun("--nproc-per-node=4",
                              *sh(f"[ $RANK = 2 ] && kill -{name} $$; {WAIT}"))
    assert status == 128 + number
    assert f"error[distributed]: rank 2 (pid " in error_line(err)
    assert f"was killed by signal {int(number)} (SIG{name})" in error_line(err)


@pytest.mark.parametrize("code, kind", [(1, "distributed"), (2, "recipe"), (3, "data"),
                                        (4, "checkpoint"), (5, "resource"), (6, "distributed"),
                                        (7, "numeric"), (42, "distributed")])
def test_a_rank_s_status_passes_through(code, kind):
    status, _, err = trainrun(
        "--nproc-per-node=2",
        *sh(f"[ $RANK = 1 ] && echo 'error[x]: why' >&2 && echo bye >&2 && exit {code}; {WAIT}"))
    assert status == code
    line = err.splitlines()[-1]
    assert line.startswith(f"error[{kind}]: rank 1 (pid ")
    assert line.endswith(f"exited with status {code}; its error: error[x]: why")


def test_the_last_line_stands_in_where_none_says_error():
    _, _, err = trainrun(*sh("echo first >&2; printf 'Error: \\033[31mlast' >&2; exit 1"))
    assert err.splitlines()[-1].endswith("the last line of its stderr: Error:  [31mlast")


STACK = ("Exception raised from check at shape.cpp:12 (most recent call first):",
         "frame #0: c10::Error::Error() (0x7f in libc10.so)", "frame #9: clone (0x7f in libc.so.6)")


def test_a_stack_is_no_error_line():
    lines = ("terminate called after throwing an instance of 'c10::Error'", "  what():  bad shape", *STACK)
    _, _, err = trainrun(*sh("".join(f'echo "{line}" >&2; ' for line in lines) + "exit 1"))
    assert err.splitlines()[-1].endswith("the last line of its stderr: what():  bad shape")
    lines = ("error[bug]: bad shape", *(f"error[bug]: {line}" for line in STACK))
    _, _, err = trainrun(*sh("".join(f'echo "{line}" >&2; ' for line in lines) + "exit 1"))
    assert err.splitlines()[-1].endswith("; its error: error[bug]: bad shape")


def test_an_error_file_is_quoted_without_its_stack(tmp_path):
    (tmp_path / "error.json").write_text(json.dumps({"message": {"message": "\n".join(("bad shape", *STACK))}}))
    _, _, err = trainrun(*sh(f"cp {tmp_path}/error.json $TORCHELASTIC_ERROR_FILE; exit 1"))
    assert err.splitlines()[-1].endswith("; its error: bad shape")


def test_a_rank_that_lost_its_peers_does_not_hide_the_cause():
    status, _, err = trainrun("--nproc-per-node=3", *sh(
        f"case $RANK in 0) echo 'lost rank 2' >&2; exit 6;; 2) sleep 0.5; exit 3;; *) {WAIT};; esac"))
    assert status == 3
    assert "rank 2 (pid " in error_line(err)


def test_a_rank_that_lost_its_peers_is_named_where_there_is_no_other_cause():
    status, _, err = trainrun("--nproc-per-node=3", *sh(f"[ $RANK = 1 ] && exit 6; {WAIT}"))
    assert status == 6
    assert "rank 1 (pid " in error_line(err)


def test_a_worker_that_ignores_sigterm_is_gone_within_5_s():
    started = time.monotonic()
    status, _, _ = trainrun("--nproc-per-node=2", *sh(
        "[ $RANK = 1 ] && sleep 0.2 && exit 1; trap '' TERM; while :; do sleep 0.1; done"))
    assert status == 1
    assert time.monotonic() - started < 15  # 5 s, on a machine that does other things too


def test_grandchildren_are_gone_too(tmp_path):
    status, _, _ = trainrun("--nproc-per-node=2", *sh(f"""
        setsid sh -c 'trap "" TERM; touch {tmp_path}/'$RANK'; sleep 1000 & sleep 1000' &
        while ! [ -e {tmp_path}/0 ] || ! [ -e {tmp_path}/1 ]; do sleep 0.01; done
        [ $RANK = 1 ] && exit 1; {WAIT}"""))
    assert status == 1


def test_what_a_good_run_leaves_behind_is_ended(tmp_path):
    status, _, err = trainrun(*sh(
        f"setsid sh -c 'touch {tmp_path}/up; sleep 1000' & while ! [ -e {tmp_path}/up ]; do :; done"))
    assert (status, err) == (0, "")


def test_children_from_before_are_left_alone(tmp_path):
    status, _, _ = trainrun("-c", f"sleep 1000 >/dev/null 2>&1 & echo $! >{tmp_path}/pid; exec \"$0\" \"$@\"", TRAINRUN,
                            "--max-restarts=1", *sh(f"kill -0 $(cat {tmp_path}/pid) && echo up >>{tmp_path}/ups; exit 3"),
                            program="sh", leaves=True)
    assert status == 3 and (tmp_path / "ups").read_text() == "up\nup\n"


def test_an_error_of_an_earlier_launch_is_no_cause(tmp_path):
    words = [f"--log-dir={tmp_path}", "--run-id=x"]
    trainrun(*words, *sh("echo '{\"message\": \"old\"}' >$TORCHELASTIC_ERROR_FILE; exit 1"))
    _, _, err = trainrun(*words, *sh("kill -SEGV $$"))
    assert "signal 11" in error_line(err) and "old" not in error_line(err)


def test_workers_die_with_their_launcher(tmp_path):
    launch = Launch("--nproc-per-node=3", *sh(f"touch {tmp_path}/$RANK; exec {WAIT}"))
    wait_for_files(tmp_path, "0", "1", "2")
    launch.signal(signal.SIGKILL)
    launch.process.wait()
    wait_until(lambda: not launch.processes(), "for the workers to die")


def test_a_launcher_killed_takes_grandchildren_along(tmp_path):
    launch = Launch("--nproc-per-node=2", *sh(f"sh -c 'touch {tmp_path}/'$RANK'; {WAIT}'; true"))
    wait_for_files(tmp_path, "0", "1")
    launch.signal(signal.SIGKILL)
    launch.process.wait()
    wait_until(lambda: not launch.processes(), "for the workers' children to die")


def test_restarts_count_and_take_a_new_port(tmp_path):
    status, _, err = trainrun("--nproc-per-node=2", "--max-restarts=2", *sh(f"""
        echo $MASTER_PORT $TORCHELASTIC_MAX_RESTARTS > {tmp_path}/$RANK.$TORCHELASTIC_RESTART_COUNT
        [ $RANK = 0 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && kill -KILL $$
        [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && {WAIT}; exit 0"""))
    assert status == 0
    seen = [(tmp_path / f"0.{k}").read_text().split() for k in range(3)]
    assert [limit for _, limit in seen] == ["2", "2", "2"]
    assert err.count("brim: warning: rank 0 (pid ") == 2
    assert "starting again (restart 2 of 2)" in err and "error[" not in err


def test_restarts_run_out(tmp_path):
    status, _, err = trainrun("--max-restarts=1",
                              *sh(f"touch {tmp_path}/$TORCHELASTIC_RESTART_COUNT; exit 9"))
    assert status == 9
    assert sorted(os.listdir(tmp_path)) == ["0", "1"]
    assert "exited with status 9" in error_line(err)


@pytest.mark.parametrize("code", [2, 7, 75])
def test_what_another_start_cannot_cure_is_not_started_again(tmp_path, code):
    status, _, _ = trainrun("--max-restarts=3",
                            *sh(f"touch {tmp_path}/$TORCHELASTIC_RESTART_COUNT; exit {code}"))
    assert status == code
    assert os.listdir(tmp_path) == ["0"]


def test_a_program_that_the_kernel_refuses(tmp_path):
    program = tmp_path / "noprogram"
    program.write_text("echo hello\n")
    program.chmod(0o755)
    status, _, err = trainrun("--nproc-per-node=2", program)
    assert status == 2
    assert error_line(err) == (f"error[recipe]: {program}: cannot be started: Exec format error "
                               "(a script needs a first line such as #!/bin/sh)")
