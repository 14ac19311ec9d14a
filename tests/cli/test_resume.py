"""A run that was stopped and resumed equals one that never stopped, to the bit."""
import os
import random
import signal
import time

import pytest

from trainer import (DIGITS, assert_same_tensors, latest_checkpoint, metrics, sets, start, trainer)

JOB = ["--recipe", DIGITS,
       *sets(batch__global=16, train__epochs=6, train__ema=0.99, model__dropout=0.1, model__hidden=24,
             optimizer__name="adamw", optimizer__learning_rate=1e-3, schedule__name="cosine",
             precision__mode="fp16", precision__scaler__growth_interval=50, train__clip_norm=1.0,
             eval__every_epochs=1, telemetry__every_steps=1, data__workers=1)]
STOPS = int(os.environ.get("BRIM_TEST_STOPS", "20"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    run = tmp_path_factory.mktemp("reference") / "run"
    result = trainer(*JOB, "--output", run)
    assert result.returncode == 0, result.stderr
    return run


def losses(run):
    return [(line["step"], line.get("loss"), line.get("eval_loss"), line.get("scale"))
            for line in metrics(run)]


def recorded_bytes(run):
    file = run / "metrics.jsonl"
    return file.stat().st_size if file.exists() else 0


def test_resume_is_bit_exact_from_random_stops(reference, tmp_path):
    """Each stop hits another step; a run may be stopped several times before it ends."""
    whole = reference
    chance = random.Random(5)
    stops, runs = 0, 0
    while stops < STOPS:
        runs += 1
        assert runs < 40, "the runs end before they are stopped"
        run = tmp_path / f"run-{runs}"
        for _ in range(8):  # stops of one run
            stop_at = recorded_bytes(run) + chance.uniform(0.0, 0.3) * recorded_bytes(whole)
            process = start(*JOB, "--output", run, "--resume", "auto")
            while process.poll() is None and recorded_bytes(run) < stop_at:
                time.sleep(0.005)
            if process.poll() is None:
                process.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
            _, stderr = process.communicate(timeout=300)
            if process.returncode == 0:
                break
            if process.returncode in (-signal.SIGINT, -signal.SIGTERM):
                continue  # stopped before the handlers were there: nothing had begun
            assert process.returncode == 75, stderr
            stops += 1
        else:
            result = trainer(*JOB, "--output", run, "--resume", "auto")
            assert result.returncode == 0, result.stderr
        assert_same_tensors(latest_checkpoint(whole), latest_checkpoint(run))
        assert losses(run) == losses(whole)


def test_resume_of_a_finished_run_says_so_and_changes_nothing(reference):
    run = reference
    before = (run / "metrics.jsonl").read_bytes()
    result = trainer(*JOB, "--output", run, "--resume", "auto")
    assert result.returncode == 0, result.stderr
    assert "finished already" in result.stderr
    assert (run / "metrics.jsonl").read_bytes() == before


def test_resume_from_an_older_checkpoint_cuts_the_records_back(tmp_path):
    run = tmp_path / "run"
    job = ["--recipe", DIGITS, *sets(train__steps=40, checkpoint__every_steps=10,
                                     telemetry__every_steps=1)]
    assert trainer(*job, "--output", run).returncode == 0
    whole = losses(run)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 41, "lo')  # torn by a crash
    result = trainer(*job, "--resume", run / "checkpoints" / "step-00000020")
    assert result.returncode == 0, result.stderr
    assert losses(run) == whole


def test_a_run_that_began_with_anothers_checkpoint_begins_there_again(reference, tmp_path):
    run = tmp_path / "run"
    longer = [*JOB, *sets(train__epochs=2000, eval__every_epochs=0, checkpoint__every_steps=0)]
    process = start(*longer, "--resume", reference, "--output", run)
    while recorded_bytes(run) == 0:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    process.kill()
    process.wait()
    process.stderr.close()
    first = metrics(reference)[-1]["step"] + 1
    again = trainer(*longer, *sets(train__epochs=7), "--resume", "auto", "--output", run)
    assert again.returncode == 0 and metrics(run)[0]["step"] == first, again.stderr
    done = trainer(*JOB, "--resume", reference, "--output", tmp_path / "done")
    assert done.returncode == 2 and f"is at step {first - 1}, and this recipe ends at" in done.stderr
    assert not (tmp_path / "done").exists()


def test_a_run_is_never_overwritten(reference):
    run = reference
    result = trainer(*JOB, "--output", run)
    assert result.returncode == 2
    assert "holds a run already; pass --resume auto" in result.stderr


def test_keys_that_differ_from_the_runs_are_named(tmp_path):
    run = tmp_path / "run"
    assert trainer("--recipe", DIGITS, "--output", run, *sets(train__epochs=1)).returncode == 0
    again = trainer("--recipe", DIGITS, "--output", run, "--resume", "auto",
                    *sets(train__epochs=2, optimizer__learning_rate=0.01))
    assert again.returncode == 0, again.stderr
    assert "resuming with optimizer.learning_rate = 0.01; the run had 0.05\n" in again.stderr
    assert "resuming with train.epochs = 2; the run had 1\n" in again.stderr
    assert again.stderr.count("resuming with ") == 2


def test_default_folders_are_numbered(tmp_path):
    for name in ("digits", "digits-2"):
        result = trainer("--recipe", DIGITS, *sets(train__steps=1), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "runs" / name / "recipe.toml").is_file()


@pytest.mark.parametrize("change, words", [
    (sets(model__hidden=99), "layers.0.weight"),
    (sets(run__seed=12345), "run.seed"),
    (sets(batch__global=32), "batch.global"),
])
def test_a_checkpoint_of_another_job_is_refused(reference, tmp_path, change, words):
    run = reference
    result = trainer(*JOB, *change, "--resume", latest_checkpoint(run), "--output", tmp_path / "new")
    assert result.returncode == 4, result.stderr
    assert words in result.stderr


def test_a_run_that_begins_to_scale_takes_its_own_scale(tmp_path):
    words = ["--recipe", DIGITS, "--output", tmp_path / "run", "--resume", "auto"]
    job = {"train__on_nan": "skip", "telemetry__every_steps": 1, "eval__enabled": False}
    for steps, mode in ((2, "fp32"), (4, "fp16")):
        done = trainer(*words, *sets(**job, train__steps=steps, precision__mode=mode))
        assert done.returncode == 0, done.stderr
    assert [line["scale"] for line in metrics(tmp_path / "run")] == [1, 1, 65536, 65536]
