"""trainer doctor RUN, the verdict at a run's end, and trainer report, on real runs."""
import json
import re
import shutil
import signal
import subprocess

import pytest

from slow_data import SLOW_RECIPE, make_large_images
from trainer import DIGITS, TRAINER, environment, lengthened, metrics, sets, trainer


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory):
    """A tiny model on images of 4 megapixels: everything waits for the decoder."""
    root = tmp_path_factory.mktemp("slow")
    make_large_images(root / "images")
    recipe = root / "slow.toml"
    recipe.write_text(SLOW_RECIPE)
    done = trainer("--recipe", recipe, "--output", root / "run")
    assert done.returncode == 0, done.stderr
    return lengthened(root / "run")


def test_a_run_of_seconds_is_not_judged(tmp_path):
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *sets(train__steps=40))
    assert done.returncode == 0 and "verdict" not in done.stderr, done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["verdict"] == []
    report = trainer("doctor", tmp_path / "run").stdout
    assert re.match(r"40 steps in [\d.]+ m?s: too short to judge by, which takes 30 s\n", report), report


def test_a_slow_loader_is_named(slow_run):
    run = slow_run
    done = trainer("doctor", run)
    assert done.returncode == 0, done.stderr
    assert "severe   data-bound: " in done.stdout and " samples/s, the device could take " in done.stdout
    record = json.loads((run / "run.json").read_text())
    assert record["job"]["micro_batch"] == 2 and record["job"]["precision"] in ("fp32", "bf16")
    assert record["job"]["convolutions"] is False and record["job"]["parameters"] > 1000
    report = json.loads(trainer("doctor", run, "--json").stdout)
    found = {finding["rule"]: finding for finding in report["findings"]}
    assert found["loader_bound"]["severity"] == "severe"
    assert report["steps"] % 40 == 0 and report["run"] == str(run)
    assert report["memory"] == record["memory"]
    assert "straggler" not in report["not_recorded"]  # one rank has none


def test_an_absurd_line_does_not_hide_the_verdict(slow_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(slow_run, run)
    before = json.loads(trainer("doctor", run, "--json").stdout)
    step = metrics(run)[-1]["step"]
    with open(run / "metrics.jsonl", "a") as file:
        for times in ('"phases_s": {"forward": 1e308}', '"step_s": -5', '"overlapped_s": {"decode_cpu": 1e300}'):
            file.write(f'{{"step": {step}, {times}}}\n')
    done = trainer("doctor", run, "--json")
    assert "3 lines of metrics.jsonl were left out as damaged" in done.stderr
    assert json.loads(done.stdout) == before


def test_watching_shows_the_memory_table_once(slow_run, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("recipe.toml", "run.json"):
        (run / name).write_bytes((slow_run / name).read_bytes())
    lines = (slow_run / "metrics.jsonl").read_text().splitlines(keepends=True)
    first = {**json.loads(lines[0]), "step": 1}  # however slow it was, that is no run of 30 s
    (run / "metrics.jsonl").write_text(json.dumps(first) + "\n")
    watch = subprocess.Popen([TRAINER, "doctor", run, "--watch"], env=environment(), text=True,
                             stdout=subprocess.PIPE)
    said = []

    def read_until(words):
        while not said or words not in said[-1]:
            said.append(watch.stdout.readline())
            assert said[-1], "".join(said)

    read_until("to judge by")
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(lines[1:]))
    read_until("severe")
    watch.send_signal(signal.SIGINT)
    said += watch.stdout.read().splitlines(keepends=True)
    assert watch.wait() == 0
    table = trainer("doctor", run).stdout.splitlines(keepends=True)[-1]
    assert said.count(table) == 1, "".join(said)


def test_memory_is_recorded_and_shown(slow_run, tmp_path):
    run = slow_run
    lines = [line for line in metrics(run) if "loss" in line]
    assert all(line["memory"]["peak_bytes"] >= line["memory"]["allocated_bytes"] > 0 for line in lines)
    done = trainer("report", run, "--output", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "<h3>Memory</h3>" in page and "What to change" in page and "data-bound" in page


def test_a_report_goes_into_the_first_run(tmp_path):
    run = tmp_path / "digits"
    assert trainer("--recipe", DIGITS, "--output", run, *sets(train__epochs=2, batch__micro=64)).returncode == 0
    done = trainer("report", run)
    assert done.returncode == 0 and "report of one run in" in done.stderr
    assert "warning" not in done.stderr
    assert "<h1>digits</h1>" in (run / "report.html").read_text()
    (run / "run.json").write_text("{")
    for command in ("doctor", "report"):
        done = trainer(command, run)
        assert done.returncode == 0, done.stderr
        assert f"warning: {run}: run.json is damaged and was left out" in done.stderr
    both = trainer("report", run, run, "--output", tmp_path / "two.html")
    assert both.returncode == 0 and "report of 2 runs" in both.stderr


def test_what_was_not_recorded_is_never_guessed(slow_run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(slow_run, copy)
    (copy / "run.json").write_text("")
    result = trainer("doctor", copy)
    assert result.returncode == 0, result.stderr
    assert "of the device's memory is used" not in result.stdout
    assert "not recorded: device (memory_mostly_empty)" in result.stdout


def test_what_is_no_run_is_refused(tmp_path):
    for command in ("doctor", "report"):
        done = trainer(command, tmp_path / "gone")
        assert done.returncode == 3 and "expected the folder of a run" in done.stderr
    assert trainer("report").returncode == 2
    assert trainer("report", tmp_path, "--outptu", "x").returncode == 2


def test_a_page_that_cannot_be_written_is_a_matter_of_resources(slow_run, tmp_path):
    run = slow_run
    done = trainer("report", run, "--output", tmp_path / "no" / "folder" / "page.html")
    assert done.returncode == 5 and "error[resource]" in done.stderr


def test_a_run_is_watched_until_a_stop(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text('{"device": "cpu"}')
    watching = subprocess.Popen([TRAINER, "doctor", run, "--watch", "--json"], text=True,
                                env=environment(), stdout=subprocess.PIPE)
    try:
        assert json.loads(watching.stdout.readline())["too_short"] is True
        with open(run / "metrics.jsonl", "w") as file:
            for step in range(10, 110, 10):
                file.write(json.dumps({"step": step, "step_s": 1.0, "samples_per_s": 8,
                                       "phases_s": {"data_wait": 0.9, "forward": 0.1}}) + "\n")
        seen = json.loads(watching.stdout.readline())
        assert [finding["rule"] for finding in seen["findings"]] == ["loader_bound"]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
    finally:
        watching.kill()
