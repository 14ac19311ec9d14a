"""What reaches the screen and the logs: lines stay whole, buffers bounded, bytes exact."""
import os
import re
import signal
import subprocess

import pytest

from launches import TRAINRUN, Launch, free_port, sh, trainrun, wait_until


def test_rank_0_speaks_plainly_and_others_with_their_rank():
    _, out, err = trainrun("--nproc-per-node=3", *sh("echo out $RANK; echo err $RANK >&2"))
    assert sorted(out.splitlines()) == ["[rank 1] out 1", "[rank 2] out 2", "out 0"]
    assert sorted(err.splitlines()) == ["[rank 1] err 1", "[rank 2] err 2", "err 0"]


def test_lines_of_ranks_are_never_mixed():
    # Written in two halves, so that a reader sees unfinished lines.
    script = "for i in $(seq 300); do printf 'a%s%s' $RANK $RANK; printf 'b%s\\n' $RANK; done"
    _, out, _ = trainrun("--nproc-per-node=3", *sh(script))
    lines = out.splitlines()
    assert len(lines) == 900
    assert all(re.fullmatch(r"a00b0|\[rank 1\] a11b1|\[rank 2\] a22b2", line) for line in lines)


def test_an_unfinished_line_is_shown_soon(tmp_path):
    launch = Launch(*sh(f"printf 'name: '; while ! [ -e {tmp_path}/go ]; do sleep 0.02; done"))
    assert os.read(launch.process.stdout.fileno(), 100) == b"name: "
    (tmp_path / "go").touch()
    assert launch.finish()[0] == 0


def test_an_unfinished_line_is_ended_before_anothers():
    _, out, _ = trainrun("--nproc-per-node=2",
                         *sh("[ $RANK = 1 ] && sleep 0.5 && echo one && exit; printf zero; sleep 1"))
    assert out == "zero\n[rank 1] one\n"


def test_huge_output_and_long_lines_arrive_whole():
    size = 30_000_000
    status, out, _ = trainrun("--nproc-per-node=2", *sh(
        f"[ $RANK = 0 ] && head -c {size} /dev/zero | tr '\\0' x; seq 100000"))
    assert status == 0
    assert out.count("x") == size
    ones = [line for line in out.splitlines() if line.startswith("[rank 1] ")]
    assert ones == [f"[rank 1] {i}" for i in range(1, 100001)]


def test_one_rank_s_bytes_pass_unchanged(tmp_path):
    garbage = os.urandom(1_000_000)
    (tmp_path / "garbage").write_bytes(garbage)
    with open(tmp_path / "out", "wb") as out:
        launch = Launch("cat", tmp_path / "garbage", stdout=out)
        assert launch.finish()[0] == 0
    assert (tmp_path / "out").read_bytes() == garbage


def test_garbage_on_stderr_does_no_harm():
    status, _, err = trainrun(*sh("head -c 300000 /dev/urandom >&2; exit 1"))
    assert status == 1
    line = err.split("error[distributed]: ")[-1]
    assert len(line) < 1500 and not re.search("[\x00-\x09\x0b-\x1f\x7f]", line)


def test_a_reader_that_went_away_does_not_stop_the_run(tmp_path):
    launch = Launch(*sh(f"seq 1000000; touch {tmp_path}/done"))
    os.read(launch.process.stdout.fileno(), 10)
    launch.process.stdout.close()
    launch.process.stdout = None
    assert launch.finish()[0] == 0
    assert (tmp_path / "done").exists()


def test_a_reader_that_stands_still_does_not_hold_up_the_watch(tmp_path):
    launch = Launch("--nproc-per-node=2", *sh(
        f"[ $RANK = 1 ] && while ! [ -e {tmp_path}/go ]; do sleep 0.01; done && exit 3; "
        "while :; do seq 100000; done"))
    (tmp_path / "go").touch()
    wait_until(lambda: not launch.workers(), "for the ranks to be ended though no one reads")
    assert launch.finish()[0] == 3


def logs(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.log")}


def test_log_dir_keeps_everything_and_shows_it(tmp_path):
    status, out, err = trainrun("--nproc-per-node=2", f"--log-dir={tmp_path}", "--run-id=job7",
                                *sh("echo out $RANK; echo err $RANK >&2; exit $RANK"))
    assert status == 1
    expected = {}
    for rank in (0, 1):
        expected[f"job7/attempt_0/{rank}/stdout.log"] = f"out {rank}\n"
        expected[f"job7/attempt_0/{rank}/stderr.log"] = f"err {rank}\n"
    assert logs(tmp_path) == expected
    assert "out 0\n" in out and "[rank 1] out 1\n" in out
    assert err.splitlines()[-1].endswith(f"its log: {tmp_path}/job7/attempt_0/1/stderr.log")


def test_nodes_that_share_a_log_folder_have_their_own_in_it(tmp_path):
    port = free_port()
    nodes = [Launch("--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}",
                    f"--log-dir={tmp_path}", *sh(f"echo node {node}")) for node in (0, 1)]
    assert [node.finish()[0] for node in nodes] == [0, 0]
    found = {name: text for name, text in logs(tmp_path).items() if text}
    assert found == {f"port-{port}/node_{node}/attempt_0/0/stdout.log": f"node {node}\n" for node in (0, 1)}


def test_redirects_go_to_files_only(tmp_path):
    _, out, err = trainrun("--nproc-per-node=2", "--log-dir", tmp_path, "--rdzv_id=a", "-r", "0:1,1:3",
                           *sh("echo out; echo err >&2"))
    assert (out, err) == ("", "err\n")
    assert set(logs(tmp_path)) == {"a/attempt_0/0/stdout.log", "a/attempt_0/1/stdout.log",
                                   "a/attempt_0/1/stderr.log"}


def test_tee_chooses_streams_and_each_attempt_has_its_folder(tmp_path):
    _, _, _ = trainrun("--max-restarts=1", "--log-dir", tmp_path, "--run-id=a", "--tee=1",
                       *sh("echo $TORCHELASTIC_RESTART_COUNT; exit 1"))
    assert logs(tmp_path) == {"a/attempt_0/0/stdout.log": "0\n", "a/attempt_1/0/stdout.log": "1\n"}


def test_the_filter_hides_ranks_from_the_screen():
    _, out, _ = trainrun("--nproc-per-node=3", "--local-ranks-filter=0,2", *sh("echo $RANK"))
    assert sorted(out.splitlines()) == ["0", "[rank 2] 2"]


def test_a_log_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    status, _, err = trainrun("--log-dir", tmp_path / "file", "true")
    assert status == 5
    assert err.startswith("error[resource]: ") and str(tmp_path / "file") in err


def test_a_full_disk_costs_output_but_not_the_run(tmp_path):
    out = tmp_path / "out"
    with open(out, "wb") as file:
        status, _, err = Launch("-c", 'ulimit -f 8; exec "$@"', "sh", TRAINRUN, "--log-dir", tmp_path,
                                "--run-id=a", *sh("seq 100000"), program="sh", stdout=file).finish()
    assert status == 0
    log = tmp_path / "a/attempt_0/0/stdout.log"
    assert f"brim: warning: {log}: cannot write: File too large; the rest of this log is lost" in err
    assert "brim: warning: stdout: cannot write: File too large" in err
    assert out.read_text().startswith("1\n2\n") and out.stat().st_size == log.stat().st_size


def test_without_logs_nothing_stays_on_disk(tmp_path):
    status, _, _ = trainrun("--nproc-per-node=2", *sh("echo {} > $TORCHELASTIC_ERROR_FILE"),
                            env={"TMPDIR": str(tmp_path)})
    assert status == 0
    assert os.listdir(tmp_path) == []


def test_output_that_cannot_be_written_ends_no_rank(tmp_path):
    script = f"echo out; echo err >&2; sleep 0.3; echo more; touch {tmp_path}/done$RANK; exit 3"
    with open("/dev/full", "w") as full:
        launch = Launch("--nproc-per-node=1", *sh(script), stdout=full, stderr=full)
        assert launch.process.wait(60) == 3
    launch.end()
    assert (tmp_path / "done0").exists()


def test_temporary_folders_of_killed_launches_are_removed(tmp_path):
    (tmp_path / "tmp").mkdir()
    script = f"touch {tmp_path}/up$NUMBER; exec sleep 1000"
    launches = [Launch(*sh(script), env={"TMPDIR": str(tmp_path / "tmp"), "NUMBER": str(i)})
                for i in range(2)]
    wait_until(lambda: all((tmp_path / f"up{i}").exists() for i in range(2)), "both launches")
    folders = list((tmp_path / "tmp").glob("trainrun-*"))
    assert len(folders) == 2
    kept = tmp_path / "tmp" / "trainrun-kept-logs"  # as --tee makes
    kept.mkdir()
    for folder in [*folders, kept]:
        os.utime(folder, (0, 0))
    launches[0].process.kill()
    launches[0].process.wait()
    wait_until(lambda: not launches[0].processes(), "the guard ends the ranks")
    assert len(list((tmp_path / "tmp").iterdir())) == 3
    assert trainrun("true", env={"TMPDIR": str(tmp_path / "tmp")})[0] == 0
    left = list((tmp_path / "tmp").iterdir())
    assert kept in left and len(left) == 2, left
    launches[1].signal(signal.SIGTERM)
    launches[1].finish()
    assert list((tmp_path / "tmp").iterdir()) == [kept]


def test_without_a_place_for_logs_it_says_so():
    status, _, err = trainrun("--redirects=3", "true", env={"TMPDIR": "/proc"})
    assert status == 5 and "/proc: cannot make a temporary folder" in err and "with --log-dir" in err, err
    status, _, err = trainrun("true", env={"TMPDIR": "/proc"})
    assert status == 0 and "warning: no rank's error can be kept: /proc: cannot make" in err, err
