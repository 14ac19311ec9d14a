#!/usr/bin/env python3
"""The step of step.py as timm's train.py takes it, with the same options but for --mode.

timm's own model, optimizer factory, task, meter and, for its kind of precision, autocast: what
train.py builds with `--channels-last --amp --amp-dtype bfloat16 --opt momentum`, without its moving
average of the weights. Its gradient scaler takes part in fp16 only, as in train.py.
"""
import contextlib
import functools

import timm
import timm.optim
import timm.task
import timm.utils
import torch

import step


NAMES = {"vit_s16": "vit_small_patch16_224"}  # where it has another


def main():
    args = step.parse_arguments(__doc__)
    if args.model in ("mlp", "gpt"):
        raise SystemExit(f"step_timm.py: expected a model of images; timm has no {args.model}")
    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True
    images, labels = step.build_data(args)
    measured = step.Measured(args)
    model = timm.create_model(NAMES.get(args.model, args.model), num_classes=1000)
    model.to(device=device, memory_format=torch.channels_last)
    model.train()
    optimizer = timm.optim.create_optimizer_v2(model, opt="momentum", lr=0.1, momentum=0.9, weight_decay=1e-4)
    task = timm.task.ClassificationTask(model, device=device, verbose=False)
    autocast = (functools.partial(torch.autocast, device_type=device.type, dtype=torch.bfloat16)
                if args.precision == "bf16" else contextlib.nullcontext)
    losses = timm.utils.AverageMeter()

    optimizer.zero_grad()
    measured.mark()
    for _ in range(args.warmup + args.steps):
        inputs = images.contiguous(memory_format=torch.channels_last)
        with autocast():
            loss = task(inputs, labels)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.update(loss.item(), inputs.size(0))
        measured.mark()
    measured.report()


if __name__ == "__main__":
    main()
