#!/usr/bin/env python3
"""One ResNet-50 training step in PyTorch on the CPU: bf16 autocast, channels_last, SGD momentum.

The peer of benchmarks/resnet50_step.toml. It trains on tensors that are in memory already, so the
loader is no part of it. Prints one JSON line; "step_s" is the median over the steps after warm-up.
"""
import argparse
import json
import statistics
import time

import torch
import torchvision


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, help="PyTorch's own choice where not given")
    parser.add_argument("--image-size", type=int, default=224)
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = torchvision.models.resnet50(num_classes=1000).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(args.batch, 3, args.image_size, args.image_size)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (args.batch,))

    times = []
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
    step_s = statistics.median(times[args.warmup:])
    print(json.dumps({"step_s": step_s, "images_per_s": args.batch / step_s,
                      "threads": torch.get_num_threads(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
