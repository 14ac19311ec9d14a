#!/usr/bin/env python3
"""What Lightning's BatchSizeFinder or Accelerate's find_executable_batch_size finds under a cap.

The peer of `trainer tune` in benchmarks/tuning.py. The CPU has no cap that PyTorch knows of, so
cap_tensors.cpp is preloaded: an allocation of a tensor over --cap GiB in all fails with the error
that both tools look for. Prints one JSON line:
"micro" (null where the tool ended with an error of another kind, which "error" says), "seconds",
"peak_bytes" (growth of VmHWM), and "steps" further ones that "survived" at that size.
"""
import argparse
import importlib
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

import torch
import torchvision


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tool", choices=["lightning", "accelerate"])
    parser.add_argument("--model", choices=["mlp", "resnet18", "resnet50"], required=True)
    parser.add_argument("--side", type=int, required=True)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--cap", type=float, required=True, help="GiB")
    parser.add_argument("--largest", type=int, default=1 << 20)
    parser.add_argument("--steps", type=int, default=10)
    return parser.parse_args()


def preload_cap(cap_gib):
    """This program again, under the cap."""
    library = pathlib.Path(tempfile.gettempdir()) / f"cap_tensors_{os.getuid()}.so"
    source = pathlib.Path(__file__).with_name("cap_tensors.cpp")
    subprocess.run(["c++", "-std=c++17", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "CAP_TENSORS_BYTES": str(int(cap_gib * 2**30))}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024


def build(args):
    if args.model == "mlp":
        inputs = 3 * args.side ** 2
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(inputs, 256), torch.nn.ReLU(),
                                   torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model = getattr(torchvision.models, args.model)(num_classes=10)
    return model.to(memory_format=torch.channels_last)


def optimizer_of(args, model):
    if args.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-4)
    return torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)


class Samples(torch.utils.data.Dataset):
    def __init__(self, args):
        self.image = torch.randint(256, (3, args.side, args.side), dtype=torch.uint8)
        self.count = args.largest

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.image, index % 10


def train(args, model, optimizer, loader, steps):
    done = 0
    for images, labels in loader:
        optimizer.zero_grad()
        images = images.float().div(255).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        done += 1
        if done == steps:
            break
    return done


def find_with_accelerate(args):
    from accelerate.utils import find_executable_batch_size
    model = build(args)

    @find_executable_batch_size(starting_batch_size=args.largest)
    def attempt(batch_size):
        loader = torch.utils.data.DataLoader(Samples(args), batch_size=batch_size)
        train(args, model, optimizer_of(args, model), loader, 3)
        return batch_size

    return attempt(), model


def find_with_lightning(args):
    import lightning.pytorch as pl
    from lightning.pytorch.tuner import Tuner
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = build(args)
            self.batch_size = 2

        def train_dataloader(self):
            return torch.utils.data.DataLoader(Samples(args), batch_size=self.batch_size)

        def training_step(self, batch, _):
            images = batch[0].float().div(255).contiguous(memory_format=torch.channels_last)
            return torch.nn.functional.cross_entropy(self.model(images), batch[1])

        def configure_optimizers(self):
            return optimizer_of(args, self.model)

    module = Module()
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False,
                         precision="bf16-mixed" if args.bf16 else "32-true")
    size = Tuner(trainer).scale_batch_size(module, mode="binsearch", max_trials=30)
    return size, module.model


def main():
    args = parse_arguments()
    if "CAP_TENSORS_BYTES" not in os.environ:
        preload_cap(args.cap)
    warnings.filterwarnings("ignore")
    os.chdir(os.environ.get("TMPDIR", "/tmp"))  # Lightning keeps a checkpoint in the working folder
    train(args, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10)),
          torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1),
          torch.utils.data.DataLoader(Samples(args), batch_size=2), 1)  # libraries, threads
    importlib.import_module("lightning.pytorch" if args.tool == "lightning" else "accelerate")
    find = find_with_lightning if args.tool == "lightning" else find_with_accelerate
    before = status("VmHWM")
    start = time.perf_counter()
    result = {"tool": args.tool, "micro": None, "survived": 0, "steps": args.steps}
    try:
        result["micro"], model = find(args)
        result["seconds"] = time.perf_counter() - start
        loader = torch.utils.data.DataLoader(Samples(args), batch_size=result["micro"])
        args.steps = min(args.steps, len(loader))
        result["survived"] = train(args, model, optimizer_of(args, model), loader, args.steps)
        result["steps"] = args.steps
    except Exception as error:  # what a user of the tool would see
        result["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    result.setdefault("seconds", time.perf_counter() - start)
    result["peak_bytes"] = status("VmHWM") - before
    print(json.dumps(result))


if __name__ == "__main__":
    main()
