#!/usr/bin/env python3
"""Writes the UCI handwritten digits as IDX files (the MNIST format) into recipes/data/digits.

    .venv/bin/python scripts/make_digits.py [FOLDER]

1,797 scans of 8x8 pixels with values 0..16, as scikit-learn carries them. Pixels are scaled to
0..255. Every fifth scan, from the first, is held out for testing; the rest is for training. The
same files come out on every run.
"""
import gzip
import pathlib
import struct
import sys

import numpy
from sklearn.datasets import load_digits


def write_idx(path, array):
    """IDX: two zero bytes, 8 for uint8, the rank, big-endian sizes, then the values."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(numpy.uint8).tobytes(), 9, mtime=0))
    print(f"{path}: {array.shape}")


def main():
    default = pathlib.Path(__file__).parent.parent / "recipes/data/digits"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    pixels = numpy.rint(digits.images * 255 / 16)
    is_test = numpy.arange(len(pixels)) % 5 == 0
    for name, chosen in (("train", ~is_test), ("test", is_test)):
        write_idx(folder / f"{name}-images.idx.gz", pixels[chosen])
        write_idx(folder / f"{name}-labels.idx.gz", digits.target[chosen])


if __name__ == "__main__":
    main()
