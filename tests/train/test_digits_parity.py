"""The digits recipe reaches the accuracy that the same recipe reaches in Python torch."""
import gzip
import math
import pathlib
import statistics
import sys

import numpy
import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from trainer import DIGITS, SOURCE, evaluations, sets, trainer  # noqa: E402

torch.set_num_threads(1)
SEEDS = range(1, 6)
EPOCHS, BATCH, RATE, HIDDEN = 15, 64, 0.05, 64


def idx(name):
    content = gzip.decompress((SOURCE / "recipes" / "data" / "digits" / name).read_bytes())
    rank = content[3]
    shape = numpy.frombuffer(content, ">u4", rank, 4).astype(int)
    return torch.from_numpy(numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * rank).reshape(shape).copy())


def data(split):
    images = idx(f"{split}-images.idx.gz").flatten(1).float() / 255
    return (images - 0.5) / 0.5, idx(f"{split}-labels.idx.gz").long()


def accuracy_in_python(mode, seed):
    torch.manual_seed(seed)
    images, labels = data("train")
    model = torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 10))
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.SGD([dict(params=weights, weight_decay=1e-4), dict(params=biases)],
                                lr=RATE, momentum=0.9, fused=True)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[mode]
    scaler = torch.amp.GradScaler("cpu", enabled=mode == "fp16")
    steps, step = EPOCHS * math.ceil(len(images) / BATCH), 0
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images)).split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
            with torch.autocast("cpu", dtype, enabled=mode != "fp32"):
                loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen],
                                                         label_smoothing=0.1)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1
    images, labels = data("test")
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=mode != "fp32"):
        return 100 * (model(images).argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("mode", ["fp32", "bf16", "fp16"])
def test_mean_accuracy_over_seeds(mode, tmp_path):
    ours = []
    for seed in SEEDS:
        run = tmp_path / str(seed)
        result = trainer("--recipe", DIGITS, "--output", run,
                         *sets(precision__mode=mode, run__seed=seed, eval__every_epochs=0,
                                train__epochs=EPOCHS, model__hidden=HIDDEN))
        assert result.returncode == 0, result.stderr
        ours.append(evaluations(run)[-1]["eval_top1"])
    theirs = [accuracy_in_python(mode, seed) for seed in SEEDS]
    print(f"{mode}: ours {ours}, theirs {theirs}")
    assert abs(statistics.mean(ours) - statistics.mean(theirs)) <= 0.5, (ours, theirs)
