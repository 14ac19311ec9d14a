"""trainer doctor RUN --fix: proposals tried in short runs, and what is faster written as a recipe."""
import json
import re
import shutil
import signal
import subprocess
import time

import pytest

from trainer import DIGITS, TRAINER, environment, lengthened, sets, trainer

SHORT = ("--steps", "20", "--repeats", "4")


@pytest.fixture(scope="module")
def tiny_batches(tmp_path_factory):
    """Digits two at a time: nearly all of a step's time does not depend on their number."""
    run = tmp_path_factory.mktemp("tiny") / "run"
    done = trainer("--recipe", DIGITS, "--output", run, "--devices", "cpu",
                   *sets(batch__global=2, train__steps=400, eval__enabled=False, telemetry__every_steps=40))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (lengthened(run) / "metrics.jsonl").read_text().splitlines()]
    for line in lines:  # this machine may be busy with other tests
        line.pop("machine", None)
        line["phases_s"]["forward"] += line["phases_s"].pop("data_wait")
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_what_is_faster_is_kept_and_written(tiny_batches):
    before = (tiny_batches / "recipe.toml").read_bytes()
    done = trainer("doctor", tiny_batches, "--fix", "--apply", *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [finding["rule"] for finding in report["findings"]] == ["small_batch"]
    [attempt] = report["fix"]["attempts"]
    expected = ["batch.global=64", "batch.micro=0", "optimizer.batch_rule=linear", "optimizer.base_batch=2"]
    assert attempt["settings"] == expected and attempt["kept"]
    speed = attempt["speed"]
    assert 1 < speed["low"] <= speed["ratio"] <= speed["high"] and speed["confidence"] >= 0.95
    assert report["fix"]["kept"] == expected and report["fix"]["gain"] == speed

    assert (tiny_batches / "recipe.toml").read_bytes() == before
    fixed = tiny_batches / "fixed.toml"
    assert f"train it with: trainer train {fixed}" in done.stderr
    shown = json.loads(trainer("recipe", "show", fixed, "--json").stdout)
    was = json.loads(trainer("recipe", "show", tiny_batches / "recipe.toml", "--json").stdout)
    assert shown["batch"] == {**was["batch"], "global": 64, "micro": 0}
    assert shown["optimizer"] == {**was["optimizer"], "batch_rule": "linear", "base_batch": 2}
    changed = {section for section in shown if shown[section] != was[section]}
    assert changed == {"batch", "optimizer"}


def test_a_proposal_whose_run_fails_is_left_out(tmp_path):
    run = tmp_path / "run"
    done = trainer("--recipe", DIGITS, "--output", run, "--devices", "cpu",
                   *sets(data__kind="synthetic", data__samples=40, data__height=8, data__width=8, data__channels=1,
                         data__classes=10, data__drop_last=True, batch__global=2, train__steps=60,
                         eval__enabled=False))
    assert done.returncode == 0, done.stderr
    done = trainer("doctor", lengthened(run), "--fix", *SHORT)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^tried    batch\.global=64, .*: not measured: .*drop_last", done.stdout, re.M), done.stdout
    assert "[batch]" not in done.stdout.split("\nfix      ")[1], done.stdout


def test_a_run_without_proposals_is_told_at_once(tmp_path):
    run = tmp_path / "run"
    assert trainer("--recipe", DIGITS, "--output", run, *sets(train__steps=40)).returncode == 0
    done = trainer("doctor", run, "--fix")
    assert done.returncode == 0 and done.stdout.endswith("fix      no line of the recipe to try\n"), done.stderr


def test_a_stop_ends_it_and_writes_nothing(tiny_batches, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_batches, run, ignore=shutil.ignore_patterns("fixed.toml"))
    fixing = subprocess.Popen([TRAINER, "doctor", run, "--fix", "--apply"], env=environment(), text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = ""
    while "a step," not in said:  # the first pilot has ended
        said += fixing.stderr.readline()
    fixing.send_signal(signal.SIGTERM)
    stopped_s = time.monotonic()
    said += fixing.stderr.read()
    assert fixing.wait() == 75 and "stopped on request" in said, said
    assert time.monotonic() - stopped_s < 60 and not (run / "fixed.toml").exists()


def test_bad_usage_is_refused(tiny_batches, tmp_path):
    for words, told in ((("--apply",), "--apply: expected --fix too"), (("--steps", "3"), "--steps: expected --fix too"),
                        (("--fix", "--watch"), "--watch and --fix don't go together"),
                        (("--fix", "--repeats", "0"), "--repeats: expected a number from 1")):
        done = trainer("doctor", tiny_batches, *words)
        assert done.returncode == 2 and told in done.stderr, (words, done.stderr)
    run = tmp_path / "run"
    shutil.copytree(tiny_batches, run)
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "ranks": 4}))
    launched = trainer("doctor", run, "--fix")
    assert launched.returncode == 2 and "the run had 4 ranks by a launcher" in launched.stderr
    (run / "recipe.toml").unlink()
    nothing = trainer("doctor", run, "--fix")
    assert nothing.returncode == 3 and "expected the run's recipe.toml, which --fix runs again" in nothing.stderr
