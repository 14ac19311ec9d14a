"""Two pipeline stages of torch.distributed.pipelining over Gloo on the CPU, by 1F1B: the peer of distributed.stages.

usage: torchrun --nproc-per-node 2 pipeline.py --model resnet18|gpt --batch N --micro N --steps N --warmup N

Prints on the last rank, as JSON: step_s (median of the steps, each from the end of the one before).
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torchvision
import transformers
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class GptHalf(torch.nn.Module):
    """Half of a GPT of 25 million parameters; the output layer is a copy of the embedding."""

    def __init__(self, is_first):
        super().__init__()
        whole = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=512, n_positions=128, n_embd=512, n_layer=8, n_head=8, use_cache=False, attn_pdrop=0,
            embd_pdrop=0, resid_pdrop=0))
        gpt = whole.transformer
        if is_first:
            self.wte, self.wpe, self.blocks = gpt.wte, gpt.wpe, gpt.h[:4]
        else:
            self.blocks, self.norm, self.head = gpt.h[4:], gpt.ln_f, whole.lm_head
        self.is_first = is_first

    def forward(self, x):
        if self.is_first:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
            x = x[0] if isinstance(x, tuple) else x
        return x if self.is_first else self.head(self.norm(x))


class Layout(torch.autograd.Function):
    """Gloo sends contiguous tensors alone, convolutions on the CPU are faster with channels last."""

    @staticmethod
    def forward(ctx, x, inside, outside):
        ctx.outside = outside
        return x.contiguous(memory_format=inside)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.contiguous(memory_format=ctx.outside), None, None


class Boundary(torch.nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.formats = inside, outside

    def forward(self, x):
        return Layout.apply(x, *self.formats)


def resnet_half(is_first):
    whole = torchvision.models.resnet18(num_classes=10)
    if is_first:
        half = [whole.conv1, whole.bn1, whole.relu, whole.maxpool, whole.layer1, whole.layer2,
                Boundary(torch.contiguous_format, torch.channels_last)]
    else:
        half = [Boundary(torch.channels_last, torch.contiguous_format), whole.layer3, whole.layer4, whole.avgpool, torch.nn.Flatten(), whole.fc]
    return torch.nn.Sequential(*half).to(memory_format=torch.channels_last)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["resnet18", "gpt"], required=True)
    for name in "batch", "micro", "steps", "warmup":  # batch: of a step
        parser.add_argument("--" + name, type=int, required=True)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    is_first = rank == 0
    if args.model == "gpt":
        half = GptHalf(is_first)
        inputs, labels = torch.randint(0, 512, (2, args.batch, 128))
    else:
        half = resnet_half(is_first)
        inputs = torch.randn(args.batch, 3, 64, 64).to(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (args.batch,))
    stage = PipelineStage(half, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, args.batch // args.micro, loss_fn=lambda logits, labels: (
        torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())))
    optimizer = torch.optim.SGD(half.parameters(), lr=0.01, momentum=0.9, fused=True)

    times = []
    before = time.perf_counter()
    for _ in range(args.warmup + args.steps):
        schedule.step(inputs) if is_first else schedule.step(target=labels, losses=[])
        optimizer.step()
        optimizer.zero_grad()
        now = time.perf_counter()
        times.append(now - before)
        before = now
    if not is_first:
        print(json.dumps({"step_s": statistics.median(times[args.warmup:])}))
    dist.destroy_process_group()


main()
