"""A stop that is asked for: passed on, waited for, and forced by a second signal."""
import os
import signal
import subprocess
import time

import pytest
from launches import TRAINRUN, Launch, sh, trainrun, wait_for_files, wait_until

# Saves its state and leaves with 75, as trainer does; "up" says that the trap is set.
SAVER = """trap 'sleep 0.2; touch {0}/saved$RANK; exit 75' TERM INT; touch {0}/up$RANK
while :; do sleep 0.05; done"""

STOPPING = "brim: stopping; a second signal stops at once\n"


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_workers_save_their_state_and_the_launcher_leaves_with_75(tmp_path, name):
    launch = Launch("--nproc-per-node=2", "--max-restarts=3", *sh(SAVER.format(tmp_path)))
    wait_for_files(tmp_path, "up0", "up1")
    launch.signal(getattr(signal, f"SIG{name}"))
    status, _, err = launch.finish()
    assert status == 75, err
    assert (tmp_path / "saved0").exists() and (tmp_path / "saved1").exists()
    assert "error[" not in err


def test_programs_that_know_nothing_of_stopping_end_by_the_signal(tmp_path):
    launch = Launch("--nproc-per-node=2", *sh(f"touch {tmp_path}/up$RANK; exec sleep 1000"))
    wait_for_files(tmp_path, "up0", "up1")
    launch.signal(signal.SIGTERM)
    assert launch.finish() == (128 + signal.SIGTERM, "", STOPPING)


# The second as if the terminal's signal had reached the ranks themselves, just after they began.
@pytest.mark.parametrize("rank", ["touch {0}/up$RANK; exec sleep 1000",
                                  "trap 'kill -HUP $$' TERM; touch {0}/up$RANK; while :; do sleep 0.05; done"])
def test_a_terminal_that_closes_before_ranks_handle_signals_is_no_failure(tmp_path, rank):
    launch = Launch("--nproc-per-node=2", *sh(rank.format(tmp_path)))
    wait_for_files(tmp_path, "up0", "up1")
    launch.signal(signal.SIGHUP)
    status, _, err = launch.finish()
    assert status == 128 + signal.SIGHUP and err.startswith(STOPPING) and "error[" not in err, err


def test_a_shell_that_dies_leaves_its_child_the_time_to_save(tmp_path):
    inner = SAVER.format(tmp_path).replace("\n", ";").replace("'", "'\\''")
    launch = Launch(*sh(f"sh -c '{inner}'; true"))
    wait_for_files(tmp_path, "up0")
    launch.signal(signal.SIGTERM)
    launch.finish()
    assert (tmp_path / "saved0").exists()


def test_what_ignores_the_signal_does_not_outlast_ranks_that_have_saved(tmp_path):
    launch = Launch(*sh(f"sleep 1000 & trap 'exit 75' INT; touch {tmp_path}/up; while :; do sleep 0.05; done"))
    wait_for_files(tmp_path, "up")
    launch.signal(signal.SIGINT)
    assert launch.finish() == (75, "", STOPPING)


def test_a_stop_while_output_waits_for_its_reader_starts_nothing_again(tmp_path):
    launch = Launch("--max-restarts=3", *sh(f"seq 100000; touch {tmp_path}/up$TORCHELASTIC_RESTART_COUNT; exit 3"))
    wait_for_files(tmp_path, "up0")
    wait_until(lambda: not launch.workers(), "for the rank to be gone")
    launch.signal(signal.SIGTERM)
    launch.process.wait(timeout=60)  # without a reader
    assert launch.finish()[0] == 3
    assert not (tmp_path / "up1").exists()


def test_a_stop_ends_without_a_reader(tmp_path):
    launch = Launch(*sh(f"touch {tmp_path}/up; exec yes"))
    wait_for_files(tmp_path, "up")
    launch.signal(signal.SIGTERM)
    launch.process.wait(timeout=60)
    assert launch.finish()[0] == 128 + signal.SIGTERM


def test_a_second_signal_kills_at_once(tmp_path):
    launch = Launch("--nproc-per-node=2", *sh(
        f"trap 'touch {tmp_path}/got$RANK' TERM; touch {tmp_path}/up$RANK; "
        "while :; do sleep 0.05; done"))
    wait_for_files(tmp_path, "up0", "up1")
    launch.signal(signal.SIGTERM)
    wait_for_files(tmp_path, "got0", "got1")
    time.sleep(0.6)  # a sooner one is taken for the first
    launch.signal(signal.SIGINT)
    status, _, err = launch.finish()
    assert status == 128 + signal.SIGINT
    assert "killed at once: a second signal came (SIGINT)" in err


@pytest.mark.parametrize("program", [TRAINRUN, TRAINRUN.with_name("trainer")])
def test_a_signal_to_the_process_and_to_its_group_is_one(tmp_path, program):
    """As timeout(1) sends it."""
    job, up = sh(SAVER.format(tmp_path)), tmp_path / "up0"
    if program != TRAINRUN:
        job, up = ["train", "digits", "--set", "train.epochs=100000", "--output", tmp_path / "run"], tmp_path / "run/metrics.jsonl"
    process = subprocess.Popen([program, *map(str, job)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(up.exists, f"for {up}")
    process.send_signal(signal.SIGINT)
    time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err


def test_a_terminal_that_closes_is_no_second_signal(tmp_path):
    launch = Launch(*sh(SAVER.format(tmp_path)))
    wait_for_files(tmp_path, "up0")
    for _ in range(3):
        launch.signal(signal.SIGHUP)
    assert launch.finish()[0] == 75
    assert (tmp_path / "saved0").exists()


def test_a_rank_that_takes_too_long_to_stop_is_killed_and_named(tmp_path):
    launch = Launch("--nproc-per-node=2", "--stop-timeout=1", *sh(
        f"[ $RANK = 1 ] && trap '' TERM; touch {tmp_path}/up$RANK; "
        "while :; do sleep 0.05; done"))
    wait_for_files(tmp_path, "up0", "up1")
    launch.signal(signal.SIGTERM)
    status, _, err = launch.finish()
    assert status == 6
    assert "rank 1 had not ended 1.0 s after SIGTERM" in err


def test_user_signals_are_passed_on(tmp_path):
    launch = Launch("--nproc-per-node=2", *sh(
        f"trap 'touch {tmp_path}/one$RANK' USR1; trap 'exit 0' USR2; touch {tmp_path}/up$RANK; "
        "while :; do sleep 0.05; done"))
    wait_for_files(tmp_path, "up0", "up1")
    launch.signal(signal.SIGUSR1)
    wait_for_files(tmp_path, "one0", "one1")
    launch.signal(signal.SIGUSR2)
    assert launch.finish() == (0, "", "")


def test_a_stop_while_one_rank_fails_starts_nothing_again(tmp_path):
    launch = Launch("--nproc-per-node=2", "--max-restarts=5", *sh(
        f"trap 'exit 4' TERM; touch {tmp_path}/up$RANK; while :; do sleep 0.05; done"))
    wait_for_files(tmp_path, "up0", "up1")
    launch.signal(signal.SIGTERM)
    status, _, err = launch.finish()
    assert status == 4
    assert "starting again" not in err


def test_one_rank_that_stops_by_itself_makes_the_run_stopped():
    status, _, err = trainrun("--nproc-per-node=2", *sh("exit $((RANK * 75))"))
    assert (status, err) == (75, "")


def first_process(*args):
    """trainrun as a container runs it: the first process, to which all orphans come."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return Launch(*user, "--pid", "--fork", "--mount-proc", TRAINRUN, *args, program="unshare")


def test_as_a_container_s_first_process_it_stops_in_order(tmp_path):
    launch = first_process("--nproc-per-node=2", "--stop-timeout=1000", *sh(SAVER.format(tmp_path)))
    wait_for_files(tmp_path, "up0", "up1")
    pid = min(pid for pid, name in launch.processes().items() if name == "trainrun")
    os.kill(pid, signal.SIGTERM)
    status, _, err = launch.finish()
    assert status == 75, err


def test_as_a_container_s_first_process_it_names_the_cause():
    status, _, err = first_process("--nproc-per-node=2",
                                   *sh("[ $RANK = 1 ] && exit 3; sleep 1000")).finish()
    assert status == 3 and "exited with status 3" in err


def test_a_scripts_background_launch_stops_on_sigint(tmp_path):
    """A shell starts `trainrun … &` with SIGINT ignored, unless it has job control."""
    launch = Launch("-c", f'"$0" --nproc-per-node=2 "$@" & child=$!; '
                          f'while ! [ -e {tmp_path}/up0 ]; do sleep 0.05; done; kill -INT $child; wait $child',
                    TRAINRUN, *sh(SAVER.format(tmp_path)), program="/bin/sh")
    assert launch.finish()[0] == 75
    assert (tmp_path / "saved0").exists()
