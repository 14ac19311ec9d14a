"""What trainer recipe show --summary and trainer bench say of a model, against PyTorch's own counter."""
import json
import os
import subprocess

import pytest
import torch
import torchvision
from torch.utils.flop_counter import FlopCounterMode

from trainer import TRAINER, environment, sets, trainer

RECIPE = """
[model]
name = "{name}"
[data]
kind = "synthetic"
height = {size}
width = {size}
classes = 10
samples = 64
eval_samples = 0
[batch]
global = 2
[optimizer]
name = "sgd"
[train]
steps = 2
"""


def recipe(folder, name="resnet18", size=64):
    path = folder / "job.toml"
    path.write_text(RECIPE.format(name=name, size=size))
    return path


def summary(path, *words):
    done = trainer("recipe", "show", "--recipe", path, "--summary", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_counts_what_pytorch_counts(tmp_path, name):
    model = getattr(torchvision.models, name)(num_classes=10)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randn(2, 3, 64, 64))
    found = summary(recipe(tmp_path, name))
    assert found["forward_flops"] == counter.get_total_flops() // 2
    assert found["training_flops"] == 3 * found["forward_flops"]
    assert found["parameters"] == sum(p.numel() for p in model.parameters())
    assert found["trained_parameters"] == found["parameters"]


def test_frozen_parameters_are_not_trained(tmp_path):
    path = recipe(tmp_path)
    found = summary(path, "--set", 'model.freeze=["layer*"]')
    assert 0 < found["trained_parameters"] < found["parameters"] / 10


def test_recompute_and_a_smaller_image_keep_less(tmp_path):
    path = recipe(tmp_path)
    words = ["--set", "precision.mode=fp32"]
    whole = summary(path, *words)
    assert sum(module["activation_bytes"] for module in whole["modules"]) == whole["activation_bytes"]
    # conv1's and bn1's results alone: 64 channels of 32×32 in float32, each kept.
    assert whole["activation_bytes"] > 2 * 64 * 32 * 32 * 4
    blocks = summary(path, *words, "--set", 'train.recompute=["layer*"]')
    assert blocks["activation_bytes"] < 0.8 * whole["activation_bytes"]
    assert blocks["forward_flops"] == whole["forward_flops"]
    small = summary(recipe(tmp_path, size=32), *words)
    assert small["activation_bytes"] < 0.5 * whole["activation_bytes"]


# As a pass with all its memory gave them: name, side, further words, parameters, operations, activations.
MEASURED = [("resnet18", 64, [], 11181642, 296101888, 1517616),
            ("resnet18", 64, ["--set", "precision.fused=false"], 11181642, 296101888, 1763368),
            ("vit_s16", 64, [], 21600394, 736716288, 5074072),
            ("convnext_tiny", 64, [], 27827818, 727323648, 8867292)]


@pytest.mark.parametrize("name, size, words, parameters, flops, activations", MEASURED)
def test_the_summary_of_shapes_is_that_of_a_real_pass(tmp_path, name, size, words, parameters, flops, activations):
    found = summary(recipe(tmp_path, name, size), "--set", "precision.mode=fp32", *words)
    assert (found["parameters"], found["forward_flops"], found["activation_bytes"]) == (
        parameters, flops, activations)


@pytest.mark.parametrize("model", ["resnet18", "small_vit"])
def test_bf16_keeps_less_of_a_sample_and_its_weights_count_once(tmp_path, model):
    path = recipe(tmp_path, model, 64)
    wide, narrow = (summary(path, "--set", f"precision.mode={mode}") for mode in ("fp32", "bf16"))
    assert 0.3 * wide["activation_bytes"] < narrow["activation_bytes"] < 0.8 * wide["activation_bytes"]
    assert narrow["once_bytes"] <= 4.1 * narrow["parameters"]  # no more than all weights, cast


def peak_mib(*args):
    """The process's status, its peak resident memory and its output."""
    process = subprocess.Popen([TRAINER, *map(str, args)], env=environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss / 1024, text


def test_a_large_models_summary_and_plan_take_no_memory_for_it(tmp_path):
    path = tmp_path / "job.toml"
    # 3.1 GB of parameters.
    path.write_text(RECIPE.format(name="gpt2_large", size=0).replace('"synthetic"', '"synthetic_tokens"').replace(
        "height = 0\nwidth = 0\nclasses = 10", "length = 1024\nvocabulary = 50257"))
    status, mib, text = peak_mib("recipe", "show", "--recipe", path, "--summary")
    assert status == 0 and "774,030,080 trained" in text and mib < 1024, (mib, text)
    status, mib, text = peak_mib("--recipe", path, "--dry-run", "--set", "optimizer.name=adamw")
    # 12.4 GB with gradients and AdamW's state, which not every machine has.
    assert mib < 1024 and (status == 0 or "the model itself does not fit in memory" in text), (status, mib, text)


@pytest.mark.parametrize("words", [["tune"], ["--dry-run"], [], ["--set", "batch.micro=auto"]])
def test_a_model_that_no_memory_holds_is_refused_before_it_is_built(tmp_path, words):
    path = recipe(tmp_path, "mlp", 8)
    wide = ["--recipe", path, "--set", "model.hidden=65536", "--set", "model.depth=256"]
    status, mib, text = peak_mib(*words[:1], *wide) if words == ["tune"] else peak_mib(
        *wide, *words, "--output", tmp_path / "run")
    assert status == 5 and "the model itself does not fit in memory" in text, text
    assert mib < 1024 and not (tmp_path / "run").exists()


def test_the_summary_is_readable(tmp_path):
    done = trainer("recipe", "show", "--recipe", recipe(tmp_path), "--summary", *sets(precision__mode="fp32"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("parameters:  11,181,642 (11,181,642 trained)\n")
    assert "GFLOP a sample" in done.stdout and "layer1.0.conv1" in done.stdout


def test_bench_tells_utilization(tmp_path):
    out = tmp_path / "bench.json"
    done = trainer("bench", "--recipe", recipe(tmp_path), "--set", "precision.mode=fp32", "--repeats", 1,
                   "--steps", 2, "--out", out, "--sweep", "precision.fused=true,false")
    assert done.returncode == 0, done.stderr
    per_sample = summary(tmp_path / "job.toml")["training_flops"]
    for variant in json.loads(out.read_text())["variants"]:
        found = variant["summary"]
        assert found["flops_per_step"] == pytest.approx(2 * per_sample)
        assert found["tflops_per_s"] == pytest.approx(1e-12 * found["flops_per_step"] / found["step_p50_s"])
        assert found["model_flops_utilization"] == pytest.approx(
            found["tflops_per_s"] / found["peak_tflops_per_s"])
        assert found["peak_source"] == "measured: products of 2048×2048 matrices in fp32"
    assert "GFLOP a step" in done.stdout and "TFLOP/s (measured" in done.stdout


def test_fused_is_recorded_and_learns_the_same(tmp_path):
    losses = {}
    for fused in ("true", "false"):
        folder = tmp_path / fused
        done = trainer("--recipe", recipe(tmp_path), "--set", "precision.mode=fp64", "--set",
                       f"precision.fused={fused}", "--set", "telemetry.every_steps=1", "--output", folder)
        assert done.returncode == 0, done.stderr
        assert f"fused = {fused}" in (folder / "recipe.toml").read_text()
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        losses[fused] = [line["loss"] for line in lines if "loss" in line]
    assert len(losses["true"]) == 2
    assert losses["true"] == pytest.approx(losses["false"], rel=1e-5)
