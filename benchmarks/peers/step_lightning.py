#!/usr/bin/env python3
"""The step of step.py by Lightning's Trainer, with the same options but for --mode.

Trainer(barebones=True) is what Lightning documents for measuring speed: no logger, progress bar,
checkpoint, summary or sanity check. The optimizer is PyTorch's fused one. A step is the time from the
end of one batch to the end of the next, so what the loop does in between is in it.
"""
import itertools
import logging
import warnings

import torch
import lightning.pytorch as pl

import step


class Module(pl.LightningModule):
    def __init__(self, args, measured):
        super().__init__()
        self.model, self.measured = step.build_model(args), measured

    def training_step(self, batch, _):
        images, labels = batch
        return step.loss_of(self.model(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)

    def on_train_start(self):
        self.measured.mark()

    def on_train_batch_end(self, *_):
        self.measured.mark()


class Repeated:
    """One batch, again and again."""

    def __init__(self, batch, count):
        self.batch, self.count = batch, count

    def __iter__(self):
        return itertools.repeat(self.batch, self.count)

    def __len__(self):
        return self.count


def main():
    args = step.parse_arguments(__doc__)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    batch = step.build_data(args)
    measured = step.Measured(args)
    module = Module(args, measured)
    trainer = pl.Trainer(accelerator="gpu" if args.device == "cuda" else "cpu", devices=1, barebones=True,
                         max_steps=args.warmup + args.steps,
                         precision="bf16-mixed" if args.precision == "bf16" else "32-true")
    trainer.fit(module, Repeated(batch, args.warmup + args.steps))
    measured.report()


if __name__ == "__main__":
    main()
