#!/usr/bin/env python3
"""How much memory weights take while they are loaded: one large safetensors file into a GPT.

usage: .venv/bin/python benchmarks/load_weights.py [--layers 54]

Writes a file with the weights of a GPT of 1,600 wide layers (54: 7 GB), lets `trainer eval` load it
and evaluate one row of 16 tokens, and prints the process's largest VmHWM less that of the same with
one layer, against the difference of the files' sizes. Needs twice the file's size of free memory
where the loader is not as careful as it should be, and its size on the disk.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import numpy

SOURCE = pathlib.Path(__file__).resolve().parents[1]
TRAINER = SOURCE / "build" / "release" / "bin" / "trainer"
WIDTH, HEADS, VOCABULARY, LENGTH = 1600, 25, 50257, 16

RECIPE = """
[model]
name = "gpt"
layers = {layers}
heads = {heads}
width = {width}
pretrained = "{file}"
[data]
kind = "synthetic_tokens"
samples = 1
eval_samples = 1
vocabulary = {vocabulary}
length = {length}
[batch]
global = 1
[precision]
mode = "fp32"
[optimizer]
name = "sgd"
learning_rate = 0.1
momentum = 0.0
"""


def shapes(layers):
    """Names and shapes as transformers has them."""
    yield "transformer.wte.weight", (VOCABULARY, WIDTH)
    yield "transformer.wpe.weight", (LENGTH, WIDTH)
    for i in range(layers):
        block = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            yield f"{block}{norm}.weight", (WIDTH,)
            yield f"{block}{norm}.bias", (WIDTH,)
        for name, wide, out in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            yield f"{block}{name}.weight", (wide, out)
            yield f"{block}{name}.bias", (out,)
    yield "transformer.ln_f.weight", (WIDTH,)
    yield "transformer.ln_f.bias", (WIDTH,)


def write(path, layers):
    header, offset = {}, 0
    for name, shape in shapes(layers):
        size = 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = numpy.random.default_rng(1)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in shapes(layers):
            file.write(random.standard_normal(int(numpy.prod(shape)), dtype=numpy.float32).tobytes())
    return path.stat().st_size


def peak(folder, layers):
    """Sizes in bytes: of the file, and the most that the process held."""
    file = folder / "model.safetensors"
    size = write(file, layers)
    recipe = folder / "job.toml"
    recipe.write_text(RECIPE.format(layers=layers, heads=HEADS, width=WIDTH, file=file, vocabulary=VOCABULARY,
                                    length=LENGTH))
    process = subprocess.Popen([TRAINER, "eval", "--recipe", recipe, "--json"], stdout=subprocess.PIPE, text=True)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"trainer eval ended with {os.waitstatus_to_exitcode(status)}")
    file.unlink()
    return size, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=54)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes, peaks = zip(*(peak(pathlib.Path(folder), layers) for layers in (1, args.layers)))
    more = sizes[1] - sizes[0]
    print(f"file {sizes[1] / 1e9:.2f} GB; {more / 1e9:.2f} GB more weights took {(peaks[1] - peaks[0]) / 1e9:.2f} GB "
          f"more memory: {100 * (peaks[1] - peaks[0]) / more:.1f} %")


if __name__ == "__main__":
    main()
