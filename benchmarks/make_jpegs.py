#!/usr/bin/env python3
"""Makes a folder of photograph-like JPEGs: about 500 x 375 pixels and 65 KB, as ImageNet has.

usage: .venv/bin/python benchmarks/make_jpegs.py FOLDER [--count 2000] [--classes 10]

Each image is noise on many scales, the coarser the stronger, as in photographs, under a few flat
shapes with hard edges; 4:2:0, quality 92. The same files on every machine with the same Pillow.
FOLDER holds train/class_00/… and is left alone where it has as many files already.
"""
import argparse
import pathlib

import numpy as np
from PIL import Image, ImageDraw


def image(number):
    random = np.random.default_rng(number)
    height, width = (375, 500) if number % 4 else (500, 375)
    height += int(random.integers(-40, 41))
    width += int(random.integers(-40, 41))
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((3, 60), (8, 40), (24, 22), (70, 14), (200, 9), (500, 5)):
        grid = random.normal(0, strength, (cells, cells, 3)).astype(np.float32)
        grid = 0.75 * grid.mean(2, keepdims=True) + 0.25 * grid  # colours vary less than light
        for channel in range(3):
            layer = Image.fromarray(grid[..., channel]).resize((width, height), Image.Resampling.BICUBIC)
            picture[..., channel] += np.asarray(layer) * (1.0 if cells < 200 else 1.6)
    result = Image.fromarray(np.clip(picture + 120, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(result)
    for _ in range(int(random.integers(2, 7))):
        x, y = random.integers(0, width), random.integers(0, height)
        w, h = random.integers(20, 160, 2)
        colour = tuple(int(c) for c in random.integers(0, 256, 3))
        shape = draw.ellipse if random.integers(2) else draw.rectangle
        shape((int(x), int(y), int(x + w), int(y + h)), outline=colour, width=int(random.integers(1, 6)))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=10)
    args = parser.parse_args()
    if len(list(args.folder.glob("train/*/*.jpg"))) == args.count:
        return
    sizes = []
    for number in range(args.count):
        path = args.folder / "train" / f"class_{number % args.classes:02}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image(number).save(path, quality=92)
        sizes.append(path.stat().st_size)
    print(f"{args.folder}: {args.count} files of {sum(sizes) / len(sizes) / 1000:.0f} KB on average")


if __name__ == "__main__":
    main()
