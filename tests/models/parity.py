"""Runs parity_tool (beside this file; see there for the tasks), and what its tests compare with."""
import functools
import json
import os
import pathlib
import sys

import torch
import torchvision
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from fork_server import ForkServer  # noqa: E402

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "parity_tool"
CLASSES = 10
BATCH = 4
SIZE = 64


@functools.cache
def server():
    return ForkServer(TOOL, dict(os.environ))


def run_tool(folder, inputs, labels=None, weights=None, model="resnet18", optimizer=None, **job):
    """Runs parity_tool in `folder` on images or tokens; what it wrote, by name."""
    tensors = {"images" if inputs.dim() == 5 else "tokens": inputs.contiguous()}
    if labels is not None:
        tensors["labels"] = labels
    for name, tensor in (weights or {}).items():
        tensors["model." + name] = tensor.contiguous()
    save_file(tensors, folder / "input.safetensors")
    job = {"input": "input.safetensors", "output": "output.safetensors", "classes": CLASSES} | job
    sections = {"model": model if isinstance(model, dict) else {"name": model},
                "optimizer": optimizer or {"name": "sgd"}}
    # Strings, numbers and booleans look the same in JSON and in TOML.
    lines = [f"{key} = {json.dumps(value)}" for key, value in job.items()]
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    (folder / "job.toml").write_text("\n".join(lines) + "\n")
    done = server().run(folder / "job.toml")
    assert done.returncode == 0, done.stderr
    output = folder / "output.safetensors"
    result = json.loads(output.read_text()) if job.get("task") == "shapes" else load_file(output)
    for name in ("input.safetensors", "output.safetensors"):  # hundreds of megabytes in all
        (folder / name).unlink()
    return result


def shapes_of(make, **options):
    """Dtypes and shapes of a Python model's weights as parity_tool's task "shapes" gives them, without memory."""
    names = {torch.float32: "Float", torch.int64: "Long"}
    with torch.device("meta"):
        state = make(**options).state_dict()
    return {name: [names[tensor.dtype], *tensor.shape] for name, tensor in state.items()}


def batches(count, dtype=torch.float32, size=SIZE):
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(count, BATCH, 3, size, size, generator=generator).to(dtype)
    return images, torch.randint(CLASSES, (count, BATCH), generator=generator)


def layout(channels_last):
    """Both sides use the same: another layout takes other kernels, and at fp32 the roundings of two
    layouts alone put ResNet-50's first gradients 6e-2 apart."""
    return torch.channels_last if channels_last else torch.contiguous_format


def as_used(model):
    """Gives the norms of a model weights and statistics as after some training; and nothing else is
    so small that it would not count."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            module.num_batches_tracked.fill_(100)
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.LayerNorm)):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    for name, parameter in model.named_parameters():
        if name.endswith(("layer_scale", "gamma")):
            torch.nn.init.uniform_(parameter, 0.1, 0.5)
        elif not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def used_model(name, dtype=torch.float32, channels_last=False):
    """A torchvision model whose norms have weights and statistics as after some training."""
    torch.manual_seed(3)
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    return as_used(model).to(dtype, memory_format=layout(channels_last))


def relative_error(ours, theirs):
    """Of a tensor as a whole: the norm of the difference over the norm."""
    difference = torch.linalg.vector_norm((ours - theirs).double())
    return (difference / torch.linalg.vector_norm(theirs.double())).item()


def worst(ours, theirs):
    """The largest relative error over all tensors, and its tensor's name."""
    assert ours.keys() == theirs.keys()
    return max((relative_error(ours[name], theirs[name]), name) for name in theirs)
