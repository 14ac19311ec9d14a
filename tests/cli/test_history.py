"""trainer history: the runs below a folder, their device hours by cause, and who had them."""
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import time

import pytest

from trainer import DIGITS, all_metrics, lengthened, metrics, sets, start, start_in_ranks, trainer

CAUSES = {"compute", "data", "communication", "checkpoint", "evaluation", "other", "idle while held"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two real runs, one of two ranks, and one in a folder of its own below."""
    folder = tmp_path_factory.mktemp("history") / "runs"
    for name, values in {"one": {}, "two": {"device__select": '"cpu,cpu"'},
                         "team/small": {"model__name": '"small_cnn"', "eval__enabled": "false"}}.items():
        values = {"train__steps": 60, "telemetry__every_steps": 5, **values}
        done = trainer("--recipe", DIGITS, "--output", folder / name, *sets(**values))
        assert done.returncode == 0, done.stderr
    return folder


def history(*words, status=0, **more):
    done = trainer("history", *words, **more)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def history_of(*words):
    return json.loads(history(*words, "--json").stdout)


def test_each_run_below_the_folder_is_listed_newest_first(runs):
    found = history_of(runs)["runs"]
    assert [run["started"] for run in found] == sorted((run["started"] for run in found), reverse=True)
    by_folder = {run["folder"]: run for run in found}
    first, second, third = (by_folder.pop(str(runs / name)) for name in ("team/small", "two", "one"))
    assert not by_folder
    assert (first["model"], first["best"], first["metric"]) == ("small_cnn", None, None)
    assert (second["ranks"], third["ranks"]) == (2, 1)
    user = pwd.getpwuid(os.getuid()).pw_name
    for run in found:
        assert (run["user"], run["host"], run["device"], run["steps"]) == (user, socket.gethostname(), "cpu", 60)
        assert run["samples_per_s"] > 0 and run["energy_kwh"] is None
    lines = [line for line in metrics(runs / "one") if "eval_top1" in line]
    assert third["metric"] == "top1" and third["best"] == max(line["eval_top1"] for line in lines)


def test_hours_are_those_of_the_run_on_every_rank(runs):
    for run in history_of(runs)["runs"]:
        lines = [line for line in metrics(pathlib.Path(run["folder"])) if "step_s" in line]
        assert set(run["hours"]) == CAUSES
        total = sum(run["hours"].values())
        end = all_metrics(pathlib.Path(run["folder"]))[-1]
        assert set(end) == {"step", "process_age_s", "run_age_s"} and end["step"] == 60
        assert end["process_age_s"] >= lines[-1]["process_age_s"]
        assert total == pytest.approx(end["process_age_s"] * run["ranks"] / 3600, rel=1e-3)
        for cause, phases in {"communication": ["communication"], "checkpoint": ["checkpoint"],
                              "compute": ["forward", "backward", "optimizer", "transform"]}.items():
            seconds = sum(5 * line["phases_s"][phase] for line in lines for phase in phases) * run["ranks"]
            # Decoding on the step's cores is taken from what they computed.
            assert run["hours"][cause] <= seconds / 3600 * 1.001
            assert run["hours"][cause] >= seconds / 3600 * 0.7
        assert run["hours"]["idle while held"] > 0  # the process starts


def test_time_held_after_the_last_step_is_counted(tmp_path):
    folder = tmp_path / "exec"
    done = trainer("--recipe", DIGITS, "--output", folder, "--trust-library",
                   *sets(train__steps=20, telemetry__exec=["sleep", "2"]))
    assert done.returncode == 0, done.stderr
    run, = history_of(folder)["runs"]
    assert run["hours"]["idle while held"] >= 1.5 / 3600

    folder = tmp_path / "hung"
    ranks = start_in_ranks(2, folder, DIGITS, *sets(train__epochs=100000, distributed__timeout_s=3))
    while not (folder / "metrics.jsonl").exists() or len(metrics(folder)) < 2:
        time.sleep(0.05)
    ranks[1].send_signal(signal.SIGSTOP)
    try:
        assert ranks[0].wait(timeout=60) == 6
    finally:
        ranks[1].kill()
        ranks[1].wait()
    *before, end = [line for line in all_metrics(folder) if "process_age_s" in line]
    assert "loss" not in end and end["run_age_s"] > before[-1]["process_age_s"] + 1.5  # most of the time limit
    run, = history_of(folder)["runs"]
    assert sum(run["hours"].values()) == pytest.approx(2 * end["run_age_s"] / 3600, rel=1e-3)


def test_groups_add_up(runs):
    for by, names in {"user": {pwd.getpwuid(os.getuid()).pw_name}, "host": {socket.gethostname()},
                      "model": {"mlp", "small_cnn"}}.items():
        found = history_of(runs, "--by", by)
        assert {group["name"] for group in found["groups"]} == names
        assert sum(group["runs"] for group in found["groups"]) == 3
        for cause in CAUSES:
            hours = sum(run["hours"][cause] for run in found["runs"])
            assert sum(group["hours"][cause] for group in found["groups"]) == pytest.approx(hours)
            assert found["hours"][cause] == pytest.approx(hours)
    (week,) = history_of(runs, "--by", "week")["groups"]
    monday = time.strptime(week["name"], "%Y-%m-%d")
    assert monday.tm_wday == 0


def test_text_says_what_the_hours_went_to(runs):
    text = history(runs).stdout
    head, *lines = text.splitlines()
    assert head.split() == ["run", "started", "user", "host", "model", "steps", "best", "samples/s", "busy", "hours",
                            "kWh", "verdict"]
    assert {line.split()[0] for line in lines[:3]} == {"team/small", "two", "one"}
    assert "hours of devices in 3 runs: compute " in text
    assert "lost to idle while held: " in text
    assert "2 runs" not in history(runs, "--by", "model").stdout.splitlines()[0]


def test_since_leaves_out_what_began_earlier(runs, tmp_path):
    assert len(history_of(runs, "--since", "1h")["runs"]) == 3
    copy = tmp_path / "runs"
    shutil.copytree(runs, copy)
    record = json.loads((copy / "one" / "run.json").read_text())
    record["started"] = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(time.time() - 3 * 86400))
    (copy / "one" / "run.json").write_text(json.dumps(record))
    assert {run["folder"] for run in history_of(copy, "--since", "2d")["runs"]} == {
        str(copy / "two"), str(copy / "team" / "small")}
    assert len(history_of(copy, "--since", "1w")["runs"]) == 3


def test_a_resumed_run_began_with_its_first_part_and_is_counted_once(runs, tmp_path):
    run = tmp_path / "runs" / "one"
    shutil.copytree(runs / "one", run)
    (before,) = history_of(run.parent)["runs"]
    done = trainer("--recipe", DIGITS, "--resume", run, *sets(train__steps=90, telemetry__every_steps=5))
    assert done.returncode == 0, done.stderr
    (after,) = history_of(run.parent)["runs"]
    assert after["started"] == before["started"] and after["steps"] == 90
    assert sum(after["hours"].values()) > sum(before["hours"].values())


def test_steps_of_another_run_are_not_counted(runs, tmp_path):
    done = trainer("--recipe", DIGITS, "--resume", runs / "one", "--output", tmp_path / "runs" / "more",
                   *sets(train__steps=65, telemetry__every_steps=1))
    assert done.returncode == 0, done.stderr
    (more,) = history_of(tmp_path / "runs")["runs"]
    trained = sum(line["step_s"] for line in metrics(tmp_path / "runs" / "more") if "loss" in line)
    idle = more["hours"]["idle while held"]
    assert sum(more["hours"].values()) - idle == pytest.approx(trained / 3600, rel=0.01)


def test_each_part_of_a_run_counts_with_its_own_ranks(tmp_path):
    run = tmp_path / "runs" / "one"
    values = {"train__steps": 400, "telemetry__every_steps": 5}
    assert trainer("--recipe", DIGITS, "--output", run, *sets(**values)).returncode == 0
    (alone,) = history_of(run.parent)["runs"]
    done = trainer("--recipe", DIGITS, "--resume", run, *sets(**{**values, "train__steps": 410}), "--devices", "cpu,cpu")
    assert done.returncode == 0, done.stderr
    (both,) = history_of(run.parent)["runs"]
    alone_s, both_s = sum(alone["hours"].values()) * 3600, sum(both["hours"].values()) * 3600
    ages = [line["run_age_s"] for line in all_metrics(run) if "run_age_s" in line]
    assert both_s == pytest.approx(alone_s + 2 * (ages[-1] - alone_s), rel=0.05), (alone_s, both_s)


def test_the_best_of_a_language_model_is_its_lowest_loss(tmp_path):
    run = tmp_path / "runs" / "text"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "metrics.jsonl").write_text(
        '{"step": 1, "loss": 3, "step_s": 1, "process_age_s": 4, "tokens_per_s": 640}\n'
        '{"step": 1, "eval_loss": 2.5, "eval_top1": 30}\n{"step": 2, "eval_loss": 3.5, "eval_top1": 40}\n')
    (found,) = history_of(run.parent)["runs"]
    assert (found["metric"], found["best"]) == ("loss", 2.5)
    assert "loss 2.5" in history(run.parent).stdout


def test_weeks_before_1970_begin_on_monday_too(runs, tmp_path):
    for day, monday in {"1969-12-28": "1969-12-22", "1969-12-29": "1969-12-29", "1970-01-01": "1969-12-29",
                        "1970-01-04": "1969-12-29", "1970-01-05": "1970-01-05"}.items():
        folder = tmp_path / day
        shutil.copytree(runs / "one", folder)
        record = json.loads((folder / "run.json").read_text())
        record["started"] = f"{day}T12:00:00+0000"
        (folder / "run.json").write_text(json.dumps(record))
        (week,) = history_of(folder, "--by", "week")["groups"]
        assert week["name"] == monday


def test_a_line_of_times_beyond_reason_is_damage(runs, tmp_path):
    run = tmp_path / "runs" / "one"
    shutil.copytree(runs / "one", run)
    (before,) = history_of(run.parent)["runs"]
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines.insert(3, '{"step": 20, "step_s": 1, "process_age_s": 5, "phases_s": {"forward": 1e308}}\n')
    (run / "metrics.jsonl").write_text("".join(lines))
    done = history(run.parent, "--json")
    assert "1 line of metrics.jsonl was left out as damaged" in done.stderr
    assert json.loads(done.stdout)["runs"][0]["hours"] == before["hours"]


@pytest.mark.parametrize("line", ['{"step": 2, "step_s": 1, "process_age_s": 5, "run_age_s": 1e300}'])
def test_metrics_beyond_reason_leave_their_run_out(runs, tmp_path, line):
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    (folder / "one" / "metrics.jsonl").write_text('{"step": 1, "step_s": 1, "process_age_s": 4}\n' + line + "\n")
    done = history(folder, "--json")
    assert f"left out: {folder / 'one'}: metrics.jsonl: expected times of at most" in done.stderr
    assert len(json.loads(done.stdout)["runs"]) == 2
    (folder / "two" / "run.json").write_text('{"ranks": 10000000000}')
    assert "expected 1 to 1000000 ranks" in history(folder).stderr


def test_the_verdict_is_that_of_the_doctor(runs, tmp_path):
    run = tmp_path / "runs" / "one"
    shutil.copytree(runs / "one", run)
    lines = metrics(run)
    for line in lines:  # as if each step had waited nine times as long for its data
        if "step_s" in line:
            line["phases_s"]["data_wait"] += 9 * line["step_s"]
            line["step_s"] *= 10
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lengthened(run)
    first = json.loads(trainer("doctor", run, "--json").stdout)["findings"][0]
    found = history_of(run.parent)
    assert found["runs"][0]["verdict"][0]["rule"] == first["rule"] == "loader_bound"
    assert first["message"][:20] in history(run.parent).stdout


def test_a_page_shows_the_same(runs, tmp_path):
    page = tmp_path / "hours.html"
    done = history(runs, "--output", page)
    assert f"3 runs in {page}" in done.stderr
    text = page.read_text()
    for heading in ("By week", "By user", "By model", "By host", "Runs"):
        assert f"<h2>{heading}</h2>" in text
    assert "Content-Security-Policy" in text and "<script" not in text and "team/small" in text


def test_what_a_run_says_is_only_text(runs, tmp_path):
    run = tmp_path / "runs" / "<b>x"
    shutil.copytree(runs / "one", run)
    record = json.loads((run / "run.json").read_text())
    record["user"] = "<script>alert(1)</script>\x1b[31m"
    record["machine"]["host"] = "a\"b' onload=x"
    (run / "run.json").write_text(json.dumps(record))
    history(run.parent, "--output", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and "<b>x" not in page and "\x1b" not in page
    assert "\x1b" not in history(run.parent).stdout


def test_a_run_that_cannot_be_read_is_left_out(runs, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    (folder / "bad").mkdir()
    (folder / "bad" / "run.json").mkdir()  # a folder in the file's place
    (folder / "damaged").mkdir()
    (folder / "damaged" / "run.json").write_text("{")
    (folder / "loop").symlink_to(folder)
    done = history(folder, "--json")
    assert f"left out: {folder / 'bad'}" in done.stderr
    assert f"{folder / 'damaged'}: run.json is damaged and was left out" in done.stderr
    found = json.loads(done.stdout)["runs"]
    assert len(found) == 4  # the damaged one says nothing of itself
    assert [run for run in found if run["folder"] == str(folder / "damaged")][0]["steps"] == 0
    assert "not recorded" in history(folder, "--by", "user").stdout


@pytest.mark.parametrize("content, remark", [
    ('{"step": 1, "lo', "the last line of metrics.jsonl is torn after 15 bytes and was left out"),
    ('{"step": 1, "lo\n', "1 line of metrics.jsonl was left out as damaged"), ("", None)])
def test_metrics_without_a_whole_line_are_named(runs, tmp_path, content, remark):
    run = tmp_path / "runs" / "one"
    shutil.copytree(runs / "one", run)
    (run / "metrics.jsonl").write_text(content)
    done = history(run.parent, "--json")
    assert json.loads(done.stdout)["runs"][0]["steps"] == 0
    if remark is None:  # a run that begins
        assert "metrics.jsonl" not in done.stderr
    else:
        assert f"warning: {run}: {remark}\n" in done.stderr


def test_a_folder_without_runs_is_empty(tmp_path):
    assert history_of(tmp_path)["runs"] == []
    assert "0 hours of devices in 0 runs" in history(tmp_path).stdout
    history(tmp_path, "--output", tmp_path / "page.html")


def test_wrong_words_are_refused(tmp_path):
    for words in (["--json"], ["--by", "week"]):
        assert "does not go with" in history(tmp_path, "--output", tmp_path / "page.html", *words, status=2).stderr
    assert "expected user, model, host or week, found 'colour'" in history(tmp_path, "--by", "colour", status=2).stderr
    for period in ("7", "d", "0d", "-1d", "7 d", "7days", "99999999999999999999d"):
        assert "--since: expected 1 to 100,000 hours, days or weeks" in history(tmp_path, "--since", period, status=2).stderr
    assert "found nothing there" in history(tmp_path / "gone", status=3).stderr
    (tmp_path / "file").write_text("")
    assert "found a file" in history(tmp_path / "file", status=3).stderr
    assert "expected a folder with runs in it or below it" in history(cwd=tmp_path, status=3).stderr


def test_a_stop_ends_the_search(tmp_path):
    long = tmp_path / "long"
    long.write_text('{"step": 1, "loss": 1}\n' * 500_000)
    runs = [tmp_path / "runs" / str(i) for i in range(300)]  # a minute's work
    for run in runs:
        run.mkdir(parents=True)
        os.link(long, run / "metrics.jsonl")
        (run / "run.json").write_text("{}")
    page = tmp_path / "report.html"
    for command in (["history", tmp_path], ["report", *runs, "--output", page]):
        search = start(*command)
        time.sleep(1)
        search.send_signal(signal.SIGTERM)
        assert search.wait(timeout=60) == 75, search.stderr.read()
        assert "stopped while runs were read" in search.stderr.read()
    assert not page.exists()
