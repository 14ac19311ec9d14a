"""The scale follows torch.amp.GradScaler over recorded overflow patterns, to the bit."""
import functools
import os
import pathlib
import random
import subprocess

import pytest
import torch

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "scaler_tool"


def pattern(seed):
    """200 steps: stretches of good steps with an overflow now and then, and a burst of them."""
    choose = random.Random(seed)
    rate = choose.choice([0.02, 0.1, 0.2])
    words = [choose.choice(["inf", "nan"]) if choose.random() < rate else "ok" for _ in range(200)]
    burst = choose.randrange(190)
    words[burst:burst + 10] = ["inf"] * 10
    return tuple(words)


@functools.cache
def torch_scales(words, growth, backoff, interval):
    scaler = torch.amp.GradScaler("cpu", growth_factor=growth, backoff_factor=backoff,
                                  growth_interval=interval)
    weight = torch.zeros(8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scales = []
    for word in words:
        scaler.scale(torch.zeros(()))  # makes the scale, lazily
        weight.grad = torch.ones(8)
        if word != "ok":
            weight.grad[2] = float(word)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


@pytest.mark.parametrize("way", ["unscale", "check"])
@pytest.mark.parametrize("settings", [(2.0, 0.5, 2000), (2.0, 0.5, 7), (1.5, 0.25, 3)])
def test_same_scales_as_torch(settings, way):
    patterns = [pattern(seed) for seed in range(12)]
    # torch has no minimum: one that is never reached.
    result = subprocess.run([TOOL, *map(str, settings), "1e-37", way], capture_output=True,
                            text=True, check=True,
                            input="\n".join(" ".join(words) for words in patterns))
    runs = result.stdout.splitlines()
    assert len(runs) == len(patterns)
    for run, words in zip(runs, patterns):
        scales = [float.fromhex(scale) for scale in run.split()]
        assert scales == torch_scales(words, *settings)
        assert len(set(scales)) > 3  # the pattern moved the scale
