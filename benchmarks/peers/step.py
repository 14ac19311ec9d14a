#!/usr/bin/env python3
"""One training step in PyTorch: autocast, channels_last, SGD with momentum.

The peer of benchmarks/step.toml and step_tokens.toml, on torchvision's models, timm's where torchvision has none,
and transformers' GPT-2. It trains on tensors that are on the device already, so the loader
is no part of it. --mode plain: as a tutorial has it. --mode tuned: as an expert would, with the fused
optimizer, cuDNN's own search for algorithms and a loss that is read every tenth step (benchmarks/run
preloads tcmalloc too). --mode compile: that, and torch.compile of the model. --mode graphs: the same
with mode="reduce-overhead", which is CUDA graphs on a GPU. Prints one JSON line: "step_s" is the median over the
steps after warm-up, "growth_bytes" by how much the process's peak memory (VmHWM) grew from before
the model on; on a GPU it is the peak of PyTorch's allocator.
"""
import argparse
import itertools
import json
import pathlib
import re
import statistics
import time

import torch

COMPILED = {"compile": {}, "graphs": {"mode": "reduce-overhead"}}
VOCABULARY, LENGTH = 50257, 256  # of the GPT
# Of GPT-2 with 124 M parameters: the embedding is padded to what is fast on GPUs, as nanoGPT does.
GPT2 = {"vocab_size": 50304, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def parse_arguments(description=__doc__):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="resnet50",
                        choices=["resnet18", "resnet50", "convnext_tiny", "inception_v3", "vit_s16", "gpt", "gpt2", "mlp"])
    parser.add_argument("--mode", choices=["plain", "tuned", "compile", "graphs"], default="plain")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, help="PyTorch's own choice where not given")
    parser.add_argument("--image-size", type=int, default=224)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    torch.backends.cudnn.allow_tf32 = False  # fp32 is fp32, as in Brim; matrix products have it so by default
    return args


def build_data(args):
    """Images and labels of one batch, or tokens and those that follow them."""
    if args.model in ("gpt", "gpt2"):
        length = LENGTH if args.model == "gpt" else GPT2["n_positions"]
        return tuple(torch.randint(VOCABULARY, (args.batch, length), device=args.device) for _ in range(2))
    channels, classes = (1, 10) if args.model == "mlp" else (3, 1000)
    images = torch.randn(args.batch, channels, args.image_size, args.image_size, device=args.device)
    labels = torch.randint(classes, (args.batch,), device=args.device)
    return images if args.model == "mlp" else images.contiguous(memory_format=torch.channels_last), labels


def build_model(args):
    if args.model in ("gpt", "gpt2"):
        import transformers
        sizes = GPT2 if args.model == "gpt2" else {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 256,
                                                   "n_layer": 4, "n_head": 4}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            **sizes, use_cache=False, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)).to(args.device)
    if args.model == "vit_s16":
        import timm
        return timm.create_model("vit_small_patch16_224").to(args.device, memory_format=torch.channels_last)
    if args.model != "mlp":
        import torchvision
        more = {"init_weights": True} if args.model == "inception_v3" else {}  # its own, as its warning asks for
        model = getattr(torchvision.models, args.model)(num_classes=1000, **more)
        return model.to(args.device, memory_format=torch.channels_last)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(args.image_size ** 2, 1024),
                               torch.nn.ReLU(inplace=True), torch.nn.Linear(1024, 1024), torch.nn.ReLU(inplace=True),
                               torch.nn.Linear(1024, 10)).to(args.device)


def loss_of(outputs, labels):
    """Mean cross-entropy of what the model gives for a batch."""
    loss = torch.nn.functional.cross_entropy
    if hasattr(outputs, "aux_logits"):  # Inception's second classifier
        return loss(outputs.logits, labels) + 0.4 * loss(outputs.aux_logits, labels)
    if hasattr(outputs, "logits"):
        return loss(outputs.logits.flatten(0, 1), labels.flatten())
    return loss(outputs, labels)


class Measured:
    """Begins before the model is built; mark() ends a step, report() prints the line."""

    def __init__(self, args):
        self.args, self.marks = args, []
        self.start_bytes = self.peak_bytes()

    def peak_bytes(self):
        if self.args.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return 1024 * int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1])

    def mark(self):
        """Before the first step, and after each one. A GPU works behind the host: its own events tell."""
        if self.args.device == "cuda":
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def step_times(self):
        if self.args.device == "cuda":
            torch.cuda.synchronize()
            return [begin.elapsed_time(end) / 1000 for begin, end in itertools.pairwise(self.marks)]
        return [end - begin for begin, end in itertools.pairwise(self.marks)]

    def report(self):
        times = self.step_times()
        assert len(times) == self.args.warmup + self.args.steps, "a step went unmeasured"
        step_s = statistics.median(times[self.args.warmup:])
        print(json.dumps({"step_s": step_s, "images_per_s": self.args.batch / step_s, "first_step_s": times[0],
                          "growth_bytes": self.peak_bytes() - self.start_bytes,
                          "threads": torch.get_num_threads(), "torch": torch.__version__}))


def main():
    args = parse_arguments()
    images, labels = build_data(args)
    measured = Measured(args)
    model = build_model(args)
    is_plain = args.mode == "plain"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=not is_plain)
    torch.backends.cudnn.benchmark = not is_plain
    forward = torch.compile(model, **COMPILED[args.mode]) if args.mode in COMPILED else model
    read_every = 1 if is_plain else 10

    measured.mark()
    for step in range(args.warmup + args.steps):
        optimizer.zero_grad()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = loss_of(forward(images), labels)
        loss.backward()
        optimizer.step()
        if step % read_every == 0:
            loss.item()
        measured.mark()
    measured.report()


if __name__ == "__main__":
    main()
