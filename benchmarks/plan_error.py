#!/usr/bin/env python3
"""How far `trainer plan` is off: memory and time of steps, predicted and measured, and whether its choice is the best.

usage: .venv/bin/python benchmarks/plan_error.py [--ranks 2,4] [--steps 12] [--only gpt,resnet18] [--most N]

For each model and number of CPU ranks one plan, then a run of each of 14 combinations: ddp, zero1 and fsdp with the
rank's whole share as micro-batch, and they and two stages with a quarter of it, each without recompute and with all
blocks. Memory is the most that tensors of rank 0, or of any stage, held (run.json), time the median of the steps after the first two. The choice
is the combination that the plan ranks first among them; it is held against the fastest one measured.
Writes a table to benchmarks/results/. Nothing else should run on the machine meanwhile.
"""
import argparse
import itertools
import json
import pathlib
import statistics
import tempfile

from programs import SOURCE, TRAINER, output_of
from slowed import measured_by, write_table

MODELS = {"gpt": "data_parallel_gpt.toml", "resnet18": "data_parallel_resnet18.toml"}
SETS = {"precision.fused": "true", "checkpoint.enabled": "false", "eval.enabled": "false"}
STRATEGIES = {"ddp": {}, "zero1": {"distributed.zero": "true"}, "fsdp": {"distributed.strategy": "fsdp"},
              "stages": {"distributed.stages": 2}}
WARM_UP = 2


def words(model, ranks, keys):
    return [SOURCE / "benchmarks" / MODELS[model], "--devices", ",".join(["cpu"] * ranks),
            *(word for key, value in keys.items() for word in ("--set", f"{key}={value}"))]


def measured(model, ranks, keys, steps):
    """Peak bytes and seconds of a step of a run."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        output_of([TRAINER, "train", *words(model, ranks, {**SETS, **keys, "train.steps": steps}), "--output", run])
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        times = [line["step_s"] for line in lines if line.get("step", 0) > WARM_UP and "step_s" in line]
        memory = json.loads((run / "run.json").read_text())["memory"]
        return max([memory["peak_bytes"], *memory.get("stage_peak_bytes", [])]), statistics.median(times)


def combinations(plan):
    """The rows of the plan that are run, by its own order."""
    whole = max(row["micro"] for row in plan["candidates"])
    wanted = set(itertools.product(STRATEGIES, (max(1, whole // 4), whole), (False, True)))
    return [row for row in plan["candidates"]
            if row["shards"] == 0 and row["stages"] in (1, 2) and (row["strategy"], row["micro"], bool(row["recompute"])) in wanted]


def off(measured_value, predicted):
    return 100 * (predicted / measured_value - 1)


def compare(model, ranks, steps, most):
    plan = json.loads(output_of([TRAINER, "plan", *words(model, ranks, SETS), "--json"]))
    rows = []
    for way in combinations(plan)[:most]:
        recompute = '["*"]' if way["recompute"] else "[]"
        keys = {**STRATEGIES[way["strategy"]], "batch.micro": way["micro"], "train.recompute": recompute}
        peak, step_s = measured(model, ranks, keys, steps)
        rows.append({**way, "measured_bytes": peak, "measured_s": step_s})
        print(model, ranks, way["strategy"], way["micro"], recompute, f"memory {off(peak, way['peak_bytes']):+.1f} %",
              f"time {off(step_s, way['step_s']):+.0f} %", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--most", type=int, default=14, help="combinations of each model and number of ranks")
    given = parser.parse_args()
    command = (f"benchmarks/plan_error.py --ranks {given.ranks} --steps {given.steps} --only {given.only} "
               f"--most {given.most}")
    table = [measured_by(command),
             "| model | ranks | strategy | micro | recompute | predicted | measured | off | predicted | measured | off |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    memory, times, choices = [], [], []
    for model, ranks in itertools.product(given.only.split(","), map(int, given.ranks.split(","))):
        rows = compare(model, ranks, given.steps, given.most)
        for row in rows:
            memory.append(off(row["measured_bytes"], row["peak_bytes"]))
            times.append(off(row["measured_s"], row["step_s"]))
            table.append(f"| {model} | {ranks} | {row['strategy']} | {row['micro']} | {'all' if row['recompute'] else 'none'} "
                         f"| {row['peak_bytes'] / 2**20:.0f} MiB | {row['measured_bytes'] / 2**20:.0f} MiB | {memory[-1]:+.1f} % "
                         f"| {1000 * row['step_s']:.0f} ms | {1000 * row['measured_s']:.0f} ms | {times[-1]:+.0f} % |")
        chosen = min(rows, key=lambda row: row["step_s"])
        best = min(rows, key=lambda row: row["measured_s"])
        choices.append(f"{model} on {ranks} ranks: {chosen['strategy']}, micro {chosen['micro']}, which takes "
                       f"{100 * (chosen['measured_s'] / best['measured_s'] - 1):.0f} % longer than the fastest measured")
    table += ["", f"Memory off by at most {max(map(abs, memory)):.1f} %, median {statistics.median(map(abs, memory)):.1f} %; "
              f"time by a median of {statistics.median(map(abs, times)):.0f} %.", "", "Chosen:", ""]
    table += [f"- {choice}." for choice in choices]
    write_table("plan_error", table)


if __name__ == "__main__":
    main()
