#!/usr/bin/env python3
"""One training step in PyTorch on the CPU: autocast, channels_last, SGD with momentum.

The peer of benchmarks/step.toml. It trains on tensors that are in memory already, so the loader is
no part of it. --mode plain: as a tutorial has it. --mode tuned: as an expert would, with the fused
optimizer and a loss that is read every tenth step (benchmarks/run preloads tcmalloc too). --mode
compile: that, and torch.compile of the model. Prints one JSON line; "step_s" is the median over the
steps after warm-up.
"""
import argparse
import json
import statistics
import time

import torch
import torchvision


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=["resnet18", "resnet50", "mlp"], default="resnet50")
    parser.add_argument("--mode", choices=["plain", "tuned", "compile"], default="plain")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, help="PyTorch's own choice where not given")
    parser.add_argument("--image-size", type=int, default=224)
    return parser.parse_args()


def build(args):
    """The model, and its images and labels."""
    channels, classes = (1, 10) if args.model == "mlp" else (3, 1000)
    images = torch.randn(args.batch, channels, args.image_size, args.image_size)
    labels = torch.randint(classes, (args.batch,))
    if args.model != "mlp":
        model = getattr(torchvision.models, args.model)(num_classes=classes)
        return (model.to(memory_format=torch.channels_last),
                images.contiguous(memory_format=torch.channels_last), labels)
    inputs = args.image_size ** 2
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(inputs, 1024), torch.nn.ReLU(inplace=True),
                                torch.nn.Linear(1024, 1024), torch.nn.ReLU(inplace=True),
                                torch.nn.Linear(1024, classes))
    return model, images, labels


def main():
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model, images, labels = build(args)
    is_plain = args.mode == "plain"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=not is_plain)
    forward = torch.compile(model) if args.mode == "compile" else model
    read_every = 1 if is_plain else 10

    times = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        if step % read_every == 0:
            loss.item()
        times.append(time.perf_counter() - start)
    step_s = statistics.median(times[args.warmup:])
    print(json.dumps({"step_s": step_s, "images_per_s": args.batch / step_s,
                      "threads": torch.get_num_threads(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
