"""Two processes of PyTorch's DistributedDataParallel over Gloo on the CPU, or with --fsdp of its fully_shard: the
peers of trainer's.

usage: torchrun --nproc-per-node 2 data_parallel.py --model mlp|resnet18|gpt --batch N --steps N --warmup N
           [--no-sum] [--fsdp]

Prints on rank 0, as JSON: step_s (median of the steps, each from the end of the one before). With
--no-sum gradients are not exchanged: the difference is the communication that the step sees.
"""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.distributed as dist
import torchvision
import transformers
from torch.distributed.fsdp import fully_shard


class Gpt(torch.nn.Module):
    """25 million parameters; the output layer is the embedding."""

    def __init__(self):
        super().__init__()
        self.gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=512, n_positions=128, n_embd=512, n_layer=8, n_head=8, use_cache=False, attn_pdrop=0,
            embd_pdrop=0, resid_pdrop=0))

    def forward(self, tokens):
        return self.gpt(tokens).logits


def make_model(name):
    if name == "gpt":
        return Gpt(), (128,)
    if name == "resnet18":
        return torchvision.models.resnet18(num_classes=10), (3, 64, 64)
    layers, width = [torch.nn.Flatten()], 3 * 32 * 32
    for _ in range(3):  # 50 million parameters
        layers += [torch.nn.Linear(width, 4096), torch.nn.ReLU()]
        width = 4096
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)), (3, 32, 32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True)  # of a rank
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--no-sum", action="store_true")
    parser.add_argument("--fsdp", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, shape = make_model(args.model)
    if args.fsdp:  # a unit for each block, and one for the rest
        blocks = (torchvision.models.resnet.BasicBlock, transformers.models.gpt2.modeling_gpt2.GPT2Block)
        mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
        for module in model.modules():
            if isinstance(module, blocks):
                fully_shard(module, mesh=mesh)
        ddp = fully_shard(model, mesh=mesh)
    else:
        if len(shape) == 3:
            model = model.to(memory_format=torch.channels_last)
        ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    # For sharded parameters LibTorch has no fused kernel of SGD.
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9, fused=not args.fsdp)
    if len(shape) == 3:
        inputs = torch.randn(args.batch, *shape).to(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (args.batch,))
    else:
        inputs = torch.randint(0, 512, (args.batch, *shape))
        labels = torch.randint(0, 512, (args.batch, *shape))

    times = []
    before = time.perf_counter()
    for _ in range(args.warmup + args.steps):
        with ddp.no_sync() if args.no_sum else contextlib.nullcontext():
            torch.nn.functional.cross_entropy(ddp(inputs).flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        now = time.perf_counter()
        times.append(now - before)
        before = now
    if dist.get_rank() == 0:
        print(json.dumps({"step_s": statistics.median(times[args.warmup:])}))
    dist.destroy_process_group()


main()
