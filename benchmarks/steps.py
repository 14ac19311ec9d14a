"""The benchmarks of one training step, for benchmarks/run: against each peer, in time and memory, and
against itself with other options."""
import collections
import functools
import operator
import os
import pathlib
import statistics
import subprocess
import tempfile

from programs import SOURCE, TRAINER, brim, options, peer, tcmalloc

further = collections.defaultdict(list)  # values of a peer's variants, to be shown beside the best one

# Words of peers/step.py, what benchmarks/step.toml is to be changed to for the same, and how many
# steps are measured (None: --steps). Short steps write a line of metrics every tenth step, as is usual: its
# time is their mean.
TENTH = "telemetry.every_steps=10"
STEPS = {
    "resnet50": (["--batch", 32], [], None),
    "convnext_tiny": (["--model", "convnext_tiny", "--batch", 16], ["model.name=convnext_tiny", "batch.global=16"], None),
    "vit_s16": (["--model", "vit_s16", "--batch", 16], ["model.name=vit_s16", "batch.global=16"], None),
    "inception_v3": (["--model", "inception_v3", "--batch", 16, "--image-size", 299],
                     ["model.name=inception_v3", "batch.global=16", "data.height=299", "data.width=299"], None),
    "gpt": (["--model", "gpt", "--batch", 8], [], None),
    "resnet50_64": (["--batch", 64], ["batch.global=64"], None),
    "resnet18": (["--model", "resnet18", "--batch", 8, "--image-size", 32],
                 ["model.name=resnet18", "batch.global=8", "data.height=32", "data.width=32", TENTH], 100),
    "mlp": (["--model", "mlp", "--batch", 64, "--image-size", 28],
            ["model.name=mlp", "model.hidden=1024", "batch.global=64", "data.height=28", "data.width=28",
             "data.channels=1", "data.classes=10", "data.samples=65536", TENTH], 400),
}
# For CPUs that emulate bf16.
STEPS |= {f"{name}_fp32": ([*words, "--precision", "fp32"], [*sets, "precision.mode=fp32"], measured)
          for name, (words, sets, measured) in STEPS.items()}
# For GPUs, by --device cuda.
STEPS |= {"resnet50_256": (["--batch", 256], ["batch.global=256", "data.workers=4", TENTH], 50),
          "resnet50_8": (["--batch", 8], ["batch.global=8", "train.cuda_graph=true", TENTH], 200),
          "gpt2_16": (["--model", "gpt2", "--batch", 16],
                      ["model.name=gpt2", "model.pad_vocabulary_to=64", "data.length=1024", "batch.global=16", TENTH], 50)}


def step_counts(name):
    """Steps that are measured, and those before them."""
    measured = STEPS[name][2] or options.steps
    return measured, max(options.warmup, measured // 10)


def step_words(name, *sets, count=None):
    """The trainer's, for `count` steps, or for those."""
    place = "cuda:0" if options.device == "cuda" else "cpu"
    sets = [*STEPS[name][1], f'device.select="{place}"', f"train.steps={count or sum(step_counts(name))}", *sets]
    recipe = "step_tokens.toml" if name.startswith("gpt") else "step.toml"
    return ["--recipe", SOURCE / "benchmarks" / recipe, *[word for key in sets for word in ("--set", key)]]


def step_brim(name, *sets):
    lines = brim(*step_words(name, *sets))
    return statistics.median(line["step_s"] for line in lines if line["step"] > step_counts(name)[1])


def step_peer(name, script, *words, value="step_s", **more):
    measured, skipped = step_counts(name)
    return peer(script, *STEPS[name][0], "--device", options.device, "--steps", measured, "--warmup", skipped,
                *words, **more)[value]


def step_expert(name):
    """The fastest of eager, compiled and, on a GPU, compiled with CUDA graphs; on the CPU with tcmalloc."""
    environment = {"LD_PRELOAD": str(tcmalloc())} if options.device == "cpu" else {}
    each = {mode: step_peer(name, "step.py", "--mode", mode, environment=environment) for mode in options.modes}
    for mode, value in each.items():
        further[mode].append(value)
    return min(each.values())


def step_of_others(name, script):
    """By what no set-up of ours brings."""
    return step_peer(name, script, python=options.peers)


def hundred_steps(name, forms_are_known):
    """Seconds from the start of the process until its hundredth step has finished."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {"XDG_CACHE_HOME": cache}
        if forms_are_known:
            brim(*step_words(name, count=2), environment=environment)
        return brim(*step_words(name, count=100), environment=environment)[-1]["process_age_s"]


def growth_brim(name):
    """Bytes by which VmHWM grows, from before the model on. A dry run of a model without weights to
    speak of stands for what is there before it."""
    with tempfile.TemporaryDirectory() as folder:
        words = [[*step_words(name), "--output", pathlib.Path(folder) / "run"],
                 [*step_words(name, "model.name=mlp", "model.hidden=1"), "--dry-run"]]
        return operator.sub(*[peak_bytes([TRAINER, *map(str, each)]) for each in words])


def peak_bytes(command):
    """VmHWM of a process at its end."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_maxrss * 1024


STEP_WORKS = {  # what it is; target against plain, tuned, Lightning
    "resnet50": ("ResNet-50 step, 224 px, batch 32, bf16, channels_last", "≥ 1.65×", "≥ 1.4×", "none"),
    "convnext_tiny": ("ConvNeXt-T step, 224 px, batch 16, bf16, channels_last", "none", "≥ 1.2×", "none"),
    "vit_s16": ("ViT-S/16 step, 224 px, batch 16, bf16", "none", "≥ 1.2×", "none"),
    "inception_v3": ("Inception-v3 step, 299 px, batch 16, bf16, channels_last", "none", "≥ 1.0×", "none"),
    "gpt": ("GPT 4×256 step, vocabulary 50,257, batch 8×256, bf16", "none", "≥ 2.0×", "none"),
    "resnet50_64": ("ResNet-50 step, 224 px, batch 64, bf16, channels_last", "≥ 2.0×", "≥ 1.4×", "none"),
    "resnet18": ("ResNet-18 step, 32 px, batch 8, bf16, channels_last", "≥ 1.6×", "≥ 1.4×", "none"),
    "mlp": ("MLP 784-1024-1024-10 step, bf16, batch 64", "≥ 2.0×", "≥ 1.5×", "≥ 2.5×"),
}
STEP_WORKS |= {f"{name}_fp32": (work.replace("bf16", "fp32"), "none", "none", "none")
               for name, (work, *_) in STEP_WORKS.items()}
GPU_WORKS = {
    "resnet50_256": ("ResNet-50 step, 224 px, batch 256, bf16, channels_last", "none", "≥ 1.0×; eager ≥ 1.3×", "none"),
    "resnet50_8": ("ResNet-50 step, 224 px, batch 8, bf16, channels_last, CUDA graph", "none", "≥ 2.0×", "none"),
    "gpt2_16": ("GPT-2 124 M step, batch 16×1024, bf16", "none", "≥ 1.0×; eager ≥ 1.3×", "none"),
}


def step_benchmarks(works):
    """A step against each peer that takes it."""
    result = {}
    for name, (work, plain, tuned, lightning) in works.items():
        ours = functools.partial(step_brim, name)
        result[f"{name}_step"] = (work, "PyTorch, same settings", plain, ours,
                                  functools.partial(step_peer, name, "step.py", "--mode", "plain"))
        result[f"{name}_step_tuned"] = (work, "PyTorch tuned by an expert, the faster of eager and compiled", tuned,
                                        ours, functools.partial(step_expert, name))
        result[f"{name}_step_lightning"] = (work, "Lightning's Trainer, barebones", lightning, ours,
                                            functools.partial(step_of_others, name, "step_lightning.py"))
        if "gpt" in name:
            result[f"{name}_step_hf_trainer"] = (work, "transformers' Trainer", "none", ours,
                                                 functools.partial(step_of_others, name, "step_hf_trainer.py"))
        elif "mlp" not in name:  # timm has none
            result[f"{name}_step_timm"] = (work, "timm's train loop and model", "none", ours,
                                           functools.partial(step_peer, name, "step_timm.py"))
    return result


GROWTH = "peak memory of the ResNet-50 step, 224 px, batch 32, {}, beyond what is there before the model"
CPU = {
    **step_benchmarks(STEP_WORKS),
    **{f"{name}_memory": (GROWTH.format(kind), "PyTorch, same settings", target,
                          functools.partial(growth_brim, name),
                          functools.partial(step_peer, name, "step.py", "--mode", "plain", value="growth_bytes"))
       for name, kind, target in (("resnet50", "bf16", "≥ 1.25×"), ("resnet50_fp32", "fp32", "none"))},
    **{f"{name}_search": (f"first hundred steps, from the start of the process: {STEP_WORKS[name][0]}",
                          "the same, the faster forms known from a run before", "≥ 0.98×",
                          functools.partial(hundred_steps, name, False), functools.partial(hundred_steps, name, True))
       for name in ("mlp", "resnet18", "gpt", "resnet50")},
    **{f"deterministic_{name}": (STEP_WORKS[name][0] + ", run.deterministic = true", "the same without", "none",
                                 functools.partial(step_brim, name, "run.deterministic=true"),
                                 functools.partial(step_brim, name)) for name in ("resnet18", "mlp")},
}
GPU = step_benchmarks(STEP_WORKS | GPU_WORKS)
