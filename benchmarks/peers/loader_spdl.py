#!/usr/bin/env python3
"""Loads JPEGs with SPDL: threads in one process, decoding, crop, resize and flip by FFmpeg's filters.

A peer of `trainer data bench`. One epoch to warm up, then one that counts. Prints one JSON line with
images/s and CPU seconds an image.
"""
import argparse
import json
import math
import pathlib
import random
import time

import spdl.io
import torch
from spdl.pipeline import PipelineBuilder


def random_resized_crop():
    """torchvision's distribution of area and ratio, in shares of the image's sides."""
    for _ in range(10):
        area, ratio = random.uniform(0.08, 1), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if width <= 1 and height <= 1:
            break
    else:
        width = height = 1
    left, top = random.uniform(0, 1 - width), random.uniform(0, 1 - height)
    flip = ",hflip" if random.random() < 0.5 else ""
    return (f"crop=floor(iw*{width}):floor(ih*{height}):iw*{left}:ih*{top},"
            f"scale=224:224:flags=bilinear{flip},format=rgb24")


def decode(item):
    path, label = item
    return spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=random_resized_crop()), label


def batch(items):
    buffer = spdl.io.convert_frames([frames for frames, _ in items])
    return torch.from_numpy(spdl.io.to_numpy(buffer)), torch.tensor([label for _, label in items])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    classes = sorted(path for path in args.folder.iterdir() if path.is_dir())
    files = [(str(file), label) for label, path in enumerate(classes) for file in sorted(path.iterdir())]

    def epoch():
        random.shuffle(files)
        builder = PipelineBuilder().add_source(files).pipe(decode, concurrency=args.workers)
        pipeline = builder.aggregate(args.batch).pipe(batch).add_sink(2).build(num_threads=args.workers)
        with pipeline.auto_stop():
            return sum(len(images) for images, _ in pipeline)

    epoch()
    start, start_cpu = time.perf_counter(), time.process_time()
    images = epoch()
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    print(json.dumps({"images_per_s": images / seconds, "cpu_s_per_image": cpu / images}))


if __name__ == "__main__":
    main()
