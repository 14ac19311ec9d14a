"""Images of flowers in class folders, 16 pixels wide and told apart by colour, and a recipe for them."""
from PIL import Image

COLOURS = {"daisy": (250, 250, 240), "poppy": (220, 30, 20), "violet": (90, 40, 160)}
FLOWERS_RECIPE = """[model]
name = "small_cnn"
[data]
kind = "image_folder"
image_size = 16
resize = 16
[data.train]
path = "train"
[batch]
global = 8
[precision]
mode = "fp32"
[optimizer]
name = "sgd"
learning_rate = 0.05
[train]
epochs = 6
"""


def save_images(folder, names, each):
    """So many of each class; those that are no flowers are black."""
    for name in names:
        (folder / name).mkdir(parents=True)
        red, green, blue = COLOURS.get(name, (0, 0, 0))
        for number in range(each):
            shade = 3 * number
            Image.new("RGB", (16, 16), (red - shade, green, blue + shade)).save(folder / name / f"{number}.png")
    return folder
