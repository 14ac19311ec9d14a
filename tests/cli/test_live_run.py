"""What may happen to a run while it trains: a second process, signals, output and files that are lost."""
import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import runs  # noqa: E402
from trainer import (DIGITS, TRAINER, assert_same_tensors, environment, latest_checkpoint, metrics,  # noqa: E402
                     sets, start, trainer)

LIMIT_S = 120  # only to catch a hang
ENDLESS = ["--recipe", DIGITS, *sets(train__steps=10_000_000, telemetry__every_steps=1, data__workers=1,
                                     checkpoint__every_steps=50, checkpoint__keep=2)]


def wait_until(condition, process):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def has_metrics(run):
    return lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0


@contextlib.contextmanager
def live(run, *more):
    """An endless run that has taken steps."""
    process = start(*ENDLESS, *more, "--output", run)
    try:
        wait_until(has_metrics(run), process)
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(process, number=signal.SIGTERM):
    """Its status and stderr after the signal."""
    process.send_signal(number)
    _, stderr = process.communicate(timeout=LIMIT_S)
    return process.returncode, stderr


# A second process

@pytest.mark.parametrize("saves", [True, False])
def test_a_refused_process_leaves_the_live_runs_files_alone(tmp_path, saves):
    run, options = tmp_path / "run", sets(checkpoint__enabled=saves)
    with live(run, *options) as process:
        before = {name: (run / name).read_bytes() for name in ("recipe.toml", "run.json")}
        inode = (run / "metrics.jsonl").stat().st_ino
        other = trainer(*ENDLESS, *options, *sets(train__steps=20, run__seed=7), "--output", run,
                        "--resume", "auto")
        fresh = trainer(*ENDLESS, *options, "--output", run)
        after = {name: (run / name).read_bytes() for name in before}
        for refused in (other, fresh):
            assert refused.returncode == 5, refused.stderr
            assert "another process trains in this folder" in refused.stderr
        assert after == before
        assert (run / "metrics.jsonl").stat().st_ino == inode
        assert stop(process)[0] == 75


def test_a_run_that_has_ended_can_be_resumed_at_once(tmp_path):
    run = tmp_path / "run"
    with live(run) as process:
        process.kill()
        process.wait()
        step = int(latest_checkpoint(run).name[5:]) if (run / "checkpoints" / "latest").exists() else 0
        result = trainer(*ENDLESS, *sets(train__steps=step + 1), "--output", run, "--resume", "auto")
        assert result.returncode == 0, result.stderr


# Output that is lost

@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2>&1 | head -n 1", ">&- 2>&- <&-"])
def test_training_goes_on_without_its_log(tmp_path, stderr):
    run = tmp_path / "run"
    args = ["--recipe", DIGITS, "--output", run, *sets(train__steps=60, telemetry__every_steps=1)]
    words = " ".join(f"'{word}'" for word in [TRAINER, *args])
    subprocess.run(["bash", "-c", f"{words} {stderr}"], env=environment(), timeout=LIMIT_S,
                   capture_output=True)
    assert (run / "checkpoints" / "step-00000060").is_dir()
    assert metrics(run)[-1]["step"] == 60
    for file in ("recipe.toml", "run.json", "metrics.jsonl"):
        assert "brim: " not in (run / file).read_text(), "the log went into another file"


def test_an_error_keeps_its_status_without_stderr(tmp_path):
    command = f"'{TRAINER}' --recipe nowhere.toml 2>/dev/full"
    assert subprocess.run(["bash", "-c", command], env=environment(), cwd=tmp_path).returncode == 2


# Signals

def test_hangup_saves(tmp_path):
    with live(tmp_path / "run") as process:
        status, stderr = stop(process, signal.SIGHUP)
        assert status == 75, stderr
        assert "state saved" in stderr


def test_nohup_goes_on_at_hangup(tmp_path):
    run = tmp_path / "run"
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with live(run) as process:
            process.send_signal(signal.SIGHUP)
            size = (run / "metrics.jsonl").stat().st_size
            wait_until(lambda: (run / "metrics.jsonl").stat().st_size > size, process)
            status, stderr = stop(process)
            assert status == 75, stderr
            assert "a second signal" in stderr and "brim: stopped" in stderr
    finally:
        signal.signal(signal.SIGHUP, former)


# Files that are lost

def test_a_run_whose_folder_is_removed_ends_in_words(tmp_path):
    run = tmp_path / "run"
    with live(run) as process:
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(run, ignore_errors=True)  # what was written meanwhile
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 5, stderr
        assert "state saved" not in stderr
        assert "deleted" in stderr


def test_metrics_that_are_removed_end_the_run_in_words(tmp_path):
    run = tmp_path / "run"
    with live(run) as process:
        wait_until((run / "checkpoints" / "latest").exists, process)
        (run / "metrics.jsonl").unlink()
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 5, stderr
        assert f"{run / 'metrics.jsonl'}: the file was deleted or replaced" in stderr
    assert latest_checkpoint(run).is_dir()


def test_what_a_killed_process_left_is_removed(tmp_path):
    run = tmp_path / "run"
    args = ["--recipe", DIGITS, "--output", run]
    assert trainer(*args, *sets(train__steps=1)).returncode == 0
    left = [run / f"{name}.tmp.{pid}" for name in ("recipe.toml", "run.json", "metrics.jsonl")
            for pid in (1, 4194304)]
    for file in [*left, run / "notes.tmp.4194304"]:
        file.write_text("torn")
    result = trainer(*args, *sets(train__steps=2), "--resume", "auto")
    assert result.returncode == 0, result.stderr
    assert not [file.name for file in left if file.exists()]
    assert (run / "notes.tmp.4194304").exists()


# Losses that are not finite

EXPLODES = ["--recipe", DIGITS, *sets(train__steps=300, telemetry__every_steps=1, train__clip_norm=0.0,
                                      optimizer__momentum=0.0, schedule__name="constant")]


def test_a_failed_run_resumes_with_on_nan_skip(tmp_path):
    run = tmp_path / "run"
    job = ["--recipe", DIGITS, "--output", run]
    assert trainer(*job, *sets(train__steps=4)).returncode == 0
    result = trainer(*job, *sets(train__steps=6, train__on_nan="skip"), "--resume", "auto")
    assert result.returncode == 0, result.stderr
    result = trainer(*job, *sets(train__steps=8), "--resume", "auto")  # and back
    assert result.returncode == 0, result.stderr


def test_a_loss_that_is_not_finite_names_no_checkpoint_where_there_is_none(tmp_path):
    result = trainer(*EXPLODES, *sets(optimizer__learning_rate=1e30), "--output", tmp_path / "run")
    assert result.returncode == 7, result.stderr
    assert "no checkpoint was saved" in result.stderr
    assert "kept in" not in result.stderr


def test_a_loss_that_is_not_finite_names_the_checkpoint_before_it_rose(tmp_path):
    run = tmp_path / "run"
    job = [*EXPLODES, *sets(checkpoint__every_steps=1, checkpoint__keep=0, eval__every_epochs=0), "--output", run]
    assert trainer(*job, *sets(train__steps=20, optimizer__learning_rate=0.05)).returncode == 0
    # Each step takes the weights times 1 - 30·0.1 = -2: they overflow on every CPU.
    result = trainer(*job, *sets(optimizer__learning_rate=30.0, optimizer__weight_decay=0.1), "--resume", "auto")
    assert result.returncode == 7, result.stderr
    losses = {line["step"]: line["loss"] for line in metrics(run) if "loss" in line}
    assert latest_checkpoint(run).name != "step-00000020", "finite, exploded weights were saved"
    named = result.stderr.split("checkpoints/step-")[1][:8]
    assert int(named) in (19, 20), (result.stderr, losses)


# Waits in which a stop is asked for

class HangingServer:
    """Serves a folder of shards; says nothing where `hangs_at` is asked for."""

    def __init__(self, folder):
        self.folder, self.hangs_at, self.is_asked = folder, None, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            file = self.folder / request.split()[1].decode().lstrip("/")
            if file.name == self.hangs_at:
                self.is_asked.set()
                connection.recv(1)  # until the client goes
                return
            body = file.read_bytes()
            head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)


@pytest.fixture
def server(tmp_path):
    """Of 12 shards of 8 pictures each."""
    for i in range(96):
        folder = tmp_path / "pictures" / f"class-{i % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (i * 2, 255 - i * 2, 90)).save(folder / f"{i:02}.png")
    result = trainer("data", "pack", "--from", tmp_path / "pictures", "--to", tmp_path / "shards",
                     "--samples", 8)
    assert result.returncode == 0, result.stderr
    server = HangingServer(tmp_path / "shards")
    yield server
    server.listener.close()


MLP = 'name = "mlp"\nhidden = 16\ndropout = 0.3'


def shards_job(folder, server, model=MLP, **values):
    """A run of 12 steps; step 3 needs shards 4 and 5."""
    folder.mkdir(exist_ok=True)
    recipe = folder / "shards.toml"
    recipe.write_text(f"""[run]\nname = "r"\n[model]\n{model}
[data]\nkind = "webdataset"\nimage_size = 16\nresize = 16\nclasses = 4
shard_cache = "{folder / 'cache'}"\nprefetch = 1
[data.train]\npath = "{server.url}/shard-{{000000..000011}}.tar"\n[data.sampler]\nname = "sequential"
[batch]\nglobal = 16\nmicro = 4\n[optimizer]\nname = "sgd"\nlearning_rate = 0.1
[train]\nepochs = 2\n[telemetry]\nevery_steps = 1\n""")
    return ["--recipe", recipe, "--output", folder / "run", *sets(**values)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stop_is_heard_while_data_are_awaited(tmp_path, server, workers):
    whole = shards_job(tmp_path / "whole", server, data__workers=workers)
    result = trainer(*whole)
    assert result.returncode == 0, result.stderr

    job = shards_job(tmp_path / "part", server, data__workers=workers)
    server.hangs_at = "shard-000005.tar"
    process = start(*job)
    assert server.is_asked.wait(LIMIT_S)
    time.sleep(0.3)  # until the first micro-batches of the step are done
    status, stderr = stop(process)
    assert status == 75, stderr
    run = tmp_path / "part" / "run"
    assert "stopped at step 2, state saved" in stderr
    assert latest_checkpoint(run).name == "step-00000002"

    server.hangs_at = None
    result = trainer(*job, "--resume", "auto")
    assert result.returncode == 0, result.stderr
    assert_same_tensors(latest_checkpoint(tmp_path / "whole" / "run"), latest_checkpoint(run))


def test_a_stop_is_heard_while_the_shards_are_indexed(tmp_path, server):
    server.hangs_at = "shard-000003.tar.index"
    process = start(*shards_job(tmp_path / "job", server))
    assert server.is_asked.wait(LIMIT_S)
    status, stderr = stop(process)
    assert status == 75, stderr
    assert not (tmp_path / "job" / "run").exists()


def test_a_stop_is_heard_while_an_evaluation_awaits_data(tmp_path, server):
    evaluation = f"{server.url}/shard-{{000008..000011}}.tar"
    job = shards_job(tmp_path / "job", server, data__eval__path=evaluation,
                     data__train__path=f"{server.url}/shard-{{000000..000003}}.tar")
    server.hangs_at = "shard-000010.tar"
    process = start(*job)
    assert server.is_asked.wait(LIMIT_S)
    status, stderr = stop(process)
    assert status == 75, stderr
    assert "state saved" in stderr
    server.hangs_at = None
    result = trainer(*job, "--resume", "auto")
    assert result.returncode == 0, result.stderr
    assert "evaluation" in result.stderr


@pytest.mark.parametrize("synchronized", [False, True])
def test_ranks_stop_while_one_awaits_data(tmp_path, server, synchronized):
    """Where batch norms are synchronized, ranks wait for each other within their passes, too."""
    values = {"model": 'name = "small_cnn"\nwidth = 4', "distributed__sync_batch_norm": True} if synchronized else {}
    job = shards_job(tmp_path / "part", server, distributed__timeout_s=100, **values)
    server.hangs_at = "shard-000005.tar"
    with runs.Run(tmp_path) as run:
        process = run.trainrun(2, [runs.TRAINER, *job])
        assert server.is_asked.wait(LIMIT_S)
        process.send_signal(signal.SIGTERM)
        result = run.finish(process)
        assert result.status == 75, result.stderr
        assert "state saved" in result.stderr
    # A busy machine hears of the stop before the step whose data are there.
    assert latest_checkpoint(tmp_path / "part" / "run").name in ("step-00000001", "step-00000002")


def test_ranks_stop_where_the_one_that_awaits_data_gets_no_signal(tmp_path, server):
    job = shards_job(tmp_path / "part", server, distributed__timeout_s=100)
    server.hangs_at = "shard-000005.tar"
    with runs.Run(tmp_path) as run:
        first, second = run.start_ranks(2, [runs.TRAINER, *job])
        assert server.is_asked.wait(LIMIT_S)
        first.send_signal(signal.SIGTERM)
        for result in (run.finish(first), run.finish(second)):
            assert result.status == 75, result.stderr


def test_a_rank_that_waits_for_a_stopped_one_ends_soon(tmp_path):
    with runs.Run(tmp_path) as run:
        first, second = run.start_ranks(2, [runs.TRAINER, *runs.job(
            tmp_path / "run", train__steps=10_000_000, distributed__timeout_s=600)])
        wait_until(lambda: (tmp_path / "run/checkpoints/latest").exists(), first)
        second.send_signal(signal.SIGSTOP)
        first.send_signal(signal.SIGTERM)
        result = run.finish(first)
        second.kill()
        second.wait()
        assert result.status in (6, 75), result.stderr


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stop_is_heard_while_ranks_meet(tmp_path, rank):
    with runs.Run(tmp_path) as run, socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if rank == 0:
            silent.close()
        process = run.start_rank(rank, 2, [runs.TRAINER, *runs.job(
            tmp_path / "run", distributed__timeout_s=600)], runs.by_port(port))
        time.sleep(2)  # it waits by now, or gets the signal before, which is no worse
        process.send_signal(signal.SIGTERM)
        result = run.finish(process)
        assert result.status in (75, -signal.SIGTERM), result.stderr


# A result that is lost

@pytest.mark.parametrize("command", ["recipe reference", "version", "--help"])
def test_a_result_that_cannot_be_written_is_an_error(command):
    result = subprocess.run(["bash", "-c", f"'{TRAINER}' {command} >/dev/full"], env=environment(),
                            capture_output=True, text=True, timeout=LIMIT_S)
    assert result.returncode == 5, result.stderr
    assert result.stderr == "error[resource]: standard output can't be written: No space left on device (free some space there)\n"


def test_a_reader_that_has_enough_is_no_error():
    command = f"'{TRAINER}' recipe reference | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True,
                            text=True, timeout=LIMIT_S)
    first, status = result.stdout.splitlines()
    assert first == "# Keys of a recipe" and status in ("0", "141") and result.stderr == ""
