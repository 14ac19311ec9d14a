"""trainer doctor RUN --prove: what data costs a run, without a trace in its folder."""
import json
import re
import shutil
import subprocess

import pytest

from slow_data import SLOW_RECIPE, make_large_images
from trainer import DIGITS, LIMIT_S, TRAINER, environment, sets, trainer


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory):
    root = tmp_path_factory.mktemp("slow")
    make_large_images(root / "images")
    (root / "slow.toml").write_text(SLOW_RECIPE)
    done = trainer("--recipe", root / "slow.toml", "--output", root / "run")
    assert done.returncode == 0, done.stderr
    return root / "run"


def everything_in(folder):
    return {path.relative_to(folder): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
            for path in folder.rglob("*")}


# On a busy machine the run's own record may know of less.
COST = "data(, or what else ran beside the steps,)? costs you"


def test_data_that_costs_is_told_with_its_share(slow_run):
    before = everything_in(slow_run)
    done = trainer("doctor", slow_run, "--prove", "--json")
    assert done.returncode == 0, done.stderr
    assert everything_in(slow_run) == before
    report = json.loads(done.stdout)
    proof = report["proof"]
    # A model of a few thousand weights against images of 4 megapixels.
    assert proof["ceiling_per_s"] > 2 * proof["run_per_s"] > 0
    assert proof["gap"] == pytest.approx(1 - proof["run_per_s"] / proof["ceiling_per_s"])
    assert re.match(f"{COST} {100 * proof['gap']:.0f} %: ", proof["message"])
    assert proof["ranks"] == 1 and 5 <= proof["steps"]
    assert report["too_short"]  # the rules say nothing of seconds; the proof measures


def test_people_read_it_below_the_verdict(slow_run):
    done = trainer("doctor", slow_run, "--prove")
    assert done.returncode == 0, done.stderr
    proof = done.stdout.splitlines()[-1]
    assert re.match("proof    " + COST, proof)
    assert "too short to judge by" in done.stdout and "the run is too short to compare by" in proof
    assert "proof" not in trainer("doctor", slow_run).stdout


def test_another_host_is_not_compared(slow_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(slow_run, run)
    record = json.loads((run / "run.json").read_text())
    record["machine"]["host"] = "elsewhere"
    (run / "run.json").write_text(json.dumps(record))
    proof = json.loads(trainer("doctor", run, "--prove", "--json").stdout)["proof"]
    assert proof["gap"] is None and "was on host elsewhere" in proof["message"]


def test_several_ranks_are_that_many_times_one(tmp_path):
    run = tmp_path / "run"
    done = trainer("--recipe", DIGITS, "--output", run, "--devices", "cpu,cpu",
                   *sets(train__epochs=2, batch__global=64))
    assert done.returncode == 0, done.stderr
    proof = json.loads(trainer("doctor", run, "--prove", "--json").stdout)["proof"]
    assert proof["ranks"] == 2 and "on 2 ranks" in proof["message"]


def test_bad_usage_is_refused(slow_run, tmp_path):
    both = trainer("doctor", slow_run, "--prove", "--watch")
    assert both.returncode == 2 and "don't go together" in both.stderr
    run = tmp_path / "run"
    shutil.copytree(slow_run, run)
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("images", "gone"))
    gone = trainer("doctor", run, "--prove")
    assert gone.returncode == 3 and "gone" in gone.stderr
    (run / "recipe.toml").unlink()
    nothing = trainer("doctor", run, "--prove")
    assert nothing.returncode == 3 and "recipe.toml" in nothing.stderr
    ranks = dict(environment(), RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2",
                 MASTER_ADDR="localhost", MASTER_PORT="1")
    launched = subprocess.run([TRAINER, "doctor", slow_run, "--prove"], env=ranks, text=True,
                              capture_output=True, timeout=LIMIT_S)
    assert launched.returncode == 2 and "without a launcher" in launched.stderr
