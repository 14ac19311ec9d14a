"""The trainer on a simulated GPU, whose streams are late: what reads too early finds NaN, and so the losses differ
from the CPU's."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("cli", "distributed")]
from runs import wait_until  # noqa: E402
from trainer import (DIGITS, LIMIT_S, SOURCE, TRAINER, environment, evaluations, metrics, sets, start,  # noqa: E402
                     trainer)

TRAINRUN = TRAINER.parent / "trainrun"
COMMON = {"train__steps": 12, "telemetry__every_steps": 1, "precision__mode": "fp32", "schedule__warmup": 0}
PICTURES = {"train__steps": 5, "data__kind": "synthetic", "data__height": 32, "data__width": 32, "data__channels": 3, "data__classes": 10,
            "data__samples": 64, "data__eval_samples": 16, "batch__global": 8}
TEXT = SOURCE / "recipes/text_bytes.toml"
NARROW = {**PICTURES, "model__library": str(TRAINER.parent / "narrow_resnet.so"), "model__name": "narrow_resnet18"}
JOBS = {
    "mlp": (DIGITS, {"model__name": "mlp"}),
    "augmented": (DIGITS, {"data__augment__mixup": 0.4, "data__augment__erase": 0.5, "data__augment__cutmix": 0.5}),
    "resnet18": (DIGITS, {**NARROW, "precision__mode": "fp64"}),
    "fused resnet18": (DIGITS, {**NARROW, "train__steps": 2}),
    "convnext": (DIGITS, {**PICTURES, "model__name": "convnext_tiny", "train__steps": 2}),
    "gpt": (TEXT, {"model__layers": 2, "model__dropout": 0, "batch__global": 4, "train__steps": 4}),
    "adamw": (DIGITS, {"optimizer__name": "adamw", "train__ema": 0.9, "train__clip_norm": 1.0, "batch__micro": 20}),
    "skipping": (DIGITS, {"train__ema": 0.9, "train__on_nan": "skip"}),
}


# In fp32 another order of additions turns some ReLU on or off, whose gradient jumps.
TOLERANCE = {"fused resnet18": 5e-3, "resnet18": 1e-6}


def train(output, job, device, *words, **values):
    recipe, own = JOBS[job]
    done = trainer("train", recipe, "--output", output, "--devices", device, *words, *sets(**{**COMMON, **own, **values}))
    assert done.returncode == 0, done.stderr
    return done.stderr


def losses(run):
    return [line["loss"] for line in metrics(run) if "loss" in line]


def expect_no_waits(run):
    """Of the host for the device, but in the first steps, which try forms of operations and count parameters in use."""
    steps = [line for line in metrics(run) if "device" in line]
    assert len(steps) >= 2 and all(line["device"]["host_syncs"] == 0 for line in steps[2:]), steps


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    runs = {}

    def run(job):
        if job not in runs:
            runs[job] = tmp_path_factory.mktemp(job) / "cpu"
            train(runs[job], job, "cpu")
        return runs[job]
    return run


@pytest.mark.parametrize("job", JOBS)
def test_losses_are_the_cpus(tmp_path, on_cpu, job):
    said = train(tmp_path / "run", job, "cuda:0")
    assert "on cuda:0 in fp" in said
    tolerance = TOLERANCE.get(job, 2e-4)
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(on_cpu(job)), rtol=tolerance)
    theirs = evaluations(on_cpu(job))
    for own, other in zip(evaluations(tmp_path / "run"), theirs, strict=True):
        assert own["eval_loss"] == pytest.approx(other["eval_loss"], rel=10 * tolerance)
    expect_no_waits(tmp_path / "run")


@pytest.mark.parametrize("job, how", [
    ("adamw", {}), ("adamw", {"train__cuda_graph": True}), ("adamw", {"train__cuda_graph": True, "distributed__compress": "bf16"}),
    ("adamw", {"distributed__zero": True}), ("adamw", {"distributed__strategy": "fsdp"}),
    ("adamw", {"distributed__check": True}), ("resnet18", {"distributed__strategy": "fsdp"}),
    ("gpt", {"distributed__stages": 2, "batch__micro": 1}),
    ("gpt", {"distributed__strategy": "fsdp", "train__recompute": ["transformer.h.*"]})])
def test_two_ranks_are_as_one(tmp_path, on_cpu, job, how):
    if job == "resnet18":  # each rank's norms see half of a batch
        how = {**how, "distributed__sync_batch_norm": True}
    recipe, own = JOBS[job]
    command = [TRAINRUN, "--nproc-per-node", "2", TRAINER, "train", recipe, "--output", tmp_path / "run",
               *sets(**{**COMMON, **own, **how})]
    done = subprocess.run(command, env={**environment(), "BRIM_SIMULATED_GPUS": "2"}, capture_output=True, text=True,
                          timeout=LIMIT_S)
    assert done.returncode == 0 and "cuda_graph" not in done.stderr, done.stderr
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(on_cpu(job)), rtol=3e-2 if "distributed__compress" in how else 1e-3)
    expect_no_waits(tmp_path / "run")


def test_losses_in_half_precision_are_not_rounded(tmp_path):
    """LibTorch's cross-entropy under autocast rounds each sample's."""
    lines = []
    for smoothing in 0.3, 0.0:
        train(tmp_path / str(smoothing), "mlp", "cuda:0", precision__mode="bf16", precision__fused=False, train__steps=1,
              train__label_smoothing=smoothing)
        lines.append(metrics(tmp_path / str(smoothing))[0])
    assert lines[0]["unsmoothed_loss"] == pytest.approx(lines[1]["loss"], rel=1e-6)


def test_too_large_a_micro_batch_is_halved(tmp_path):
    words = ["train", DIGITS, "--output", tmp_path / "run", "--devices", "cuda:0",
             *sets(**{**COMMON, **NARROW, "batch__global": 32, "data__height": 96, "data__width": 96, "train__steps": 3})]
    done = trainer(*words, BRIM_SIMULATED_MIB="545")
    assert done.returncode == 0 and "out of memory" in done.stderr, done.stderr
    assert len(losses(tmp_path / "run")) == 3


def test_the_tuner_fills_the_memory(tmp_path):
    done = trainer("tune", DIGITS, "--devices", "cuda:0", "--json", *sets(precision__mode="fp32"),
                   BRIM_SIMULATED_MIB="600")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["micro"] >= 64


@pytest.mark.parametrize("graph", [False, True])
def test_an_assertion_on_the_device_ends_the_run_in_words(tmp_path, graph):
    """Every call fails after it, those that free memory while the exception unwinds, too."""
    recipe = tmp_path / "wrong.toml"
    recipe.write_text(f"""[model]
library = "{TRAINER.parent / "wrong_parts.so"}"
name = "wrong_net"
[data]
kind = "wrong_samples"
[batch]
global = 8
[train]
task = "wrong_task"
wrong_task = "labels"
ema = 0.9
[optimizer]
name = "sgd"
""")
    done = trainer("train", recipe, "--output", tmp_path / "run", "--devices", "cuda:0", *sets(train__cuda_graph=graph))
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error[bug]: CUDA error: device-side assert triggered: Target") and "of your own" in last


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_rank_without_its_peer_ends(tmp_path, how):
    """Its collective never ends on the device: the host gives it up."""
    run = tmp_path / "run"
    launcher = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "BRIM_RENDEZVOUS_FILE": f"{tmp_path}/meet",
                "BRIM_SIMULATED_GPUS": "2"}
    ranks = [start("train", DIGITS, "--output", run, *sets(distributed__timeout_s=10, train__epochs=1000),
                   RANK=str(rank), LOCAL_RANK=str(rank), **launcher) for rank in range(2)]
    wait_until(lambda: (run / "metrics.jsonl").exists() and metrics(run), "a step")
    ranks[1].send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    said = ranks[0].communicate(timeout=LIMIT_S)[1]
    assert ranks[0].returncode == 6 and "rank 1" in said, said
    ranks[1].kill()
    ranks[1].communicate(timeout=LIMIT_S)


def test_gpu_check_passes(tmp_path):
    """Its stages that take no GPU's speed, from a package's folder."""
    shutil.copy(SOURCE / "scripts/gpu_check", tmp_path)
    for name, target in ("bin", TRAINER.parent), ("recipes", SOURCE / "recipes"), ("benchmarks", SOURCE / "benchmarks"):
        (tmp_path / name).symlink_to(target)
    done = subprocess.run([tmp_path / "gpu_check", "--output", tmp_path / "out", "--device", "cuda:0", "--only",
                           "doctor,digits,resume,optimizers,two_ranks,profile"], capture_output=True, text=True,
                          timeout=LIMIT_S, env={**environment(), "BRIM_SIMULATED_MIB": "16384"})
    assert done.returncode == 0 and done.stdout.count("| passed |") == 6, done.stdout + done.stderr
