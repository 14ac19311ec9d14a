"""precision.fused = "auto": the faster form of an operation is measured once and kept."""
import json
import os
import subprocess

import pytest

from trainer import (DIGITS, LIMIT_S, SOURCE, TRAINER, assert_same_tensors, environment, latest_checkpoint, metrics,
                     sets, trainer)

JOB = ["--recipe", DIGITS,
       *sets(model__name="small_cnn", model__width=16, batch__global=16, train__steps=6, precision__mode="fp32",
             eval__every_epochs=100, telemetry__every_steps=1, data__workers=1, checkpoint__every_steps=3,
             checkpoint__keep=9)]


def train(cache, run, *args, job=JOB):
    done = trainer(*job, "--output", run, *args, XDG_CACHE_HOME=str(cache))
    assert done.returncode == 0, done.stderr
    return done.stderr


def forms(run):
    return json.loads((run / "run.json").read_text())["forms"]


def losses(run):
    return [line["loss"] for line in metrics(run) if "loss" in line]


def turned_over(cache):
    """As if every measurement had come out the other way."""
    (file,) = (cache / "brim" / "forms").iterdir()
    lines = [line.split("\t") for line in file.read_text().splitlines() if line]
    file.write_text("".join(f"{name}\t{plain}\t{fused}\t{end}\n" for name, fused, plain, end in lines))


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    train(folder / "cache", folder / "run")
    return folder


def test_the_run_says_what_was_measured_and_taken(first):
    taken = forms(first / "run")
    assert any(name.startswith("batch norm, ReLU Float[16,16,8,8]") for name in taken), list(taken)
    for form in taken.values():
        assert form["taken"] == ("fused" if form["fused_s"] <= 1.02 * form["plain_s"] else "plain")


def test_a_second_run_goes_by_the_same_measurements(first, tmp_path):
    train(first / "cache", tmp_path / "run")
    assert forms(tmp_path / "run") == forms(first / "run")
    assert losses(tmp_path / "run") == losses(first / "run")


def test_a_resumed_run_keeps_its_forms(first, tmp_path):
    """Though by now the file says otherwise, and goes by it where a run is new."""
    subprocess.run(["cp", "-r", first / "cache", first / "run", tmp_path], check=True)
    turned_over(tmp_path / "cache")
    resumed, fresh = tmp_path / "run", tmp_path / "fresh"
    (resumed / "checkpoints" / "latest").write_text("step-00000003\n")
    train(tmp_path / "cache", resumed, "--resume", "auto")
    train(tmp_path / "cache", fresh)
    assert losses(resumed) == losses(first / "run")
    assert_same_tensors(latest_checkpoint(resumed), latest_checkpoint(first / "run"))
    by_file = forms(fresh)
    for name, form in forms(first / "run").items():
        assert forms(resumed)[name] == form
        assert (by_file[name]["fused_s"], by_file[name]["plain_s"]) == (form["plain_s"], form["fused_s"])


def test_two_ranks_go_by_one_measurement(tmp_path):
    """Both come to each shape at the same moment."""
    environ = {**environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([TRAINER.with_name("trainrun"), "--nproc-per-node=2", TRAINER, *map(str, JOB), "--output",
                           tmp_path / "run"], env=environ, text=True, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "cache" / "brim" / "forms").iterdir()
    names = [line.split("\t")[0] for line in file.read_text().splitlines() if line]
    assert len(names) == len(set(names)) > 0
    assert forms(tmp_path / "run").keys() <= set(names)


@pytest.mark.parametrize("spoil", [
    lambda folder: folder.write_text("in the way"),
    lambda folder: os.symlink("/proc/nowhere", folder),
])
def test_a_cache_that_can_not_be_had_costs_nothing(tmp_path, spoil):
    spoil(tmp_path / "cache")
    train(tmp_path / "cache", tmp_path / "run")
    assert forms(tmp_path / "run")


@pytest.mark.parametrize("change", ["precision.fused=true", "precision.fused=false", "run.deterministic=true"])
def test_without_auto_nothing_is_measured(change, tmp_path):
    train(tmp_path / "cache", tmp_path / "run", "--set", change)
    assert forms(tmp_path / "run") == {}
    assert not list((tmp_path / "cache").rglob("*.tsv"))


@pytest.mark.parametrize("mode", ["fp16", "bf16"])
@pytest.mark.parametrize("model", ["small_vit", "convnext_tiny"])
def test_models_with_gelu_train_in_every_precision(tmp_path, model, mode):
    images = sets(data__height=32, data__width=32, data__classes=10, data__samples=16)
    train(tmp_path / "cache", tmp_path / "run", *images, *sets(model__name=model, precision__mode=mode),
          job=["--recipe", SOURCE / "benchmarks" / "step.toml", *sets(batch__global=2, train__steps=2)])


def test_other_words_are_refused(tmp_path):
    done = trainer(*JOB, "--set", 'precision.fused="fast"', "--output", tmp_path / "run")
    assert done.returncode == 2
    assert "expected true, false or \"auto\"" in done.stderr
