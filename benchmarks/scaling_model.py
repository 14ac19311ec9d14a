#!/usr/bin/env python3
"""How training on several GPUs should scale: a model on paper, no measurement.

usage: benchmarks/scaling_model.py [--json]

A gathering or a scattering over n ranks moves (n - 1) / n of its bytes over each link, a sum twice as many: by a ring
of n - 1 hops within a machine of 8, then between machines, each GPU with a network port of its own and an eighth of the
bytes. Between machines sums run by trees of log2 n hops, as NCCL's do. With C a step's compute, of which backward is two thirds:

ddp: sums run in buckets while backward computes. Exposed is max(last bucket's sum, all sums - 2/3 C).
zero1: that, and updated parameters are gathered in float32 while the next forward pass waits for them block by block:
    max(a block's gathering, all gatherings - 1/3 C).
fsdp: blocks are gathered in bf16 while the ones before them compute, in forward and in backward, and their gradients
    are scattered in bf16 while backward runs: max(a block's gathering, all gatherings - 1/3 C) + max(a block's
    scattering, all gatherings and scatterings - 2/3 C).
fsdp, shards = 8: the same within a machine; each GPU's eighth of the gradients is then summed over the machines.
stages = 8: a machine is a pipeline by 1F1B of m = 32 micro-batches, so that each GPU idles for 7/32 of its compute;
    the first micro-batch's activations and the last one's gradients are waited for at 7 boundaries; an eighth of the
    gradients is summed over the machines while the last micro-batch goes backward.
"""
import argparse
import json
import math

BUCKET_BYTES = 25 * 2**20  # distributed.bucket_mib
GPUS = 8  # of a machine
NVLINK = (450e9, 3e-6)  # NVLink 4: bytes a second for one GPU, one way; seconds a hop
NETWORK = (50e9, 10e-6)  # 400 Gbit/s a GPU
WORK = {
    # images or tokens a second of one GPU; of those, a step and GPU; parameters; blocks; bytes of each between stages
    "ResNet-50, batch 256, A100 at 2,500 images/s": (2500, 256, 25.6e6, 16, 2 * 512 * 28 * 28),
    "GPT-2 124M, 64 × 1,024 tokens, H100 at 460 k tokens/s": (460e3, 65536, 124e6, 12, 2 * 768),
    "GPT-2 XL 1.6B, 16 × 1,024 tokens, H100 at 42 k tokens/s": (42e3, 16384, 1.56e9, 48, 2 * 1600),
}
FLOAT32, BF16 = 4, 2  # bytes
BACKWARD = 2 / 3
REAL = 0.8  # what a ring gets of a link's bytes a second
MICRO_BATCHES = 32


def ring_s(n, size, link):
    """A gathering, or a scattering."""
    rate, hop = link
    return (n - 1) / n * size / (rate * REAL) + (n - 1) * hop


def tree_s(n, size):
    rate, hop = NETWORK
    return 2 * ((n - 1) / n * size / (rate * REAL) + math.ceil(math.log2(n)) * hop)


def sum_s(n, size):
    return 2 * ring_s(min(n, GPUS), size, NVLINK) + tree_s(n // GPUS, size / GPUS)


def gather_s(n, size):
    return ring_s(min(n, GPUS), size, NVLINK) + ring_s(n // GPUS, size / GPUS, NETWORK)


def buckets_of(size):
    return max(1, round(size / BUCKET_BYTES))


def exposed_s(piece, pieces, hidden):
    """Of so many collectives one after the other, of which the last can't be hidden."""
    return max(piece, pieces * piece - hidden)


def ddp(compute, parameters, _blocks, _boundary, n):
    buckets = buckets_of(FLOAT32 * parameters)
    return exposed_s(sum_s(n, FLOAT32 * parameters / buckets), buckets, BACKWARD * compute)


def zero1(compute, parameters, blocks, boundary, n):
    gather = gather_s(n, FLOAT32 * parameters / blocks)
    return ddp(compute, parameters, blocks, boundary, n) + exposed_s(gather, blocks, (1 - BACKWARD) * compute)


def sharded(compute, blocks, gather, scatter):
    return (exposed_s(gather, blocks, (1 - BACKWARD) * compute)
            + max(scatter, blocks * (gather + scatter) - BACKWARD * compute))


def fsdp(compute, parameters, blocks, _boundary, n):
    block = gather_s(n, BF16 * parameters / blocks)
    return sharded(compute, blocks, block, block)


def fsdp_of_machine(compute, parameters, blocks, _boundary, n):
    size = BF16 * parameters / blocks
    block = ring_s(GPUS, size, NVLINK)
    return sharded(compute, blocks, block, block + tree_s(n // GPUS, size / GPUS))


def stages(compute, parameters, _blocks, boundary, n):
    pass_s = compute / MICRO_BATCHES  # of a stage and micro-batch, forward and backward
    message = GPUS * boundary / MICRO_BATCHES / (NVLINK[0] * REAL) + NVLINK[1]
    size = FLOAT32 * parameters / GPUS
    buckets = buckets_of(size)
    return ((GPUS - 1) * (pass_s + 2 * message)
            + exposed_s(tree_s(n // GPUS, size / buckets), buckets, BACKWARD * pass_s))


STRATEGIES = {"ddp": ddp, "zero1": zero1, "fsdp": fsdp, "fsdp, shards = 8": fsdp_of_machine, "stages = 8": stages}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    worlds = (8, 64, 1024)
    rows = []
    for name, (rate, samples, parameters, blocks, boundary) in WORK.items():
        compute = samples / rate
        for strategy, exposed in STRATEGIES.items():
            rows.append({"work": name, "strategy": strategy, "compute_s": compute,
                         "exposed_s": {n: exposed(compute, parameters, blocks, samples * boundary, n) for n in worlds}})
    if args.json:
        print(json.dumps(rows))
        return
    print("| work | strategy | " + " | ".join(f"{n:,} GPUs" for n in worlds) + " |")
    print("|---|---|" + "---|" * len(worlds))
    for row in rows:
        cells = [f"{100 * row['compute_s'] / (row['compute_s'] + exposed):.1f} % ({1000 * exposed:.1f} ms)"
                 for exposed in row["exposed_s"].values()]
        print(f"| {row['work']} | {row['strategy']} | " + " | ".join(cells) + " |")


main()
