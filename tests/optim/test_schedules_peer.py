"""The schedules against torch.optim.lr_scheduler, with and without warm-up."""
import json
import os
import pathlib
import subprocess
import warnings

import pytest
import torch
from torch.optim import lr_scheduler as lrs

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "optim_tool"
RATE = 0.3
STEPS, PER_EPOCH = 120, 10
WARMUP = 15


def job(keys, values):
    recipe = [f"learning_rate = {RATE}", "[schedule]"]
    recipe += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return {"task": "rates", "recipe": "\n".join(recipe), "steps": STEPS,
            "steps_per_epoch": PER_EPOCH, "values": values}


def torch_rates(make, values):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATE)
    scheduler = make(optimizer)
    rates = []
    for value in values:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if isinstance(scheduler, lrs.ReduceLROnPlateau):
            scheduler.step(value)
        else:
            scheduler.step()
    return rates


def warmed_up(make_rest):
    """torch's way of a warm-up: LinearLR, then the rest, which starts from nought."""
    return lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, start_factor=0.1, total_iters=WARMUP), make_rest(o)], [WARMUP])


REST = STEPS - WARMUP
WARM = {"warmup": 1.5, "warmup_start": 0.1}  # 1.5 epochs are 15 steps
CASES = {
    "constant": ({"name": "constant"}, lambda o: lrs.ConstantLR(o, factor=1.0)),
    "constant warm": ({"name": "constant", **WARM},
                      warmed_up(lambda o: lrs.ConstantLR(o, factor=1.0))),
    "cosine": ({"name": "cosine"}, lambda o: lrs.CosineAnnealingLR(o, T_max=STEPS)),
    "cosine warm": ({"name": "cosine", "final_factor": 0.05, **WARM},
                    warmed_up(lambda o: lrs.CosineAnnealingLR(o, REST, eta_min=RATE * 0.05))),
    "linear": ({"name": "linear", "final_factor": 0.2},
               lambda o: lrs.LinearLR(o, 1.0, 0.2, total_iters=STEPS)),
    "linear warm": ({"name": "linear", **WARM},
                    warmed_up(lambda o: lrs.LinearLR(o, 1.0, 0.0, total_iters=REST))),
    "step every": ({"name": "step", "every": 3, "gamma": 0.5},
                   lambda o: lrs.StepLR(o, 3 * PER_EPOCH, gamma=0.5)),
    "step milestones": ({"name": "step", "milestones": [3, 7, 7.5]},
                        lambda o: lrs.MultiStepLR(o, [30, 70, 75])),
    "step in steps": ({"name": "step", "unit": "steps", "milestones": [33, 71]},
                      lambda o: lrs.MultiStepLR(o, [33, 71])),
    # Ours counts from the run's start, torch's second scheduler from the warm-up's end.
    "step warm": ({"name": "step", "milestones": [3, 7], **WARM},
                  warmed_up(lambda o: lrs.MultiStepLR(o, [30 - WARMUP, 70 - WARMUP]))),
    "one_cycle": ({"name": "one_cycle"}, lambda o: lrs.OneCycleLR(o, RATE, STEPS)),
    "one_cycle keys": ({"name": "one_cycle", "rise": 0.13, "start_divisor": 10.0,
                        "final_divisor": 100.0},
                       lambda o: lrs.OneCycleLR(o, RATE, STEPS, pct_start=0.13, div_factor=10.0,
                                                final_div_factor=100.0)),
}


NO_VALUES = [0.0] * STEPS
PLATEAU = {"name": "plateau", "factor": 0.3, "patience": 3, "threshold": 0.01,
           "final_factor": 0.01}
WATCHES = {"loss": "min", "accuracy": "max"}
SEEDS = range(8)


def noisy(watch, seed):
    """A metric that improves, more slowly than it wavers."""
    noise = 0.3 * torch.rand(STEPS, generator=torch.Generator().manual_seed(seed))
    ends = (2.0, 1.0) if watch == "loss" else (0.1, 0.8)
    return [round(value, 6) for value in (torch.linspace(*ends, STEPS) + noise).tolist()]


@pytest.fixture(scope="module")
def ours():
    """The rates that Brim gives, by case: all in one process."""
    jobs = {case: job(keys, NO_VALUES) for case, (keys, _) in CASES.items()}
    for watch in WATCHES:
        for seed in SEEDS:
            jobs[watch, seed] = job(PLATEAU | {"metric": watch}, noisy(watch, seed))
    done = subprocess.run([TOOL], capture_output=True, text=True,
                          input=json.dumps(list(jobs.values())))
    assert done.returncode == 0, done.stderr
    return dict(zip(jobs, json.loads(done.stdout)))


@pytest.mark.parametrize("case", CASES)
def test_same_rates(ours, case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SequentialLR calls step(epoch), which torch deprecates
        theirs = torch_rates(CASES[case][1], NO_VALUES)
    assert ours[case] == pytest.approx(theirs, rel=1e-11, abs=1e-15)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("watch", WATCHES)
def test_plateau_falls_when_torchs_does(ours, watch, seed):
    theirs = torch_rates(lambda o: lrs.ReduceLROnPlateau(
        o, mode=WATCHES[watch], factor=0.3, patience=3, threshold=0.01, min_lr=RATE * 0.01),
        noisy(watch, seed))
    assert ours[watch, seed] == pytest.approx(theirs, rel=1e-12)
    assert ours[watch, seed][-1] < RATE
