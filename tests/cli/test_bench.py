"""trainer bench and trainer compare, on real runs of a few steps. Nothing here expects a speed."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from trainer import DIGITS, TRAINER, environment, sets, trainer

SMALL = ["--recipe", DIGITS, "--steps", "8"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A sweep of two keys, with its file and a baseline."""
    root = tmp_path_factory.mktemp("bench")
    done = trainer("bench", *SMALL, "--repeats", 2, "--sweep", "batch.micro=32,64",
                   "--sweep", "model.hidden=16,32", "--out", root / "F.json",
                   "--save-baseline", "small", cwd=root)
    assert done.returncode == 0, done.stderr
    return root, done, json.loads((root / "F.json").read_text())


def own_temporary_folders(root):
    return list(pathlib.Path(root).glob("brim-bench-*"))


def test_every_combination_is_measured_in_turn(bench):
    _, done, file = bench
    names = [variant["name"] for variant in file["variants"]]
    assert names == ["batch.micro=32, model.hidden=16", "batch.micro=32, model.hidden=32",
                     "batch.micro=64, model.hidden=16", "batch.micro=64, model.hidden=32"]
    runs = [line.split(": ")[2] for line in done.stderr.splitlines() if line.startswith("brim: run ")]
    assert runs == names + names[1:] + names[:1]  # the second round begins with the second variant
    assert [v["job"]["micro_batch"] for v in file["variants"]] == [32, 32, 64, 64]
    assert file["variants"][0]["job"]["parameters"] < file["variants"][1]["job"]["parameters"]


def test_the_file_holds_what_was_measured(bench):
    root, _, file = bench
    for variant in file["variants"]:
        assert len(variant["runs"]) == 2 and variant["steps"] == 8
        for run in variant["runs"]:
            assert len(run["step_s"]) == 8 and all(seconds > 0 for seconds in run["step_s"])
            mean = sum(run["step_s"]) / 8
            assert sum(run["phases_s"].values()) == pytest.approx(mean, rel=0.005)
            assert run["samples_per_s"] == pytest.approx(run["samples_per_step"] / mean, rel=1e-6)
            assert run["peak_bytes"] > 0 and run["resident_peak_bytes"] > 2**20
            assert run["first_step_s"] > 0 and "others_cores" in run["conditions"]
        metrics = sorted(run["samples_per_s"] for run in variant["runs"])
        summary = variant["summary"]
        assert summary["samples_per_s"] == pytest.approx(sum(metrics) / 2)
        assert [summary["interval"]["low"], summary["interval"]["high"]] == pytest.approx(metrics)
        assert summary["interval"]["confidence"] == 0.5  # of two runs
        assert 0 < summary["step_p50_s"] <= summary["step_p95_s"]
    environment_ = file["environment"]
    machine = environment_["machine"]
    assert 1 <= machine["usable_cores"] <= machine["cores"] and environment_["build"]["commit"]
    assert environment_["libraries"] == {"libtorch": "2.11.0"} and environment_["device"] == "cpu"
    assert environment_["build"]["flags"] and environment_["build"]["compiler"]
    assert (root / "benchmarks/baselines/small.json").read_text() == (root / "F.json").read_text()


def test_the_table_names_what_makes_it_doubtful(bench):
    _, done, _ = bench
    assert done.stdout.splitlines()[0].split()[:2] == ["variant", "samples/s"]
    assert "note: the interval is the range of 2 runs" in done.stdout
    assert "backward" in done.stdout


def test_no_evaluation_no_checkpoint_and_no_run_is_left(tmp_path):
    place = tmp_path / "tmp"
    place.mkdir()
    env = dict(environment(), TMPDIR=str(place))
    done = subprocess.run([TRAINER, "bench", *map(str, SMALL), "--repeats", "1", "--json"], env=env,
                          cwd=tmp_path, text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr
    phases = json.loads(done.stdout)["variants"][0]["runs"][0]["phases_s"]
    assert phases["evaluation"] == 0 and phases["checkpoint"] == 0
    assert list(place.iterdir()) == [] and list(tmp_path.iterdir()) == [place]


def test_a_replay_needs_nothing_but_its_file(bench, tmp_path):
    root, _, file = bench
    one = {**file, "variants": file["variants"][:1]}
    (tmp_path / "F.json").write_text(json.dumps(one))
    done = trainer("bench", "--replay", "F.json", "--repeats", 1, "--out", "G.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = json.loads((tmp_path / "G.json").read_text())["variants"]
    assert [v["name"] for v in again] == [file["variants"][0]["name"]]
    jobs = [again[0]["job"], file["variants"][0]["job"]]
    assert all(job.pop("peak_flops") > 0 for job in jobs)  # measured each time
    assert jobs[0] == jobs[1] and again[0]["steps"] == 8
    assert "too noisy to say" in done.stdout  # of one run nothing can be said
    assert "no interval" not in done.stdout and "interval" in done.stdout.splitlines()[0]
    assert re.search(r"to measure: 1 run of \d+ steps", done.stderr), done.stderr
    for more in (["--recipe", DIGITS], ["--data", "real"], ["--sweep", "batch.micro=1"]):
        refused = trainer("bench", "--replay", "F.json", *more, cwd=tmp_path)
        assert refused.returncode == 2 and "does not go with --replay" in refused.stderr


def test_synthetic_data_have_the_shape_of_the_real(tmp_path):
    done = trainer("bench", *SMALL, "--repeats", 1, "--data", "synthetic", "--out", tmp_path / "F.json")
    assert done.returncode == 0, done.stderr
    variant = json.loads((tmp_path / "F.json").read_text())["variants"][0]
    assert 'kind = "synthetic"' in variant["recipe"] and "height = 8" in variant["recipe"]
    assert variant["job"]["parameters"] == 85002


def test_data_that_are_not_there_are_stood_in_for(tmp_path):
    recipe = tmp_path / "folder.toml"
    recipe.write_text('[model]\nname = "mlp"\nhidden = 8\ndepth = 1\n'
                      '[data]\nkind = "image_folder"\nimage_size = 16\n'
                      '[data.train]\npath = "nowhere"\n[batch]\nglobal = 4\n[optimizer]\nname = "sgd"\n')
    real = trainer("bench", "--recipe", recipe, "--repeats", 1, "--steps", 4)
    assert real.returncode == 3 and "nowhere: cannot read the folder" in real.stderr
    done = trainer("bench", "--recipe", recipe, "--repeats", 1, "--steps", 4, "--data", "synthetic")
    assert done.returncode == 0, done.stderr
    assert "synthetic images of 16×16×3 in 1000 classes stand in" in done.stderr


@pytest.mark.parametrize("args, words", [
    (["--recipe", DIGITS, "--sweep", "batch.micor=8"], "did you mean 'micro'"),
    (["--recipe", DIGITS, "--sweep", "batch.micro="], "list of values is empty"),
    (["--recipe", DIGITS, "--sweep", "batch.micro=8,,9"], "value 2 of the list is empty"),
    (["--recipe", DIGITS, "--sweep", "batch.micro=8,eight"], "--set batch.micro=eight"),
    (["--recipe", DIGITS, "--sweep", "batch.micro=65"], "micro = 65 is more than global = 64"),
    (["--recipe", DIGITS, "--sweep", "train.steps=5"], "give --steps"),
    (["--recipe", DIGITS, "--repeats", "0"], "--repeats: expected a number from 1 to 100, found 0"),
    (["--recipe", DIGITS, "--steps", "0"], "--steps: expected a number from 1 to 100000, found 0"),
    (["--recipe", DIGITS, "--data", "fake"], "expected real or synthetic"),
    (["--recipe", "digist"], "did you mean 'digits'"),
    (["--recipe", DIGITS, "--save-baseline", "../x"], "expected a plain name"),
    ([], "--recipe is missing"),
])
def test_wrong_requests_end_before_anything_runs(args, words, tmp_path):
    done = trainer("bench", *args, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "brim: run" not in done.stderr and list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_found_before_anything_runs(tmp_path):
    done = trainer("bench", *SMALL, "--out", tmp_path / "no" / "F.json")
    assert done.returncode == 5 and "there is no folder" in done.stderr


def test_a_run_that_fails_passes_on_its_error_and_status(tmp_path):
    done = trainer("bench", *SMALL, "--repeats", 1,
                   *sets(optimizer__learning_rate=1e30, precision__mode="fp32"))
    assert done.returncode == 7 and "error[numeric]: digits: the loss of step" in done.stderr
    done = trainer("bench", *SMALL, "--repeats", 1, *sets(data__train__images=str(tmp_path / "gone.gz")))
    assert done.returncode == 3 and "error[data]: digits: " in done.stderr and "gone.gz" in done.stderr


def test_a_stop_ends_the_run_and_leaves_nothing(tmp_path):
    env = dict(environment(), TMPDIR=str(tmp_path))
    process = subprocess.Popen([TRAINER, "bench", *map(str, SMALL[:2]), "--steps", "90000", "--repeats", "9"],
                               env=env, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert "a step" in process.stderr.readline()  # the short run that comes first
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    assert process.returncode == 75 and "stopped on request after 0 of 9 runs" in said
    assert own_temporary_folders(tmp_path) == []


def test_results_are_compared(bench, tmp_path):
    _, _, file = bench

    def write(name, factor, runs=6):
        metrics = [factor * (1000 + i) for i in range(runs)]
        one = {**file["variants"][0], "runs": [{"samples_per_s": metric} for metric in metrics]}
        machine = {**file["environment"], "machine": {"cpu": name}}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**file, "variants": [one], "environment": machine}))
        return path

    here, slow, fast, few = write("here", 1), write("slow", 0.5), write("fast", 2), write("few", 1, 2)
    for other, status, verdict in [(here, 0, "same"), (slow, 10, "slower"), (fast, 0, "faster"),
                                   (few, 11, "too noisy to say")]:
        done = trainer("compare", here, other)
        assert done.returncode == status and f": {verdict}\n" in done.stdout, done.stdout + done.stderr
        report = trainer("compare", here, other, "--json")
        assert report.returncode == status
        assert json.loads(report.stdout)["variants"][0]["verdict"] == verdict
    assert 'differs: "machine/cpu": "here" in A, "slow" in B' in trainer("compare", here, slow).stdout
    assert trainer("compare", here, slow, "--margin", "0.6").returncode == 0


def test_results_are_kept_in_a_folder_and_compared_over_time(tmp_path):
    history = tmp_path / "history"
    history.mkdir()
    for _ in range(2):
        done = trainer("bench", *SMALL, "--repeats", 1, "--out", history)
        assert done.returncode == 0, done.stderr
    files = sorted(history.iterdir())
    assert len(files) == 2 and all(re.match(r"digits-\d{4}-\d\d-\d\dT[\d-]+\.json", file.name) for file in files)
    noisy = trainer("compare", history)
    assert noisy.returncode == 11 and "as fast as the one before it" in noisy.stdout, noisy.stdout + noisy.stderr

    (history / "linux").mkdir()
    file = json.loads(files[0].read_text())
    for path, day, factor in (("a.json", 24, 1), ("linux/b.json", 25, 0.5)):
        runs = [{"samples_per_s": factor * (1000 + i)} for i in range(5)]
        (history / path).write_text(json.dumps({**file, "started": f"2126-11-{day}T12:00:00+0000", "variants": [
            {**file["variants"][0], "name": "mine", "runs": runs}]}))
    slower = trainer("compare", history)
    assert slower.returncode == 10, slower.stdout + slower.stderr
    lines = slower.stdout.splitlines()
    assert lines[0].startswith("digits on cpu, ") and any(line.startswith("mine on cpu, ") for line in lines)
    assert "newest: 0.500× as fast as the one before it" in slower.stdout and lines[-1].endswith(": slower")
    shown = trainer("compare", history, "--json", "--margin", "0.6")
    assert shown.returncode == 0
    [kept, mine] = json.loads(shown.stdout)["trends"]
    assert [point["started"][:10] for point in mine["results"]] == ["2126-11-24", "2126-11-25"]
    assert mine["is_newest"] and not kept["is_newest"] and kept["results"][0]["low"] > 0

    (history / "z.json").write_text("{}")
    refused = trainer("compare", history)
    assert refused.returncode == 3 and "z.json" in refused.stderr
    (tmp_path / "empty").mkdir()
    assert trainer("compare", tmp_path / "empty").returncode == 3


def test_a_baseline_is_compared_with(bench):
    root, _, _ = bench
    done = trainer("compare", "--baseline", "small", "F.json", cwd=root)
    assert done.returncode == 11 and "1.000× as fast as A" in done.stdout  # two runs say nothing
    done = trainer("compare", "--baseline", "smal", "F.json", cwd=root)
    assert done.returncode == 2 and "did you mean 'small'" in done.stderr


def test_recipes_are_run_in_turn(tmp_path):
    done = trainer("compare", DIGITS, DIGITS, "--steps", 8, "--repeats", 4, cwd=tmp_path)
    assert done.returncode in (0, 10, 11), done.stderr
    sides = [line.split(": ")[2] for line in done.stderr.splitlines() if line.startswith("brim: run ")]
    assert sides == ["A", "B", "B", "A"] * 2
    assert f"B: {DIGITS} against A: {DIGITS}: " in done.stdout and list(tmp_path.iterdir()) == []
    assert "differs" not in done.stdout


def test_recipes_of_two_libraries_are_measured_apart(tmp_path):
    library = TRAINER.parent / "reading_net.so"
    shutil.copy(library, tmp_path / "other.so")
    for name, path in (("ours", library), ("theirs", tmp_path / "other.so")):
        (tmp_path / f"{name}.toml").write_text(
            f'extends = "digits"\n[model]\nname = "reading_net"\nlibrary = "{path}"\n')
    done = trainer("compare", "ours.toml", "theirs.toml", cwd=tmp_path)
    assert done.returncode == 2 and f"expected {library}, which this process has loaded already" in done.stderr, done.stderr
    assert "a command of its own, such as trainer bench" in done.stderr


@pytest.mark.parametrize("content, words", [
    ("", "not valid JSON"), ("{", "not valid JSON"), ("[]", "expected the file of a bench"),
    ('{"format": 1, "format": 2}', "given twice"), ("[" * 100, "nested at most 16 deep"),
    ('{"format": "brim bench 1"}', 'expected "environment"'), ("\0", "NUL byte"),
])
def test_files_of_another_kind_are_refused(content, words, tmp_path):
    (tmp_path / "x.json").write_text(content)
    for command in (["compare", "x.json", "x.json"], ["bench", "--replay", "x.json"]):
        done = trainer(*command, cwd=tmp_path)
        assert done.returncode == 3 and words in done.stderr, done.stderr


def test_wrong_comparisons_are_refused(bench, tmp_path):
    root, _, file = bench
    (tmp_path / "other.json").write_text(
        json.dumps({**file, "variants": [{**v, "name": v["name"] + "0"} for v in file["variants"]]}))
    for args, words in [([], "expected two files"), ([root / "F.json"], "found 1 of them"),
                        ([root / "F.json"] * 3, "found 3 of them"),
                        ([root / "F.json", tmp_path / "other.json"], "no variant in common"),
                        ([root / "F.json"] * 2 + ["--margin", "2"], "--margin: expected a share")]:
        done = trainer("compare", *args)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert trainer("compare", root / "F.json", tmp_path / "gone.json").returncode == 3


def test_a_bench_is_no_rank_of_a_launcher():
    launched = dict(environment(), RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2",
                    MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    done = subprocess.run([TRAINER, "bench", *map(str, SMALL)], env=launched, text=True,
                          capture_output=True, timeout=600)
    assert done.returncode == 2 and "starts its runs itself" in done.stderr


def test_runs_of_several_ranks_are_measured_whole(tmp_path):
    done = trainer("bench", *SMALL, "--repeats", 1, "--devices", "cpu,cpu", "--out", tmp_path / "F.json",
                   *sets(data__drop_last=True), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    file = json.loads((tmp_path / "F.json").read_text())
    assert file["environment"]["ranks"] == 2
    [variant] = file["variants"]
    assert 'select = "cpu,cpu"' in variant["recipe"]  # which is what is measured, and replayed
    assert variant["runs"][0]["samples_per_step"] == pytest.approx(64)


def test_a_recipe_whose_name_is_no_text_keeps_its_result(tmp_path):
    recipe = tmp_path / os.fsdecode(b"caf\xe9.toml")
    recipe.write_text('extends = "digits"\n')
    (tmp_path / "out").mkdir()
    done = trainer("bench", recipe, "--steps", 8, "--repeats", 1, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "out").iterdir()
    assert json.loads(file.read_text())["variants"]
