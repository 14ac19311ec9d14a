#!/usr/bin/env python3
"""The first training step of recipes/digits.toml as a Python user would write it with PyTorch.

The peer of benchmarks/digits_start.toml. Prints one JSON line; "first_step_s" is the time from the
start of this process (as the kernel has it) until the first step has finished.
"""
import gzip
import json
import os
import pathlib
import struct
import time

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "data" / "digits"


def process_age_s():
    """Seconds since the kernel started this process; it counts in hundredths."""
    stat = pathlib.Path("/proc/self/stat").read_text()
    started_ticks = int(stat.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


def read_idx(path):
    """An IDX file of bytes, gzip-compressed: two zero bytes, 8, the rank, big-endian sizes, values."""
    content = bytearray(gzip.decompress(path.read_bytes()))
    zero, kind, rank = struct.unpack_from(">HBB", content)
    assert (zero, kind) == (0, 8), f"{path}: not an IDX file of bytes"
    sizes = struct.unpack_from(f">{rank}I", content, 4)
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * rank).reshape(sizes)


def main():
    torch.manual_seed(1)
    images = read_idx(DIGITS / "train-images.idx.gz").unsqueeze(1).float() / 255
    labels = read_idx(DIGITS / "train-labels.idx.gz").long()
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Flatten(),
                                torch.nn.Linear(64, 256), torch.nn.ReLU(inplace=True),
                                torch.nn.Linear(256, 256), torch.nn.ReLU(inplace=True),
                                torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    batch_images, batch_labels = next(iter(loader))
    optimizer.zero_grad()
    loss = cross_entropy(model(batch_images), batch_labels)
    loss.backward()
    optimizer.step()
    print(json.dumps({"first_step_s": process_age_s(), "loss": loss.item(),
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
