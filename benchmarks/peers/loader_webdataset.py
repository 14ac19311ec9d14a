#!/usr/bin/env python3
"""Loads JPEGs from tar shards with the webdataset package, torchvision's decoder and v2 transforms.

A peer of `trainer data bench` on `kind = "webdataset"`. One epoch to warm up, then one that counts,
with workers that stay. Prints one JSON line with images/s.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
import webdataset
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2


def decode(sample):
    data = torch.from_numpy(np.frombuffer(sample["jpg"], np.uint8).copy())
    return transform(decode_jpeg(data, mode=ImageReadMode.RGB)), int(sample["cls"])


transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])


def keep_to_one_thread(_):
    torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    shards = sorted(map(str, args.folder.glob("*.tar")))
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).map(decode).batched(args.batch)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=args.workers, persistent_workers=args.workers > 0,
        worker_init_fn=keep_to_one_thread)

    def epoch():
        return sum(len(images) for images, _ in loader)

    epoch()
    start = time.perf_counter()
    images = epoch()
    print(json.dumps({"images_per_s": images / (time.perf_counter() - start)}))


if __name__ == "__main__":
    main()
