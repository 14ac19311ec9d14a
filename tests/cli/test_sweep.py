"""trainer sweep, on real trials of a few steps: what is searched, what survives kills, what is shown."""
import csv
import fcntl
import io
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import time

import pytest

from gpus import Gpus
from trainer import (DIGITS, TRAINER, assert_same_tensors, environment, evaluations, latest_checkpoint, sets,
                     start, trainer)

SMALL = ["--recipe", DIGITS, *sets(model__hidden=16, model__depth=1, run__deterministic=True,
                                   telemetry__tensorboard=False)]
RATES = ["--vary", "optimizer.learning_rate=1e-3..1e-1:log"]
LIMIT_S = 120  # only to catch a hang


def sweep(folder, *args):
    done = trainer("sweep", *SMALL, "--output", folder, *args)
    assert done.returncode == 0, done.stderr
    return status(folder)


def status(folder):
    shown = trainer("sweep", "status", folder, "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def table(folder):
    """What does not depend on how long things took."""
    return [{key: trial[key] for key in ("trial", "state", "settings", "metric", "step", "rungs")}
            for trial in status(folder)["trials"]]


def states(folder):
    """As the database has them: without a process, for those who wait."""
    database = sqlite3.connect(folder / "sweep.db")
    rows = [row[0] for row in database.execute("SELECT state FROM trial ORDER BY id")]
    database.close()
    return rows


def wait_for(condition):
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    return found


def children(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_training(pid):
    """Its program has replaced the sweep's image, and has a run."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return False
    return b"train" in words and (pathlib.Path(words[words.index(b"--output") + 1].decode()) / "run.json").exists()


def begun(folder):
    return sum(1 for run in (folder / "trials").glob("*/run.json"))


@pytest.fixture(scope="module")
def random_sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "lr"
    sweep(folder, *sets(train__epochs=1), *RATES, "--vary", "optimizer.momentum=0.8,0.9",
          "--trials", 10, "--per-device", 2)
    return folder


def test_every_trial_is_a_run_that_can_run_again(random_sweep, tmp_path):
    shown = status(random_sweep)
    assert [trial["state"] for trial in shown["trials"]] == ["done"] * 10
    assert {trial["step"] for trial in shown["trials"]} == {23}
    assert shown["metric"] == "top1" and not shown["lower_is_better"]
    best = max(shown["trials"], key=lambda trial: trial["metric"])
    assert shown["trials"][shown["best"] - 1]["metric"] == best["metric"]
    run = random_sweep / "trials" / "0003"
    assert evaluations(run)[-1]["eval_top1"] == shown["trials"][2]["metric"]
    again = trainer("train", run / "recipe.toml", "--output", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert_same_tensors(latest_checkpoint(tmp_path / "again"), latest_checkpoint(run))


def test_rates_are_drawn_within_their_range_and_differ(random_sweep):
    drawn = [trial["settings"] for trial in status(random_sweep)["trials"]]
    rates = [float(settings["optimizer.learning_rate"]) for settings in drawn]
    assert len(set(rates)) == 10 and all(1e-3 <= rate <= 1e-1 for rate in rates)
    assert any(rate < 5e-3 for rate in rates) and any(rate > 2e-2 for rate in rates)  # by the logarithm
    assert {settings["optimizer.momentum"] for settings in drawn} == {"0.8", "0.9"}


def test_the_table_is_shown_in_three_forms(random_sweep):
    shown = status(random_sweep)
    text = trainer("sweep", "status", random_sweep).stdout
    lines = text.splitlines()
    assert lines[0].split()[:5] == ["trial", "state", "top1", "step", "time"]
    assert lines[1].split()[0] == str(shown["best"]) and lines[-1].startswith("10 of 10 trials done")
    rows = list(csv.DictReader(io.StringIO((random_sweep / "trials.csv").read_text())))
    assert [int(row["trial"]) for row in rows] == list(range(1, 11))
    for row, trial in zip(rows, shown["trials"]):
        assert float(row["top1"]) == trial["metric"]
        assert row["optimizer.learning_rate"] == trial["settings"]["optimizer.learning_rate"]


def test_kills_lose_no_finished_trial_and_repeat_none(random_sweep, tmp_path):
    folder = tmp_path / "lr"
    args = ["sweep", *SMALL, "--output", folder, *sets(train__epochs=1), *RATES, "--vary",
            "optimizer.momentum=0.8,0.9", "--trials", 10, "--per-device", 2]
    finished = {}
    for kills in (1, 4, 7):  # of the sweep, of a trial, of the sweep
        process = start(*args)
        try:
            wait_for(lambda: begun(folder) > kills and any(map(is_training, children(process.pid))))
            if kills == 4:
                os.kill(next(filter(is_training, children(process.pid))), signal.SIGKILL)
                wait_for(lambda: begun(folder) > kills + 1)
        finally:
            process.kill()
            process.communicate()
        for trial, state in enumerate(states(folder), 1):
            run = folder / "trials" / f"{trial:04}"
            if state == "done":
                finished.setdefault(run, (run / "run.json").stat().st_mtime_ns)
        args = ["sweep", "--resume", folder]
    assert f"no process runs this sweep; trainer sweep --resume {folder}" in trainer("sweep", "status", folder).stderr
    resumed = trainer(*args)
    assert resumed.returncode == 0, resumed.stderr
    assert "no process runs" not in trainer("sweep", "status", folder).stderr
    assert table(folder) == table(random_sweep)
    assert finished and all((run / "run.json").stat().st_mtime_ns == at for run, at in finished.items())


def starts(run):
    return (run / "trainer.log").read_text().count("brim: starting in")


def test_processes_share_a_sweep_and_take_over_what_a_dead_one_leaves(random_sweep, tmp_path):
    folder = tmp_path / "lr"
    first = start("sweep", *SMALL, "--output", folder, *sets(train__epochs=1), *RATES, "--vary",
                  "optimizer.momentum=0.8,0.9", "--trials", 10)
    second = None
    try:
        wait_for(lambda: begun(folder) >= 1)
        second = start("sweep", "--resume", folder)
        wait_for(lambda: any(map(is_training, children(second.pid))))
        wait_for(lambda: any(map(is_training, children(first.pid))))
        first.kill()
        first.communicate()
        said = second.communicate(timeout=LIMIT_S)[1]
    finally:
        for process in filter(None, (first, second)):
            process.kill()
    assert second.returncode == 0, said
    assert table(folder) == table(random_sweep)
    assert sum(starts(run) > 1 for run in (folder / "trials").iterdir()) <= 1  # the one that was killed


def test_what_is_asked_of_a_sweep_reaches_each_of_its_processes(tmp_path):
    folder = tmp_path / "long"
    processes = [start("sweep", *SMALL, "--output", folder, *sets(train__steps=100000), *RATES, "--trials", 3)]
    try:
        wait_for(lambda: begun(folder) == 1)
        processes.append(start("sweep", "--resume", folder))
        wait_for(lambda: begun(folder) == 2)
        assert trainer("sweep", "pause", folder).returncode == 0
        wait_for(lambda: states(folder) == ["stopped", "stopped", "waiting"])
        processes.append(start("sweep", "--resume", folder))  # one more does not end the pause
        assert trainer("sweep", "cancel", folder).returncode == 0
        for process in processes:
            said = process.communicate(timeout=LIMIT_S)[1]
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    assert states(folder) == ["cancelled"] * 3 and begun(folder) == 2


def test_two_sweeps_at_the_same_time_run_each_trial_once(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    processes = [start("sweep", *SMALL, "--output", folder, *sets(train__epochs=1), *RATES, "--trials", 4,
                       "--devices", "cpu", "--per-device", 2) for folder in folders]
    try:
        for process in processes:
            said = process.communicate(timeout=LIMIT_S)[1]
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    assert table(folders[0]) == table(folders[1])
    for folder in folders:
        assert states(folder) == ["done"] * 4
        assert [starts(run) for run in (folder / "trials").iterdir()] == [1] * 4


def test_a_stop_saves_the_trials_and_says_how_to_continue(tmp_path):
    folder = tmp_path / "long"
    process = start("sweep", *SMALL, "--output", folder, *sets(train__steps=100000), *RATES,
                    "--trials", 2, "--per-device", 2)
    try:
        wait_for(lambda: sum(map(is_training, children(process.pid))) == 2)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=LIMIT_S)[1]
    finally:
        process.kill()
    assert process.returncode == 75 and f"continue with: trainer sweep --resume {folder}" in said
    assert states(folder) == ["stopped"] * 2
    for run in (folder / "trials").iterdir():
        assert latest_checkpoint(run).is_dir()


def test_a_trial_that_fails_is_marked_and_the_others_continue(tmp_path):
    done = trainer("sweep", *SMALL, "--output", tmp_path / "s", *sets(train__steps=4, precision__mode="fp32"),
                   "--vary", "optimizer.learning_rate=0.01,1e30")
    assert done.returncode == 0, done.stderr
    good, bad = status(tmp_path / "s")["trials"]
    assert good["state"] == "done" and bad["state"] == "failed"
    assert "trial 2: the loss of step" in bad["reason"] and bad["failures"] == 1  # NaN stays NaN
    assert "the loss of step" in done.stdout


def test_a_trial_that_may_pass_is_tried_once_more(tmp_path):
    done = trainer("sweep", *SMALL, "--output", tmp_path / "s", *sets(train__steps=4),
                   "--vary", "model.hidden=16,65536", *sets(device__memory_gib=0.05, model__depth=2))
    assert done.returncode == 0, done.stderr
    good, bad = status(tmp_path / "s")["trials"]
    assert good["state"] == "done" and bad["state"] == "failed"
    assert bad["failures"] == 2 and "trying once more" in done.stderr and "given up" in done.stderr
    assert f"trainer sweep --resume {tmp_path / 's'} tries them again" in done.stderr
    again = trainer("sweep", "--resume", tmp_path / "s")
    assert again.returncode == 0 and "trial 2" in again.stderr and "trying once more" in again.stderr
    assert [trial["failures"] for trial in status(tmp_path / "s")["trials"]] == [0, 2]


def test_what_a_trial_has_found_is_shown_before_its_end_and_after_a_cancel(tmp_path):
    folder = tmp_path / "s"
    process = start("sweep", *SMALL, "--output", folder, *sets(train__steps=100000), *RATES, "--trials", 1)
    try:
        wait_for(lambda: (folder / "trials/0001/metrics.jsonl").exists() and evaluations(folder / "trials/0001"))
        running = status(folder)["trials"][0]
        assert running["state"] == "running" and running["metric"] > 0 and running["step"] > 0
        assert trainer("sweep", "cancel", folder).returncode == 0
        said = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    cancelled = status(folder)["trials"][0]
    best = max(line["eval_top1"] for line in evaluations(folder / "trials/0001"))
    assert cancelled["state"] == "cancelled" and cancelled["metric"] == pytest.approx(best), said
    assert float((folder / "trials.csv").read_text().splitlines()[1].split(",")[2]) == pytest.approx(best)


def test_the_line_that_continues_a_sweep_can_be_called(tmp_path):
    process = start("sweep", *SMALL, "--output", tmp_path / "s", *sets(train__steps=100000), *RATES, "--trials", 1,
                    "--set", 'telemetry.exec=["sh", "-c", "cat > /dev/null"]')
    try:
        wait_for(lambda: any(map(is_training, children(process.pid))))
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LIMIT_S)[1]
    finally:
        process.kill()
    assert f"continue with: trainer sweep --resume {tmp_path / 's'} --trust-library" in said


@pytest.mark.parametrize("args, words", [
    ([], "--vary is missing"),
    (["--vary", "optimizer.learning_rat=1e-3..1e-1"], "did you mean 'learning_rate'"),
    (["--vary", "model.hidden"], "expected a key and its values"),
    (["--vary", "model.hidden="], "expected a key and its values"),
    (["--vary", "model.hidden=8,,9"], "value 2 of the list is empty"),
    (["--vary", "model.hidden=8,eight"], "model.hidden=eight"),
    (["--vary", "model.hidden=0.5..2"], "the key takes whole numbers"),
    (["--vary", "model.hidden=9..3"], "expected the lower end first"),
    (["--vary", "optimizer.momentum=0.5..2", "--trials", "3"], "optimizer.momentum="),
    (["--vary", "optimizer.learning_rate=0..1:log"], "above 0"),
    (["--vary", "optimizer.learning_rate=1..2:lin"], "found ':lin'"),
    (["--vary", "optimizer.learning_rate=1..2", "--search", "grid"], "a grid takes lists"),
    (["--vary", "model.hidden=8,9", "--search", "tpe"], "expected grid, random or sobol"),
    (["--vary", "model.hidden=8,9", "--trials", "3"], "has 2 combinations"),
    (["--vary", "model.hidden=8,9", "--vary", "model.hidden=7"], "given twice"),
    (["--vary", "device.select=cpu,0"], "give --devices"),
    (["--vary", "sweep.trials=1,2"], "how the sweep searches"),
    (["--vary", "model.hidden=8,9", "--per-device", "0"], "from 1 to 256"),
    (["--vary", "model.hidden=8,9", *sets(eval__enabled=False)], "a sweep compares evaluations"),
    (["--vary", "model.hidden=8,9", "--asha", *sets(train__epochs=2, eval__every_epochs=2)], "before the first rung"),
    (["--vary", "model.hidden=8,9", "--asha", "--min-epochs", "3"], "multiple of [eval] every_epochs"),
    (["--vary", "train.epochs=20,40", "--asha"], "same rungs"),
    (["--resume", "elsewhere"], "does not go with --resume"),
    (["--vary", "model.hidden=8,9", "--slurm", "--kubernetes"], "leave one out"),
])
def test_wrong_requests_end_before_anything_runs(args, words, tmp_path):
    done = trainer("sweep", *SMALL, *args, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_key_is_named_by_what_gave_it(random_sweep, tmp_path):
    (tmp_path / "search.toml").write_text(f'extends = "{DIGITS}"\n[sweep]\nvary = ["optimizer.learning_rat=1,2"]\n')
    for args, named in ((["sweep", *SMALL, "--vary", "optimizer.learning_rat=1,2"], "--vary optimizer.learning_rat=1"),
                        (["sweep", *SMALL, *sets(optimizer__learning_rat=1), *RATES], "--set optimizer.learning_rat=1"),
                        (["sweep", "search.toml"], "vary optimizer.learning_rat=1"),
                        (["sweep", "add", random_sweep, *sets(optimizer__learning_rat=1)],
                         "--set optimizer.learning_rat=1")):
        done = trainer(*args, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error[recipe]: {named}: unknown key 'learning_rat' in [optimizer]; did you mean")


def test_folders_that_are_no_sweeps_are_refused(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "sweep.db").write_text("no database, but long enough to be looked at\n" * 40)
    (tmp_path / "other").mkdir()
    sqlite3.connect(tmp_path / "other" / "sweep.db").execute("CREATE TABLE sweep (key, value)").close()
    for folder in ("nowhere", "text", "other"):
        for command in (["status", folder], ["--resume", folder]):
            done = trainer("sweep", *command, cwd=tmp_path)
            assert done.returncode == 3 and folder in done.stderr, done.stderr
    refused = trainer("sweep", *SMALL, *RATES, "--output", tmp_path / "other")
    assert refused.returncode == 2 and "holds a sweep already" in refused.stderr
    refused = trainer("sweep", *SMALL, *RATES, "--output", tmp_path)
    assert refused.returncode == 2 and "expected a new or an empty folder" in refused.stderr


@pytest.fixture(scope="module")
def asha_sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asha") / "s"
    sweep(folder, *sets(train__epochs=4, eval__every_epochs=1), "--vary",
          "optimizer.learning_rate=1e-4,1e-3,1e-2,1e-1", "--asha", "--reduction", 2)
    return folder


def test_asha_continues_only_the_best(asha_sweep):
    trials = status(asha_sweep)["trials"]
    assert [trial["rungs"][0]["step"] for trial in trials] == [23] * 4  # one epoch each
    reached = [len(trial["rungs"]) for trial in trials]
    by_first = sorted(range(4), key=lambda i: -trials[i]["rungs"][0]["top1"])
    assert reached[by_first[0]] == 3 and trials[by_first[0]]["state"] == "done"
    assert trials[by_first[0]]["step"] == 4 * 23
    assert reached[by_first[-1]] == 1 and trials[by_first[-1]]["state"] == "paused"
    assert sum(reached) < 12
    for trial in trials:  # a paused one's too is the whole run's
        recipe = (asha_sweep / "trials" / f"{trial['trial']:04}" / "recipe.toml").read_text()
        assert "epochs = 4\n" in recipe and "steps = 23" not in recipe


TOKENS = """[model]
name = "gpt"
layers = 1
heads = 2
width = 16
[data]
kind = "synthetic_tokens"
samples = 80
[batch]
global = 8
[optimizer]
name = "sgd"
[train]
epochs = 4
[eval]
every_epochs = 1
"""


def test_asha_compares_what_trials_are_now(tmp_path):
    (tmp_path / "tokens.toml").write_text(TOKENS)
    done = trainer("sweep", tmp_path / "tokens.toml", "--asha", "--reduction", 2, "--output", tmp_path / "s",
                   "--vary", "optimizer.learning_rate=3,1,0.1,0.03")
    assert done.returncode == 0, done.stderr
    has_worsened = False
    for trial in status(tmp_path / "s")["trials"]:
        losses = {line["step"]: line["eval_loss"] for line in evaluations(tmp_path / "s/trials" / f"{trial['trial']:04}")}
        for rung in trial["rungs"][:2]:  # the last one has the best
            assert rung["loss"] == pytest.approx(losses[rung["step"]])
            has_worsened |= rung["loss"] > min(loss for step, loss in losses.items() if step < rung["step"] + 1)
    assert has_worsened


def test_a_paused_trial_equals_an_undisturbed_run(asha_sweep, tmp_path):
    done = next(trial for trial in status(asha_sweep)["trials"] if trial["state"] == "done")
    run = asha_sweep / "trials" / f"{done['trial']:04}"
    earlier = json.loads((run / "run.json").read_text())["earlier"]
    assert len(earlier) == 2  # it has paused twice
    again = trainer("train", run / "recipe.toml", "--output", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert "plan: 92 steps" in again.stderr
    assert_same_tensors(latest_checkpoint(tmp_path / "again"), latest_checkpoint(run))
    assert [line["eval_top1"] for line in evaluations(run)] == [
        line["eval_top1"] for line in evaluations(tmp_path / "again")]


def test_a_file_may_hold_the_search_and_options_override_it(tmp_path):
    (tmp_path / "search.toml").write_text(
        f'extends = "{DIGITS}"\n[train]\nsteps = 2\n[sweep]\nsearch = "sobol"\ntrials = 9\n'
        'vary = ["optimizer.learning_rate=0.1..0.9", "optimizer.momentum=0.1..0.9"]\n')
    done = trainer("sweep", "search.toml", "--trials", 4, "--output", "s", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["search"] == "sobol" and len(shown["trials"]) == 4
    for key in ("optimizer.learning_rate", "optimizer.momentum"):  # one point in each quarter
        values = [float(trial["settings"][key]) for trial in shown["trials"]]
        assert sorted(int((value - 0.1) / 0.2) for value in values) == [0, 1, 2, 3], values
    (tmp_path / "wrong.toml").write_text(f'extends = "{DIGITS}"\n[sweep]\ntrails = 9\n')
    refused = trainer("sweep", "wrong.toml", cwd=tmp_path)
    assert refused.returncode == 2 and "wrong.toml:3:1: unknown key 'trails'" in refused.stderr
    assert "did you mean 'trials'" in refused.stderr
    assert trainer("recipe", "check", "search.toml", cwd=tmp_path).stdout == "search.toml: valid\n"
    (tmp_path / "wrong.toml").write_text(f'extends = "{DIGITS}"\n[sweep]\nvary = ["model.hidden=9..3"]\n')
    checked = trainer("recipe", "check", "wrong.toml", cwd=tmp_path)
    assert checked.returncode == 2 and "expected the lower end first" in checked.stderr
    trained = trainer("train", "search.toml", "--dry-run", cwd=tmp_path)
    assert trained.returncode == 2 and "trainer sweep" in trained.stderr


def test_a_watched_sweep_says_once_that_no_process_runs_it(tmp_path):
    folder, shown, said = tmp_path / "s", tmp_path / "shown", tmp_path / "said"

    def wait_for_tables(more):
        count = shown.read_text().count("0 of 1 trial")
        wait_for(lambda: shown.read_text().count("0 of 1 trial") >= count + more)

    def begin_and_kill(*args):
        process = start("sweep", *args)
        try:
            wait_for(lambda: any(map(is_training, children(process.pid))))
            if shown.exists():
                wait_for_tables(2)
        finally:
            process.kill()
            process.communicate()

    begin_and_kill(*SMALL, "--output", folder, *sets(train__steps=100000), *RATES, "--trials", 1)
    with shown.open("w") as stdout, said.open("w") as stderr:
        watch = subprocess.Popen([TRAINER, "sweep", "status", folder, "--watch"], env=environment(), stdout=stdout,
                                 stderr=stderr)
    try:
        line = f"brim: no process runs this sweep; trainer sweep --resume {folder} continues it\n"
        wait_for_tables(3)
        assert said.read_text() == line
        begin_and_kill("--resume", folder)
        wait_for_tables(3)
        assert said.read_text() == 2 * line
    finally:
        watch.kill()
        watch.wait()


def test_another_terminal_pauses_adds_and_cancels(tmp_path):
    folder = tmp_path / "s"
    process = start("sweep", *SMALL, "--output", folder, *sets(train__steps=100000), *RATES, "--trials", 1)
    try:
        wait_for(lambda: any(map(is_training, children(process.pid))))
        assert trainer("sweep", "pause", folder).returncode == 0
        wait_for(lambda: states(folder) == ["stopped"])
        assert children(process.pid) == []
        added = trainer("sweep", "add", folder, *sets(optimizer__learning_rate=0.5, train__steps=2))
        assert added.returncode == 0 and "1 trial added" in added.stderr, added.stderr
        assert trainer("sweep", "resume", folder).returncode == 0
        wait_for(lambda: any(map(is_training, children(process.pid))))
        assert trainer("sweep", "cancel", folder).returncode == 0
        said = process.communicate(timeout=LIMIT_S)[1]
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert states(folder) == ["cancelled"] * 2
    idle = trainer("sweep", "pause", folder)
    assert idle.returncode == 5 and f"trainer sweep --resume {folder} continues it" in idle.stderr
    assert trainer("sweep", "add", folder, *sets(train__steps=2)).returncode == 0
    assert trainer("sweep", "--resume", folder).returncode == 0
    assert states(folder) == ["cancelled", "cancelled", "done"]


def test_more_draws_continue_the_search(random_sweep, tmp_path):
    for words, settings in (("did you mean 'learning_rate'", ["optimizer.learning_rat=1"]),
                            ("a sweep compares evaluations", ["eval.enabled=false"]),
                            ("momentum is given twice", ["optimizer.momentum=0.1", "optimizer.momentum=0.2"])):
        refused = trainer("sweep", "add", random_sweep, *(f"--set={setting}" for setting in settings))
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr
    args = [*SMALL, *sets(train__steps=1), *RATES, "--vary", "optimizer.momentum=0.8,0.9"]
    assert trainer("sweep", *args, "--trials", 1, "--output", tmp_path / "s").returncode == 0
    assert trainer("sweep", "add", tmp_path / "s", "--trials", 2).returncode == 0
    drawn = [trial["settings"] for trial in status(tmp_path / "s")["trials"]]
    assert drawn == [trial["settings"] for trial in status(random_sweep)["trials"]][:3]
    at_once = [start("sweep", "add", tmp_path / "s", "--trials", 20) for _ in range(3)]
    assert [process.wait(LIMIT_S) for process in at_once] == [0] * 3
    drawn = [str(trial["settings"]) for trial in status(tmp_path / "s")["trials"]]
    assert len(drawn) == len(set(drawn)) == 63


@pytest.mark.parametrize("devices, ranks", [("cpu", 2), ("cpu,cpu", 1)])
def test_a_trial_has_the_ranks_that_are_asked_for(tmp_path, devices, ranks):
    done = trainer("sweep", *SMALL, *sets(train__steps=2), "--vary", "model.hidden=8",
                   "--devices", devices, "--devices-per-trial", ranks, "--output", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "s" / "trials" / "0001" / "run.json").read_text())
    assert record["ranks"] == ranks


def test_the_page_shows_names_as_text(tmp_path):
    sweep(tmp_path / "s", *sets(train__steps=2, model__hidden=8, run__name="<b>&x"), "--vary", 'run.name="<i>a"')
    page = (tmp_path / "s" / "sweep.html").read_text()
    assert "&lt;b&gt;&amp;x" in page and "&lt;i&gt;a" in page and "<b>&x" not in page and "<i>a" not in page
    assert page.count("<polyline") == 1 and "name = &quot;&lt;i&gt;" in page
    axes = re.findall(r'class="name">([^<]*)</text>', page[page.index('class="trials"'):])
    assert axes == ["run.name", "top1"]  # from the settings to the metric
    assert "http" not in page.replace("http-equiv", "")


def test_a_library_that_came_with_a_sweep_is_not_loaded(tmp_path):
    folder = tmp_path / "s"
    sweep(folder, *sets(train__steps=1), "--vary", "model.hidden=8")
    library = folder / "libown.so"
    library.write_text("no library")
    database = sqlite3.connect(folder / "sweep.db")
    database.execute("UPDATE trial SET state = 'waiting', recipe = replace(recipe, 'library = \"\"', ?)",
                     [f'library = "{library}"'])
    database.commit()
    database.close()
    refused = trainer("sweep", "--resume", folder)
    assert refused.returncode == 2 and "--trust-library" in refused.stderr, refused.stderr


@pytest.fixture
def on_gpus(tmp_path):
    """Starts a sweep of two learning rates on three made-up GPUs, whose trials then run on the CPU."""
    gpus = Gpus(tmp_path, 3)
    more = gpus.environment(BRIM_GPU_LOCK_FOLDER=str(tmp_path / "locks"))

    def begin(*args):
        return subprocess.Popen(
            [TRAINER, "sweep", *map(str, SMALL), *sets(train__steps=2, device__fallback="cpu"), "--vary",
             "optimizer.learning_rate=0.01,0.02", "--output", tmp_path / "s", *args],
            env={**environment(), **more}, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def used():
        records = [json.loads((run / "run.json").read_text()) for run in sorted((tmp_path / "s/trials").iterdir())]
        return [record["environment"]["CUDA_VISIBLE_DEVICES"] for record in records]
    return gpus, begin, used


def test_a_gpu_that_others_have_is_waited_for(on_gpus, tmp_path):
    gpus, begin, used = on_gpus
    gpus.set(g0_busy=99, g1_busy=99)
    (tmp_path / "locks").mkdir()
    with open(tmp_path / "locks" / "GPU-2aaa-bbb", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = begin()
        try:
            line = ""
            while "waiting: " not in line:
                line = process.stderr.readline()
            assert "at work 99 % of the time" in line and "GPU 2 (NVIDIA Fake): taken by another run" in line
            fcntl.flock(held, fcntl.LOCK_UN)
            said = process.communicate(timeout=LIMIT_S)[1]
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert used() == ["GPU-2aaa-bbb"] * 2


def test_gpus_are_kept_free_for_others(on_gpus, tmp_path):
    gpus, begin, used = on_gpus
    process = begin("--keep-free", "2", "--devices-per-trial", "2")
    assert "expected 4 GPUs, found 3" in process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 5 and not (tmp_path / "s").exists()
    gpus.set(g0_busy=5)  # idle, though less so than the others
    process = begin("--keep-free", "2")
    assert process.communicate(timeout=LIMIT_S) and process.returncode == 0
    assert used() == ["GPU-1aaa-bbb"] * 2  # one after the other
