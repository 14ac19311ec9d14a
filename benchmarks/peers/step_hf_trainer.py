#!/usr/bin/env python3
"""The step of step.py by transformers' Trainer, with the same options but for --mode.

PyTorch's SGD with momentum, no logging, no checkpoints. A step is the time from the end of one to the
end of the next, so what the loop does in between is in it.
"""
import tempfile

import torch
import transformers

import step


class Marks(transformers.TrainerCallback):
    def __init__(self, measured):
        self.measured = measured

    def on_train_begin(self, *_, **__):
        self.measured.mark()

    def on_step_end(self, *_, **__):
        self.measured.mark()


class Trainer(transformers.Trainer):
    def compute_loss(self, model, inputs, **_):
        return step.loss_of(model(inputs["input_ids"]), inputs["following"])


def main():
    args = step.parse_arguments(__doc__)
    if args.model != "gpt":
        raise SystemExit(f"step_hf_trainer.py: expected --model gpt, found {args.model}")
    tokens, following = step.build_data(args)
    rows = [{"input_ids": tokens[i % args.batch], "following": following[i % args.batch]}
            for i in range(args.batch * (args.warmup + args.steps))]
    measured = step.Measured(args)
    model = step.build_model(args)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=args.batch, max_steps=args.warmup + args.steps,
            bf16=args.precision == "bf16", use_cpu=args.device == "cpu", max_grad_norm=0, logging_strategy="no",
            save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False)
        Trainer(model, options, train_dataset=rows, optimizers=(optimizer, schedule),
                callbacks=[Marks(measured)]).train()
    measured.report()


if __name__ == "__main__":
    main()
