#!/usr/bin/env python3
"""What this machine's steps can't exceed: matrix products and a copy, by PyTorch, as one JSON line.

usage: limits.py [--device cpu|cuda]

Each is the fastest of up to 7, fewer where they take more than ten seconds: "bf16_gflop_per_s" and
"fp32_gflop_per_s" of products of 2048 × 2048 matrices, "copy_gb_per_s" of reading and writing 256 MB.
"""
import argparse
import json
import time

import torch


def fastest_s(work, device, repeats=7):
    def seconds():
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start
    taken = [seconds()]
    while len(taken) < repeats and sum(taken) < 10:
        taken.append(seconds())
    return min(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    side, limits = 2048, {}
    for name, kind in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        a, b = (torch.randn(side, side, device=device).to(kind) for _ in range(2))
        limits[f"{name}_gflop_per_s"] = 2 * side ** 3 / fastest_s(lambda: torch.mm(a, b), device) / 1e9
    source = torch.ones(256_000_000 // 4, device=device)
    target = torch.empty_like(source)
    limits["copy_gb_per_s"] = 2 * source.numel() * 4 / fastest_s(lambda: target.copy_(source), device) / 1e9
    print(json.dumps(limits))


if __name__ == "__main__":
    main()
