#!/usr/bin/env python3
"""What data cost by a run's own record, against `trainer doctor RUN --prove`, for samples of several sizes.

usage: .venv/bin/python benchmarks/data_cost.py

Each run trains for about half a minute on a CPU; --prove then takes its steps on preloaded samples. Both say which
share of the run's time its data cost: medians of three rounds, with the range of the proofs. Writes a table to benchmarks/results/. Needs a quiet machine.
"""
import argparse
import json
import pathlib
import statistics
import tempfile

from programs import SOURCE, TRAINER, output_of
from slowed import make_images, measured_by, steps_of, train, write_table

RUN_S = 30
ROUNDS = 3
CASES = [("small_cnn", 256, 64), ("small_cnn", 600, 64), ("small_cnn", 2000, 64),
         ("resnet18", 300, 64), ("resnet18", 800, 64), ("resnet18", 2400, 96)]  # model, side of a JPEG, image_size
RECIPE = """[model]
name = "{model}"
[data]
kind = "image_folder"
image_size = {size}
[data.train]
path = "{images}"
[batch]
global = 16
[optimizer]
name = "sgd"
learning_rate = 0.001
[eval]
enabled = false
"""


def measure(model, side, size):
    images = SOURCE / "build" / "benchmarks" / f"jpegs-{side}"
    make_images(images, 256 if side < 1000 else 64, side, side)
    with tempfile.TemporaryDirectory() as scratch:
        recipe, run = pathlib.Path(scratch) / "recipe.toml", pathlib.Path(scratch) / "run"
        recipe.write_text(RECIPE.format(model=model, size=size, images=images))
        steps = steps_of(train(recipe, run, 40), RUN_S)
        rounds = []
        for _ in range(ROUNDS):
            lines = train(recipe, run, steps)
            proof = json.loads(output_of([TRAINER, "doctor", run, "--prove", "--json"]))["proof"]
            rounds.append((statistics.median(line["step_s"] for line in lines), proof["waited_for_data"],
                           proof["recorded"], proof["gap"]))
    return [*zip(*rounds)]


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    table = [measured_by("benchmarks/data_cost.py"),
             "| model | JPEG | step | waits for data | data cost, by the record | by --prove |",
             "|---|---|---|---|---|---|"]
    for model, side, size in CASES:
        steps_s, waits, recorded, proved = measure(model, side, size)
        step_s, waited, by_record, by_proof = map(statistics.median, (steps_s, waits, recorded, proved))
        table.append(f"| {model}, {size} px | {side} px | {1e3 * step_s:.0f} ms | {100 * waited:.0f} % "
                     f"| {100 * by_record:.0f} % "
                     f"| {100 * by_proof:.0f} % ({100 * min(proved):.0f} to {100 * max(proved):.0f} %) |")
        print(table[-1], flush=True)
    write_table("data_cost", table)


if __name__ == "__main__":
    main()
