#!/usr/bin/env python3
"""Loads JPEGs as torchvision's users do: decode_jpeg and v2 transforms on uint8 tensors in a DataLoader.

With --pillow, by Pillow's images instead, whose resize is the fast one where PYTHONPATH leads to Pillow-SIMD.
The peer of `trainer data bench`. One epoch to warm up, then one that counts, with workers that stay.
Prints one JSON line with images/s and CPU seconds an image, workers included.
"""
import argparse
import json
import os
import pathlib
import time

import PIL.Image
import torch
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2


class Folder(torch.utils.data.Dataset):
    def __init__(self, root, pillow):
        classes = sorted(path for path in root.iterdir() if path.is_dir())
        self.files = [(str(file), label) for label, path in enumerate(classes) for file in sorted(path.iterdir())]
        last = [v2.PILToTensor()] if pillow else []
        self.transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), *last])
        self.decode = (lambda path: PIL.Image.open(path).convert("RGB")) if pillow else (
            lambda path: decode_jpeg(read_file(path), mode=ImageReadMode.RGB))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        return self.transform(self.decode(path)), label


def keep_to_one_thread(_):
    torch.set_num_threads(1)


def cpu_s(processes):
    """User and system time of this process and of `processes`, as /proc has them."""
    ticks = 0
    for process in ("self", *processes):
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pillow", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Folder(args.folder, args.pillow)
    loader = torch.utils.data.DataLoader(
        dataset, args.batch, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0,
        worker_init_fn=keep_to_one_thread)

    def epoch():
        return sum(len(images) for images, _ in loader)

    epoch()
    workers = [worker.pid for worker in loader._iterator._workers] if args.workers else []
    start, start_cpu = time.perf_counter(), cpu_s(workers)
    images = epoch()
    seconds, cpu = time.perf_counter() - start, cpu_s(workers) - start_cpu
    print(json.dumps({"images_per_s": images / seconds, "cpu_s_per_image": cpu / images,
                      "pillow": PIL.__version__}))


if __name__ == "__main__":
    main()
