#!/usr/bin/env python3
"""How data parallel training should scale: a model on paper, no measurement.

usage: benchmarks/scaling_model.py [--json]

ddp: a step of n GPUs takes its compute, and what is left of the sum of gradients once backward is
over. Gradients are summed in buckets while backward runs: two thirds of a step's compute. The bucket
that is filled last can't be hidden. A sum over n ranks by rings moves 2 (n - 1) / n of its bytes over
each link: within a machine of 8 by NVLink, then between machines, each GPU with a network port of
its own and an eighth of the bytes.

fsdp: blocks are gathered in bf16 while the ones before them compute, in forward and in backward, and
their gradients are scattered in bf16 while backward runs; each of the three moves (n - 1) / n of the
bytes. The first block's gather and the last one's sum can't be hidden.
"""
import argparse
import json

BUCKET_BYTES = 25 * 2**20  # distributed.bucket_mib
GPUS = 8  # of a machine
LINKS = {  # bytes a second for one GPU, one way; seconds a hop
    "NVLink 4 (H100, H200): 450 GB/s": (450e9, 3e-6),
    "400 Gbit/s a GPU: 50 GB/s": (50e9, 10e-6),
}
WORK = {
    # images or tokens a second of one GPU, samples a step and GPU, parameters, blocks
    "ResNet-50, batch 256, A100 at 2,500 images/s": (2500, 256, 25.6e6, 16),
    "GPT-2 124M, 64 × 1,024 tokens, H100 at 460 k tokens/s": (460e3, 65536, 124e6, 12),
    "GPT-2 XL 1.6B, 16 × 1,024 tokens, H100 at 42 k tokens/s": (42e3, 16384, 1.56e9, 48),
}
FLOAT32, BF16 = 4, 2
BACKWARD = 2 / 3
REAL = 0.8  # what a ring gets of a link's bytes a second


def ring_s(n, size, link):
    rate, hop = link
    return 2 * (n - 1) / n * size / (rate * REAL) + 2 * (n - 1) * hop if n > 1 else 0.0


def sum_s(n, size):
    inside, between = LINKS.values()
    machines = max(1, n // GPUS)
    return ring_s(min(n, GPUS), size, inside) + ring_s(machines, size / GPUS, between)


def row(strategy, n, compute, communication, exposed):
    return {"strategy": strategy, "gpus": n, "compute_s": compute, "communication_s": communication,
            "exposed_s": exposed, "efficiency": compute / (compute + exposed)}


def ddp(rate, samples, parameters, _, n):
    compute, size = samples / rate, FLOAT32 * parameters
    buckets = max(1, round(size / BUCKET_BYTES))
    last = sum_s(n, size / buckets)
    return row("ddp", n, compute, sum_s(n, size), max(last, sum_s(n, size) - BACKWARD * compute))


def fsdp(rate, samples, parameters, blocks, n):
    compute = samples / rate
    block = sum_s(n, BF16 * parameters / blocks) / 2  # gathered or scattered: half of a sum
    exposed = (max(block, blocks * block - (1 - BACKWARD) * compute)
               + max(block, 2 * blocks * block - BACKWARD * compute))
    return row("fsdp", n, compute, 3 * blocks * block, exposed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    table = {name: [strategy(*work, n) for strategy in (ddp, fsdp) for n in (8, 64, 1024)]
             for name, work in WORK.items()}
    if args.json:
        print(json.dumps(table))
        return
    print("| work | strategy | GPUs | compute | communication | exposed | efficiency |\n|---|---|---|---|---|---|---|")
    for name, rows in table.items():
        for line in rows:
            print(f"| {name} | {line['strategy']} | {line['gpus']:,} | {1000 * line['compute_s']:.1f} ms "
                  f"| {1000 * line['communication_s']:.1f} ms | {1000 * line['exposed_s']:.1f} ms "
                  f"| {100 * line['efficiency']:.1f} % |")


main()
