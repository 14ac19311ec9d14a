#!/usr/bin/env python3
"""What the batch tuner finds under caps of memory, and whether runs with it stay inside.

usage: .venv/bin/python benchmarks/tuning.py [--models mlp,resnet18_32] [--precisions fp32,bf16]
       [--optimizers sgd,adamw] [--caps 1,2,4,8] [--further 20] [--peers PYTHON]

For each case: `trainer tune --fresh --json`, then a run of --further steps with the size found, two
micro-batches a step and an evaluation at its end, from whose steps "in steps" is counted. Writes a
table to benchmarks/results/. Sizes are in GiB of device.memory_gib; the largest growth is the run's
VmHWM less that of a run of the same model with two samples a pass, which needs next to nothing beside
its weights, as seen from outside.
"""
import argparse
import datetime
import itertools
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

from programs import SOURCE, TRAINER, commit

MODELS = {"mlp": ("mlp", 28), "resnet18_32": ("resnet18", 32), "resnet18_224": ("resnet18", 224),
          "resnet50_224": ("resnet50", 224)}
MOST = 1 << 20  # samples of a global batch that never bounds the size

RECIPE = """
[model]
name = "{model}"
[data]
kind = "synthetic"
samples = {samples}
height = {side}
width = {side}
eval_samples = {evaluated}
[batch]
global = {batch}
micro = {micro}
[precision]
mode = "{precision}"
[optimizer]
name = "{optimizer}"
learning_rate = 0.0001
[train]
steps = {steps}
[device]
memory_gib = {cap}
[telemetry]
every_steps = 1
tensorboard = false
"""


def recipe(folder, case, batch, micro, steps=1):
    model, side = MODELS[case["model"]]
    path = pathlib.Path(folder) / "job.toml"
    size = batch if isinstance(micro, str) else micro
    path.write_text(RECIPE.format(model=model, side=side, precision=case["precision"], optimizer=case["optimizer"],
                                  cap=case["cap"], batch=batch, micro=micro, steps=steps, samples=batch,
                                  evaluated=min(size, 4096)))
    return path


def run(*args):
    """(stdout, stderr, largest VmHWM in bytes) of a trainer that must succeed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([TRAINER, *map(str, args)], stdout=out, stderr=err)
        most = 0
        while process.poll() is None:
            try:
                for line in open(f"/proc/{process.pid}/status"):
                    if line.startswith("VmHWM:"):
                        most = max(most, int(line.split()[1]) * 1024)
            except OSError:
                pass
            time.sleep(0.02)
        out.seek(0), err.seek(0)
        said = err.read()
        if process.returncode != 0:
            raise SystemExit(said)
        return out.read(), said, most


def measure(case, further):
    with tempfile.TemporaryDirectory() as folder:
        found = json.loads(run("tune", "--fresh", "--json", "--recipe", recipe(folder, case, MOST, '"auto"'))[0])
        micro = found["micro"]
        chosen = next(probe for probe in found["probes"] if probe["micro"] == micro)
        # A step of two micro-batches, as the tuner's own; each epoch is one step and an evaluation.
        _, said, most = run("--recipe", recipe(folder, case, 2 * micro, micro, further), "--output",
                            pathlib.Path(folder) / "run")
        lines = [json.loads(line) for line in (pathlib.Path(folder) / "run" / "metrics.jsonl").open()]
        step_s = statistics.median(line["step_s"] for line in lines if "loss" in line) / 2
        _, _, least = run("--recipe", recipe(folder, case, 4, 2, 1), "--output", pathlib.Path(folder) / "least")
        error = chosen.get("predicted_bytes", chosen["peak_bytes"]) / chosen["peak_bytes"] - 1
        return {"micro": micro, "probes": len(found["probes"]), "fill": chosen["peak_bytes"] / chosen["cap_bytes"],
                "error": error, "seconds": found["seconds"], "steps": found["seconds"] / step_s,
                "short": said.count("out of memory"), "growth": (most - least) / (case["cap"] * 2**30), "most": most - least}


PEERS = {"lightning": "Lightning's BatchSizeFinder", "accelerate": "Accelerate's find_executable_batch_size"}
PATIENCE_S = 1200
PEER_TABLE = [
    "Peers under the same cap on what tensors hold (`benchmarks/peers/cap_tensors.cpp` fails LibTorch's allocations over "
    "it; memory of libraries beside tensors is not capped, while Brim's cap counts it). They search up to four times "
    "Brim's size. \"Peak\" is the growth of VmHWM. \"Further\": micro-batches that went through afterwards, at "
    "that size.", "",
    "| model | precision | optimizer | cap | tool | size | seconds | peak | further |", "|---|---|---|---|---|---|---|---|---|"]


def measure_peer(tool, case, python, largest):
    """A row's cells: size, seconds, peak, whether the further steps went through."""
    model, side = MODELS[case["model"]]
    words = [python, SOURCE / "benchmarks" / "peers" / "batch_size.py", tool, "--model", model, "--side", side,
             "--optimizer", case["optimizer"], "--cap", case["cap"], "--largest", largest]
    words += ["--bf16"] if case["precision"] == "bf16" else []
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"none in {PATIENCE_S} s | – | – | –"
    if done.returncode != 0 or not done.stdout:
        return f"ended with status {done.returncode} | – | – | –"
    result = json.loads(done.stdout.splitlines()[-1])
    size = f"{result['micro']:,}" if result["micro"] else result["error"]
    further = f"{result['survived']} of {result['steps']}" + (" (out of memory)" if "error" in result else "")
    return f"{size} | {result['seconds']:.1f} s | {result['peak_bytes'] / 2**30:.2f} GiB | {further}"


def write_table(args, tree, rows, results, peers):
    """What there is after each case, so that it outlives an end before the last one."""
    date = datetime.date.today().isoformat()
    named = "_".join([args.models, args.precisions, args.optimizers, args.caps]).replace(",", "-")
    out = SOURCE / "benchmarks" / "results" / f"tuning_{date}_{named}.md"
    out.write_text("\n".join([
        f"# {date}, the batch tuner on the CPU", "",
        f"Commit {tree}; made by `benchmarks/tuning.py --models {args.models} --precisions {args.precisions} "
        f"--optimizers {args.optimizers} --caps {args.caps} --further {args.further}`. \"In steps\": the tuner's time "
        "in micro-batches of the size found. \"Short\": times that memory ran out afterwards. \"Growth\": of the "
        "process, beside a run of two samples a pass, of the cap.", "",
        "| model | precision | optimizer | cap | micro | probes | fill | prediction | tuning | in steps | short | growth |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|", *rows, "",
        f"Medians: {statistics.median(r['probes'] for r in results):g} probes, "
        f"{statistics.median(r['steps'] for r in results):.0f} steps; worst prediction "
        f"{100 * max(abs(r['error']) for r in results):.1f} %; least fill {100 * min(r['fill'] for r in results):.1f} %.",
        "", *(PEER_TABLE + peers + [""] if peers else [])]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--optimizers", default="sgd,adamw")
    parser.add_argument("--caps", default="1,2,4,8")
    parser.add_argument("--further", type=int, default=20)
    parser.add_argument("--peers", metavar="PYTHON", help="one that has lightning and accelerate")
    args = parser.parse_args()
    unknown = set(args.models.split(",")) - set(MODELS)
    if unknown:
        parser.error(f"--models: unknown {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    tree = commit()
    rows, results, peers = [], [], []
    for model, precision, optimizer, cap in itertools.product(
            args.models.split(","), args.precisions.split(","), args.optimizers.split(","), args.caps.split(",")):
        case = {"model": model, "precision": precision, "optimizer": optimizer, "cap": float(cap)}
        result = measure(case, args.further)
        results.append(result)
        rows.append(f"| {model} | {precision} | {optimizer} | {cap} GiB | {result['micro']:,} | {result['probes']} "
                    f"| {100 * result['fill']:.1f} % | {100 * result['error']:+.1f} % | {result['seconds']:.1f} s "
                    f"| {result['steps']:.0f} | {result['short']} | {100 * result['growth']:.1f} % |")
        print(rows[-1], flush=True)
        for tool, name in PEERS.items() if args.peers else ():
            peers.append(f"| {model} | {precision} | {optimizer} | {cap} GiB | {name} | "
                         + measure_peer(tool, case, args.peers, 4 * result["micro"]) + " |")
            print(peers[-1], flush=True)
        if args.peers:
            peers.append(f"| {model} | {precision} | {optimizer} | {cap} GiB | Brim | {result['micro']:,} "
                         f"| {result['seconds']:.1f} s | {result['most'] / 2**30:.2f} GiB | {2 * args.further} of "
                         f"{2 * args.further} |")
        write_table(args, tree, rows, results, peers)


if __name__ == "__main__":
    main()
