"""Data that is slower than the model that learns from it: a tiny model on images of 4 megapixels."""
import numpy as np
from PIL import Image

SLOW_RECIPE = """[run]
name = "slow"
[model]
name = "mlp"
hidden = 8
depth = 1
[data]
kind = "image_folder"
image_size = 32
workers = 1
[data.train]
path = "images"
[batch]
global = 2
micro = 2
[optimizer]
name = "sgd"
learning_rate = 0.01
[train]
steps = 40
epochs = 10
"""


def make_large_images(folder):
    """Eight JPEGs of two classes."""
    y, x = np.mgrid[0:1600, 0:2400]
    for label in "ab":
        (folder / label).mkdir(parents=True)
        for i in range(4):
            pixels = np.stack([(x + 40 * i) % 256, y % 256, (x ^ y) % 256], -1).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.jpg")
