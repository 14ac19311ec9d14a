"""Batches as large as memory allows, and runs that outlive its end."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

from trainer import (TRAINER, assert_same_tensors, environment, evaluations, latest_checkpoint, metrics, sets,
                     trainer)

RECIPE = """
[model]
name = "{model}"
[data]
kind = "synthetic"
samples = 15000
height = 8
width = 8
eval_samples = 8
[batch]
global = 7500
[precision]
mode = "fp32"
fused = true
[optimizer]
name = "{optimizer}"
[train]
steps = 2
[telemetry]
every_steps = 1
"""

NARROW = {"mlp": {"model__hidden": 256, "model__dropout": 0.1}, "small_cnn": {"model__width": 16}}


@pytest.fixture
def train(tmp_path):
    """train(folder, model, **sets): the run's folder and what it said."""
    def run(folder, model="mlp", optimizer="sgd", **values):
        recipe = tmp_path / f"{model}.toml"
        recipe.write_text(RECIPE.format(model=model, optimizer=optimizer))
        values = {**NARROW.get(model, {}), **values}
        result = trainer("--recipe", recipe, "--output", tmp_path / folder, *sets(**values))
        return tmp_path / folder, result
    return run


def losses(run):
    return [line["loss"] for line in metrics(run) if "loss" in line]


def micro_of(run):
    text = (run / "recipe.toml").read_text()
    return int(re.search(r"^micro = (\d+)$", text, re.M).group(1))


@pytest.mark.parametrize("model, optimizer, memory_gib", [("mlp", "adamw", 0.05), ("small_cnn", "sgd", 0.05)])
def test_a_tuned_run_is_the_run_with_that_size_in_its_recipe(train, model, optimizer, memory_gib):
    tuned, result = train("tuned", model, optimizer, device__memory_gib=memory_gib, batch__micro="auto",
                          train__ema=0.9)
    assert result.returncode == 0, result.stderr
    micro = micro_of(tuned)
    assert 8 < micro < 7500 and micro % 8 == 0
    # Where the size is part of what is learned, that is said and recorded.
    assert (f"batch norms see {micro:,} samples at a time" in result.stderr) == (model == "small_cnn")
    record = json.loads((tuned / "run.json").read_text())
    assert record["job"]["batch_statistics"] == record["tuning"]["batch_statistics"] == (model == "small_cnn")
    plain, result = train("plain", model, optimizer, batch__micro=micro, train__ema=0.9)
    assert result.returncode == 0, result.stderr
    assert_same_tensors(latest_checkpoint(tuned), latest_checkpoint(plain))
    assert losses(tuned) == losses(plain)
    # Its peak is not that of the search, some of whose sizes did not fit.
    peaks = [json.loads((run / "run.json").read_text())["memory"]["peak_bytes"] for run in (tuned, plain)]
    assert peaks[0] < 1.02 * peaks[1]


def test_the_tuned_size_fills_the_cap_and_more_would_not_fit(train):
    small = {"data__height": 6, "data__width": 6, "device__memory_gib": 0.1}
    run, result = train("run", batch__micro="auto", batch__global=15000, **small)
    assert result.returncode == 0, result.stderr
    record = json.loads((run / "run.json").read_text())["tuning"]
    chosen = [probe for probe in record["probes"] if probe["micro"] == record["micro"]][0]
    assert chosen["fits"] and chosen["peak_bytes"] >= 0.92 * chosen["cap_bytes"]
    assert abs(chosen["predicted_bytes"] - chosen["peak_bytes"]) <= 0.05 * chosen["peak_bytes"]
    assert f"micro-batch {record['micro']}" in result.stderr
    # A quarter more runs out of memory.
    more = record["micro"] * 5 // 4
    _, result = train("more", batch__global=2 * more, batch__micro=more, **small)
    assert "out of memory" in result.stderr and result.returncode == 0


def test_the_smallest_size_that_is_as_fast_as_any(train):
    run, result = train("run", device__memory_gib=0.05, batch__micro="auto", batch__objective="throughput")
    assert result.returncode == 0, result.stderr
    record = json.loads((run / "run.json").read_text())["tuning"]
    probes = [probe for probe in record["probes"] if probe["fits"]]
    best = max(probe["samples_per_s"] for probe in probes)
    fast = [probe["micro"] for probe in probes if probe["samples_per_s"] >= 0.99 * best]
    assert micro_of(run) == record["micro"] == min(fast)


def test_a_global_batch_that_is_prime(train):
    run, result = train("run", device__memory_gib=0.0375, batch__micro="auto", batch__global=7489)
    assert result.returncode == 0, result.stderr
    assert 8 < micro_of(run) < 7489


def test_a_small_global_batch_takes_one_pass(train):
    run, result = train("run", batch__micro="auto", batch__global=5)
    assert result.returncode == 0, result.stderr
    assert micro_of(run) == 5


def test_recomputed_blocks_learn_the_same_in_less_memory(train):
    small = {"data__samples": 32, "batch__global": 16, "device__memory_gib": 0.6, "batch__micro": "auto",
             "optimizer__learning_rate": 0.01}
    kept, result = train("kept", "resnet18", **small)
    assert result.returncode == 0, result.stderr
    twice, result = train("twice", "resnet18", **{**small, "batch__micro": micro_of(kept)},
                          train__recompute=["layer1.*", "layer2.1"])
    assert result.returncode == 0, result.stderr
    assert_same_tensors(latest_checkpoint(kept), latest_checkpoint(twice))

    def activations(**values):  # of a network whose blocks keep more than what is before them
        _, result = train("unused", "resnet50", **{**small, **values})
        assert result.returncode == 0, result.stderr
        memory = json.loads((kept.parent / "unused" / "run.json").read_text())["tuning"]["memory"]
        shutil.rmtree(kept.parent / "unused")
        return memory["activations_bytes"]
    larger = {"data__height": 64, "data__width": 64, "device__memory_gib": 2, "train__steps": 1,
              "checkpoint__enabled": False}
    assert activations(**larger, train__recompute=["*"]) < 0.95 * activations(**larger)


def test_an_unknown_block_is_refused_with_the_models_own(train):
    run, result = train("run", "resnet18", train__recompute=["layer9.*"])
    assert result.returncode == 2 and "layer9.*" in result.stderr and "layer1.0" in result.stderr
    assert not run.exists()


def test_a_step_that_runs_out_of_memory_is_taken_again_in_halves(train):
    whole, result = train("whole", device__memory_gib=0.0375)
    assert result.returncode == 0, result.stderr
    assert "micro-batch 3750, which gives the same result, dropout's masks apart (" in result.stderr
    halves, result = train("halves", batch__micro=3750)
    assert result.returncode == 0, result.stderr
    assert_same_tensors(latest_checkpoint(whole), latest_checkpoint(halves))
    assert losses(whole) == losses(halves)


def test_running_statistics_see_no_sample_twice(train):
    whole, result = train("whole", "small_cnn", device__memory_gib=0.055, batch__global=5000)
    assert result.returncode == 0, result.stderr
    micro = int(re.findall(r"retrying the step with micro-batch (\d+)", result.stderr)[-1])
    assert "batch norms" in result.stderr
    changes = json.loads((whole / "run.json").read_text())["micro_batches"]
    assert changes[-1] == {"step": 1, "micro": micro}
    parts, result = train("parts", "small_cnn", batch__global=5000, batch__micro=micro)
    assert result.returncode == 0, result.stderr
    assert_same_tensors(latest_checkpoint(whole), latest_checkpoint(parts))


def test_a_model_that_is_evaluated_needs_no_memory_for_an_optimizer(train):
    """18 MiB of weights, of which AdamW keeps three more."""
    run, result = train("run", optimizer="adamw", model__hidden=2048, model__depth=2, batch__global=8)
    assert result.returncode == 0, result.stderr
    result = trainer("eval", run, *sets(device__memory_gib=0.04, batch__global=8))
    assert result.returncode == 0, result.stderr


def test_an_evaluation_that_runs_out_of_memory_is_done_again_in_halves(train):
    small = {"batch__global": 200, "data__eval_samples": 15000, "train__steps": 150}
    halves, result = train("halves", device__memory_gib=0.025, eval__batch=15000, **small)
    assert result.returncode == 0, result.stderr
    assert len(evaluations(halves)) == 2  # the second begins with the size that was found
    assert result.stderr.count("out of memory in the evaluation with batch size 15000;") == 1
    assert re.search(r"peak memory: tensors .*; the cap is 25.6 MiB", result.stderr)
    whole, result = train("whole", eval__batch=15000, **small)
    assert result.returncode == 0 and "out of memory in the evaluation" not in result.stderr
    assert_same_tensors(latest_checkpoint(halves), latest_checkpoint(whole))
    found, expected = evaluations(halves)[-1], evaluations(whole)[-1]
    assert found["eval_top1"] == expected["eval_top1"]
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)


def test_a_size_that_an_earlier_job_found_is_verified(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="mlp", optimizer="sgd"))
    cache = tmp_path / "cache"

    def tune(*words):
        done = trainer("tune", "--recipe", recipe, "--json", *words, *sets(model__hidden=256, device__memory_gib=0.015),
                       XDG_CACHE_HOME=str(cache))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first, again, fresh = tune(), tune(), tune("--fresh")
    assert not first["was_known"] and len(first["probes"]) > 1
    assert again["was_known"] and again["micro"] == first["micro"] and len(again["probes"]) == 1
    assert not fresh["was_known"] and len(fresh["probes"]) > 1
    # One that no longer fits is searched for again, as is one that is damaged.
    [saved] = cache.rglob("*.json")
    text = saved.read_text()
    saved.write_text(json.dumps({**json.loads(text), "micro": 7300}))
    stale = tune()
    assert not stale["was_known"] and stale["micro"] < 7300
    assert json.loads(saved.read_text())["micro"] == stale["micro"]
    saved.write_text(text[:-9])
    assert not tune()["was_known"]


def test_a_model_that_fits_nowhere_is_told_where_the_memory_would_go(train):
    for name, micro in (("tuned", "auto"), ("plain", 0)):
        run, result = train(name, model__hidden=4096, device__memory_gib=0.06, batch__micro=micro)
        assert result.returncode == 5, result.stderr
        error = [line for line in result.stderr.splitlines() if line.startswith("error[resource]")]
        assert len(error) == 1, result.stderr
        assert "the model itself does not fit" in error[0] and "memory_gib" in error[0]
        assert not run.exists()


@pytest.mark.parametrize("fraction", [0, 1.5, -1])
def test_a_wrong_fraction_is_refused(train, fraction):
    run, result = train("run", device__memory_fraction=fraction)
    assert result.returncode == 2 and "memory_fraction" in result.stderr
    assert not run.exists()


@pytest.mark.parametrize("hidden, has_rest", [(256, True), (2048, False)])
def test_the_rest_of_the_process_is_named_where_there_is_one(train, hidden, has_rest):
    """Large weights lie in blocks that are larger still: what they leave untouched is more than the rest."""
    run, result = train("run", model__hidden=hidden, batch__global=8, train__steps=1)
    assert result.returncode == 0, result.stderr
    assert (json.loads((run / "run.json").read_text())["memory"]["outside_bytes"] > 0) == has_rest
    [line] = [line for line in result.stderr.splitlines() if "peak memory" in line]
    assert ("the rest of the process" in line) == has_rest and "; the cap is " in line


def test_a_checkpoint_takes_no_memory_but_its_copy(train):
    run, result = train("run", "resnet18", batch__global=16, data__samples=32)
    assert result.returncode == 0, result.stderr
    memory = json.loads((run / "run.json").read_text())["memory"]
    assert memory["outside_bytes"] < memory["parameters_bytes"] / 2


def test_a_fraction_is_of_what_the_device_has(train):
    run, result = train("run", device__memory_fraction=0.5)
    assert result.returncode == 0, result.stderr
    record = json.loads((run / "run.json").read_text())
    total = min(size for size in (record["machine"]["memory_bytes"], record["machine"]["memory_limit_bytes"]) if size)
    assert record["memory"]["limit_bytes"] == total // 2


def test_more_than_there_is_is_refused(train):
    run, result = train("run", device__memory_gib=1000000)
    assert result.returncode == 5 and "is more than there is" in result.stderr
    assert not run.exists()


def peaks_gib(*jobs):
    """The most resident memory of each of these processes, which run side by side to a good end."""
    running = [subprocess.Popen([TRAINER, *map(str, job)], env=environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for job in jobs]
    kib = [0] * len(jobs)
    while any(process.poll() is None for process in running):
        for i, process in enumerate(running):
            try:
                with open(f"/proc/{process.pid}/status") as status:
                    kib[i] = max([kib[i]] + [int(line.split()[1]) for line in status if line.startswith("VmHWM")])
            except OSError:
                pass
        time.sleep(0.02)
    assert [process.returncode for process in running] == [0] * len(jobs)
    return [peak / 2**20 for peak in kib]


def test_jobs_stay_under_their_caps_seen_from_outside(tmp_path):
    """One alone, and two side by side."""
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="mlp", optimizer="sgd"))
    cap_gib = 0.125

    def job(name, **values):
        return ("--recipe", recipe, "--output", tmp_path / name, *sets(**values))

    # The program itself, with a model of next to nothing: libraries, threads, code.
    [program] = peaks_gib(job("small", batch__global=8, train__steps=2))
    tuned = {"model__hidden": 512, "batch__micro": "auto", "device__memory_gib": cap_gib}
    for names in (["alone"], ["one", "other"]):
        for peak in peaks_gib(*(job(name, **tuned) for name in names)):
            assert cap_gib / 2 < peak - program <= cap_gib


def test_trainer_tune_prints_the_probes_and_trains_nothing(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="mlp", optimizer="sgd"))
    result = trainer("tune", "--recipe", recipe, "--json", "--fresh", *sets(device__memory_gib=0.1, batch__global=15000),
                     cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["micro"] % 8 == 0 and 1 <= len(found["probes"]) <= 8
    assert {"parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"} <= set(found["memory"])
    modules = found["memory"]["modules"]
    assert {"layers.0", "layers.3"} & {part["module"] for part in modules}
    assert modules == sorted(modules, key=lambda part: -part["bytes"]) and len(modules) <= 10
    # All that was held at the peak, weights aside, is some module's; what is small beside it may be left out.
    assert sum(part["bytes"] for part in modules) >= 0.9 * found["memory"]["activations_bytes"]
    assert not (tmp_path / "runs").exists()
    text = trainer("tune", "--recipe", recipe, *sets(device__memory_gib=0.1, batch__global=15000), cwd=tmp_path)
    assert text.returncode == 0 and "samples/s" in text.stdout


def test_tune_starts_a_rank_for_each_device(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="mlp", optimizer="sgd"))
    found = {}
    for devices in ("cpu", "cpu,cpu"):
        result = trainer("tune", "--recipe", recipe, "--json", "--fresh", "--devices", devices,
                         *sets(device__memory_gib=0.025, batch__global=15000), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        found[devices] = json.loads(result.stdout)
    # Two ranks share the memory of the machine.
    limits = [found[devices]["memory"]["limit_bytes"] for devices in ("cpu", "cpu,cpu")]
    assert limits[1] == limits[0] // 2 and found["cpu,cpu"]["micro"] < found["cpu"]["micro"] < 7500


def test_a_job_without_evaluation_is_tuned_without(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="mlp", optimizer="sgd"))
    result = trainer("tune", "--recipe", recipe, "--json", "--fresh",
                     *sets(device__memory_gib=0.1, eval__enabled=False), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["micro"] > 8


RULES = [("linear", 0.01 * 4), ("sqrt", 0.01 * 2), ("none", 0.01)]


@pytest.mark.parametrize("rule, expected", RULES)
def test_the_learning_rate_follows_the_global_batch_by_the_recipes_rule(train, rule, expected):
    run, result = train("run", batch__global=64, optimizer__learning_rate=0.01, optimizer__base_batch=16,
                        optimizer__batch_rule=rule)
    assert result.returncode == 0, result.stderr
    assert [line["learning_rate"] for line in metrics(run) if "loss" in line] == pytest.approx([expected] * 2)
    assert ("learning rate:" in result.stderr) == (rule != "none")


def test_a_global_batch_that_grows_is_what_memory_holds(train):
    values = {"device__memory_gib": 0.05, "optimizer__batch_rule": "sqrt", "optimizer__learning_rate": 0.001}
    run, result = train("run", batch__global="auto", batch__micro="auto", **values)
    assert result.returncode == 0, result.stderr
    micro = micro_of(run)
    assert f"global = {micro}\n" in (run / "recipe.toml").read_text()
    fixed, result = train("fixed", batch__global=micro, batch__micro=micro, **values)
    assert result.returncode == 0, result.stderr
    assert losses(run) == losses(fixed)
    rate = [line["learning_rate"] for line in metrics(run) if "loss" in line][0]
    assert rate == pytest.approx(0.001 * (micro / 256) ** 0.5)
    # It continues with the batch that it began with, whatever memory there is by then.
    more = {**values, "device__memory_gib": 0.075, "train__steps": 4}
    recipe = run.parent / "mlp.toml"
    result = trainer("--recipe", recipe, "--resume", run, *sets(
        model__hidden=256, model__dropout=0.1, batch__global="auto", batch__micro="auto", **more))
    assert result.returncode == 0, result.stderr
    assert f"steps of {micro:,} samples" in result.stderr


def test_a_global_batch_that_grows_holds_no_more_than_the_training_samples(train):
    run, result = train("run", batch__global="auto", batch__micro="auto", data__samples=100)
    assert result.returncode == 0, result.stderr
    assert "global = 100\n" in (run / "recipe.toml").read_text()


def test_a_global_batch_of_tuned_micro_batches_needs_them_tuned(train):
    _, result = train("run", batch__global="auto", batch__micro=8)
    assert result.returncode == 2
    assert 'expected micro = "auto" too, found 8' in result.stderr and not os.path.exists("run")


def test_the_plan_of_a_batch_that_is_not_tuned_yet_says_so(train, tmp_path):
    recipe = tmp_path / "mlp.toml"
    recipe.write_text(RECIPE.format(model="mlp", optimizer="sgd"))
    result = trainer("--recipe", recipe, "--dry-run", *sets(batch__global="auto", batch__micro="auto"))
    assert result.returncode == 0 and "batch.global is tuned when training starts" in result.stderr


def test_a_runs_doctor_says_where_the_memory_went(train):
    run, result = train("run", "small_cnn", batch__global=64)
    assert result.returncode == 0, result.stderr
    account = json.loads((run / "run.json").read_text())["memory"]
    assert account["peak_bytes"] > account["parameters_bytes"] > 0 and account["modules"]
    said = trainer("doctor", run)
    assert "memory: parameters" in said.stdout
    assert all(part["module"] in said.stdout for part in account["modules"])


def test_what_measuring_forms_takes_is_no_modules_memory(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="small_cnn", optimizer="sgd").replace("fused = true", ""))
    values = {"data__height": 16, "data__width": 16, "data__samples": 128, "batch__global": 64}
    accounts = []
    for name in "cold", "known":
        done = trainer("--recipe", recipe, "--output", tmp_path / name, *sets(**values), XDG_CACHE_HOME=str(tmp_path))
        assert done.returncode == 0, done.stderr
        accounts.append(json.loads((tmp_path / name / "run.json").read_text())["memory"])
    cold, known = ({part["module"]: part["bytes"] for part in account["modules"]} for account in accounts)
    assert cold == known
    assert sum(cold.values()) <= accounts[1]["gradients_bytes"] + accounts[1]["activations_bytes"]


def test_what_recompute_saves_and_costs_is_measured(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="small_vit", optimizer="sgd"))
    values = {"data__height": 16, "data__width": 16, "device__memory_gib": 0.015, "batch__global": 64}
    found = {}
    for name, patterns in (("all", ["*"]), ("none", [])):
        result = trainer("tune", "--recipe", recipe, "--json", *sets(train__recompute=patterns, **values))
        assert result.returncode == 0, result.stderr
        found[name] = json.loads(result.stdout)
    cost = found["all"]["recompute"]
    assert cost["peak_bytes"] < cost["peak_bytes_without"] and cost["time_ratio"] > 0
    assert found["all"]["micro"] > found["none"]["micro"] and "recompute" not in found["none"]


def test_recompute_is_proposed_where_it_makes_one_sample_fit(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="small_vit", optimizer="sgd"))
    result = trainer("tune", "--recipe", recipe, *sets(data__height=128, data__width=128, data__eval_samples=0,
                                                       checkpoint__every_steps=100, batch__global=2,
                                                       device__memory_gib=0.017))
    assert result.returncode == 5, result.stderr
    assert re.search(r"with gradients [\d.]+ \w+, most in ", result.stderr), result.stderr
    assert 'With train.recompute = ["*"] it fits' in result.stderr


@pytest.fixture
def image_job(tmp_path):
    """A recipe on eight images of a folder."""
    for index in range(8):
        folder = tmp_path / "images" / f"class{index % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((40, 40, 3), index, np.uint8)).save(folder / f"{index}.png")
    recipe = tmp_path / "job.toml"
    recipe.write_text(f"""
[model]
name = "mlp"
[data]
kind = "image_folder"
image_size = 32
resize = 32
[data.train]
path = "{tmp_path}/images"
[batch]
global = 8
[optimizer]
name = "sgd"
""")
    return recipe


def test_a_cache_of_samples_is_left_its_memory(image_job):
    def cap(**values):
        done = trainer("tune", "--recipe", image_job, "--json", "--fresh", *sets(device__memory_gib=0.5, **values))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["probes"][-1]["cap_bytes"] / 2**30
    assert cap() - cap(data__cache="encoded", data__cache_gib=0.2) == pytest.approx(0.2, abs=0.02)
    done = trainer("tune", "--recipe", image_job, *sets(device__memory_gib=0.5, data__cache="encoded"))
    assert done.returncode == 5 and "data.cache may take 4.0 GiB" in done.stderr


@pytest.mark.parametrize("micro", ["auto", 8])
def test_a_cache_larger_than_the_jobs_memory_is_refused(image_job, tmp_path, micro):
    done = trainer("--recipe", image_job, "--output", tmp_path / "run",
                   *sets(batch__micro=micro, device__memory_gib=0.3, data__cache="decoded"))
    assert done.returncode == 5, done.stderr
    assert "data.cache may take 4.0 GiB: expected less than the 307.2 MiB that the job may take" in done.stderr
    assert not (tmp_path / "run").exists()


def test_tensors_of_a_fixed_micro_batch_leave_the_cache_its_memory(image_job, tmp_path):
    def done(cache):
        # 3,072 inputs make 2,000 wide 23 MiB of parameters, and as much of gradients and momentum.
        return trainer("--recipe", image_job, "--output", tmp_path / cache, *sets(
            model__hidden=2000, model__depth=1, device__memory_gib=0.165, data__cache=cache, data__cache_gib=0.1))
    fits = done("none")
    assert fits.returncode == 0, fits.stderr
    refused = done("decoded")
    assert refused.returncode == 5 and "the model itself does not fit in memory" in refused.stderr, refused.stderr


# AdamW's 50 MiB of parameters, gradients and state, and 38 MiB of a checkpoint's copy.
COPY = {"model__hidden": 1024, "model__depth": 4, "batch__global": 16, "train__steps": 3,
        "device__memory_gib": 0.08}


def test_a_checkpoints_copy_is_in_the_account_of_a_fixed_micro_batch(train):
    run, result = train("refused", optimizer="adamw", **COPY, checkpoint__every_steps=1)
    assert result.returncode == 5, result.stderr
    assert "a checkpoint's copy 38.4 MiB" in result.stderr and not run.exists()
    run, result = train("larger", optimizer="adamw", **{**COPY, "device__memory_gib": 0.13},
                        checkpoint__every_steps=1)
    assert result.returncode == 0 and "out of memory" not in result.stderr, result.stderr
    memory = json.loads((run / "run.json").read_text())["memory"]
    assert memory["checkpoint_bytes"] > 36 << 20
    run, result = train("unsaved", optimizer="adamw", **COPY, checkpoint__enabled=False)
    assert result.returncode == 0 and "out of memory" not in result.stderr, result.stderr


def test_the_tuner_keeps_room_for_a_copy_only_where_there_is_one(train):
    run, result = train("unsaved", optimizer="adamw", **COPY, checkpoint__enabled=False, batch__micro="auto")
    assert result.returncode == 0, result.stderr
    assert json.loads((run / "run.json").read_text())["tuning"]["memory"]["checkpoint_bytes"] == 0
    run, result = train("saved", optimizer="adamw", **COPY, batch__micro="auto")
    assert result.returncode == 5 and "a checkpoint's copy 38.4 MiB" in result.stderr, result.stderr


def test_a_schedule_that_cannot_be_is_refused_before_the_search(train):
    run, result = train("run", batch__micro="auto", schedule__warmup=100, schedule__name="cosine",
                        schedule__unit="steps")
    assert result.returncode == 2 and "schedule.warmup is longer than the run" in result.stderr, result.stderr
    assert "probe" not in result.stderr and not run.exists()


def test_tuning_that_is_stopped_ends_at_once(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(RECIPE.format(model="small_vit", optimizer="sgd"))
    process = subprocess.Popen([TRAINER, "tune", "--recipe", recipe, "--fresh", *sets(
        data__height=64, data__width=64, batch__global=7500, device__memory_gib=2)],
        env=environment(), text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert "probe of micro-batch" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 75
    assert set(re.findall(r"error\[(\w+)", process.stderr.read())) <= {"stopped"}
