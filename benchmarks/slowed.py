#!/usr/bin/env python3
"""Recipes made slow in known ways, and how much of the lost speed `trainer doctor RUN --fix` regains.

usage: .venv/bin/python benchmarks/slowed.py [--rounds 3] [--only one_worker,fp32]

Each recipe trains slowly for more than 30 s, which the doctor judges and improves without being told what was
done to it. Then the slow, the fixed and the good recipe run in turn, in fresh processes; speeds are medians.
Regained is (fixed - slow) / (good - slow): above 100 % where the doctor found more than was taken away.
Writes a table to benchmarks/results/. A host synchronisation in a task, which only a GPU has, is not staged.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

from programs import RESULTS, SOURCE, TRAINER, commit, output_of

SHORTEST_S = 30  # of a run that the doctor judges
IMAGES = SOURCE / "build" / "benchmarks" / "large_jpegs"

SMALL_IMAGES = SOURCE / "build" / "benchmarks" / "small_jpegs"
SLOW_DISK = SOURCE / "build" / "benchmarks" / "slow_disk.so"


def jpegs(folder):
    return f"""[model]
name = "small_cnn"
[data]
kind = "image_folder"
image_size = 64
[data.train]
path = "{folder}"
[batch]
global = 16
[optimizer]
name = "sgd"
learning_rate = 0.001
[eval]
enabled = false
"""


JPEGS = jpegs(IMAGES)
RESNET = """[model]
name = "resnet18"
[data]
kind = "synthetic"
height = 32
width = 32
samples = 2000
[batch]
global = 8
[optimizer]
name = "sgd"
learning_rate = 0.001
[eval]
enabled = false
"""
MLP = """[model]
name = "mlp"
hidden = 2048
depth = 3
[data]
kind = "synthetic"
height = 28
width = 28
channels = 1
samples = 4000
[batch]
global = 64
[optimizer]
name = "sgd"
learning_rate = 0.001
[eval]
enabled = false
"""
DIGITS = f'extends = "{SOURCE / "recipes" / "digits.toml"}"\n[eval]\nenabled = false\n'

# recipe, what makes it slow, what the good one has in its place
WAYS = {
    "one_worker": (JPEGS, {"data.workers": 1}, {"data.workers": os.cpu_count()}),
    "no_cache": (JPEGS, {"data.cache": '"none"', "data.workers": os.cpu_count()},
                 {"data.cache": '"decoded"', "data.workers": os.cpu_count()}),
    "slow_disk": (jpegs(SMALL_IMAGES), {"data.cache": '"none"', "data.workers": os.cpu_count()},
                  {"data.cache": '"encoded"', "data.workers": os.cpu_count()}),
    "no_overlap": (JPEGS, {"data.workers": 0}, {"data.workers": '"auto"'}),
    "many_workers": (JPEGS, {"data.workers": 64}, {"data.workers": '"auto"'}),
    "nchw": (RESNET, {"precision.channels_last": False}, {"precision.channels_last": True}),
    "fp32": (MLP, {"precision.mode": '"fp32"'}, {"precision.mode": '"bf16"'}),
    "batch_of_4": (DIGITS, {"batch.global": 4}, {"batch.global": 64}),
    "uneven_shards": (RESNET.replace("= 32", "= 64"), {"batch.global": 3, "device.select": '"cpu,cpu"'},
                      {"batch.global": 4, "device.select": '"cpu,cpu"'}),
    "logging": (DIGITS, {"telemetry.every_steps": 1, "telemetry.histograms_every_steps": 1},
                {"telemetry.every_steps": 10, "telemetry.histograms_every_steps": 0}),
}


def make_images(folder, count, height, width):
    """JPEGs in two classes."""
    y, x = np.mgrid[0:height, 0:width]
    for label in "ab":
        (folder / label).mkdir(parents=True, exist_ok=True)
        for i in range(count // 2):
            if not (folder / label / f"{i}.jpg").exists():
                pixels = np.stack([(x + 40 * i) % 256, y % 256, (x ^ y) % 256], -1).astype(np.uint8)
                Image.fromarray(pixels).save(folder / label / f"{i}.jpg")


def measured_by(command):
    """A table's first line: the command, the machine and the commit."""
    flags = next(line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    has = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags.split()]
    return f"`{command}` on {os.cpu_count()} cores ({', '.join(has)}), commit {commit()}.\n"


def write_table(name, lines):
    day = datetime.date.today().isoformat()
    path = RESULTS / f"{platform.machine()}-{os.cpu_count()}cores_{day}_{name}.md"
    path.write_text("\n".join(lines) + "\n")
    print(f"written to {path}", file=sys.stderr)


def sets(values):
    words = []
    for key, value in values.items():
        words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return words


def train(recipe, run, steps, *words):
    """The lines of metrics about steps. An earlier run in the folder is removed."""
    shutil.rmtree(run, ignore_errors=True)
    output_of([TRAINER, "train", recipe, *words, *sets({"train.steps": steps, "train.epochs": 1000000,
                                                        "checkpoint.enabled": False}), "--output", run])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "step_s" in line]


def steps_of(lines, seconds):
    """How many steps take as long, in whole lines of metrics of the usual length."""
    step_s = statistics.median(line["step_s"] for line in lines[len(lines) // 2:])
    return max(40, round(seconds / step_s / 10) * 10)


def train_long(recipe, run, *words):
    """For as long as the doctor needs to judge it."""
    lines, steps = train(recipe, run, 40, *words), 40
    while sum(line["step_s"] for line in lines) / len(lines) * steps < SHORTEST_S:
        steps = steps_of(lines, 1.2 * SHORTEST_S)
        lines = train(recipe, run, steps, *words)


def speed(recipe, folder, *words):
    """Samples a second of about five seconds, after about two others."""
    first = train(recipe, folder / "pilot", 40, *words)
    steps = steps_of(first, 7)
    lines = train(recipe, folder / "speed", steps, *words)
    late = [line for line in lines if line["step"] > 0.3 * steps]
    return sum(line["samples_per_s"] * line["step_s"] for line in late) / sum(line["step_s"] for line in late)


def measure(name, rounds):
    text, slow, good = WAYS[name]
    if name == "slow_disk":
        os.environ["LD_PRELOAD"] = str(SLOW_DISK)
    else:
        os.environ.pop("LD_PRELOAD", None)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        recipe = folder / "recipe.toml"
        recipe.write_text(text)
        train_long(recipe, folder / "run", *sets(slow))
        report = json.loads(output_of([TRAINER, "doctor", folder / "run", "--fix", "--apply", "--json"]))
        fixed = folder / "run" / "fixed.toml"
        if not fixed.exists():
            fixed = folder / "run" / "recipe.toml"
        speeds = {side: [] for side in ("slow", "fixed", "good")}
        words = {"slow": (recipe, *sets(slow)), "fixed": (fixed,), "good": (recipe, *sets(good))}
        for i in range(rounds):  # each round begins with another
            for side in [*words][i % 3:] + [*words][:i % 3]:
                speeds[side].append(speed(words[side][0], folder, *words[side][1:]))
    row = {side: statistics.median(values) for side, values in speeds.items()}
    row["found"] = ", ".join(finding["rule"] for finding in report["findings"])
    row["kept"] = ", ".join(report["fix"]["kept"])
    lost = row["good"] - row["slow"]
    row["regained"] = (row["fixed"] - row["slow"]) / lost if lost > 0.03 * row["good"] else None
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WAYS))
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := [name for name in names if name not in WAYS]:
        parser.error(f"expected names of {', '.join(WAYS)}, found {', '.join(unknown)}")
    make_images(IMAGES, 64, 1600, 2400)
    make_images(SMALL_IMAGES, 256, 128, 128)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", SLOW_DISK, SOURCE / "benchmarks" / "slow_disk.c"], check=True)
    table = [measured_by(f"benchmarks/slowed.py --rounds {given.rounds} --only {','.join(names)}"),
             "| made slow by | found | kept | slow, samples/s | fixed | good | regained |", "|---|---|---|---|---|---|---|"]
    for name in names:
        row = measure(name, given.rounds)
        regained = "nothing was lost" if row["regained"] is None else f"{100 * row['regained']:.0f} %"
        table.append(f"| {name} | {row['found']} | {row['kept'] or 'nothing'} | {row['slow']:.0f} | {row['fixed']:.0f} "
                     f"| {row['good']:.0f} | {regained} |")
        print(table[-1], flush=True)
        write_table("slowed", table)  # what is measured stays where the rest is broken off


if __name__ == "__main__":
    main()
