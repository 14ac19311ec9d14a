"""Each operation of RandAugment, and hue, agrees with torchvision.transforms.v2 on uint8 tensors."""

import os
import subprocess

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

TOOL = os.path.join(os.environ["BRIM_BIN_DIR"], "augment_tool")
SIZES = [(1, 1), (1, 7), (2, 3), (3, 3), (5, 4), (33, 31), (64, 48), (224, 224), (131, 257)]
SPACES = {"rand": v2.RandAugment(), "trivial": v2.TrivialAugmentWide()}
NAMES = list(v2.RandAugment._AUGMENTATION_SPACE)
GEOMETRY = ("ShearX", "ShearY", "Rotate")


def picture(height, width, channels, seed=0):
    """Smooth colours with some noise, and parts of one colour."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        127 + 110 * np.sin(x / (5 + 3 * c) + c) * np.cos(y / (7 + 2 * c)) + random.normal(0, 12, (height, width))
        for c in range(channels)
    ]
    image = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
    image[: height // 5, : width // 3] = 255
    image[height - height // 6 :, width // 2 :] = 40
    return image


def ours(tmp_path, name, magnitudes, image):
    """The image, changed by each magnitude."""
    source, out = tmp_path / "in.raw", tmp_path / "out.raw"
    source.write_bytes(image.tobytes())
    words = [TOOL, "apply", name, source, *image.shape, out, *map(repr, magnitudes)]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.fromfile(out, dtype=np.uint8).reshape(-1, *image.shape)


def theirs(name, magnitude, image):
    tensor = torch.from_numpy(image).permute(2, 0, 1).contiguous()
    if name == "Hue":
        result = v2.functional.adjust_hue(tensor, magnitude)
    else:
        result = SPACES["rand"]._apply_image_or_video_transform(
            tensor, name, magnitude, v2.InterpolationMode.NEAREST, {type(tensor): None}
        )
    return result.permute(1, 2, 0).numpy()


def magnitudes(space, name, height, width):
    done = subprocess.run([TOOL, "magnitudes", space, name, str(height), str(width)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.splitlines()]


def torch_magnitudes(space, name, height, width):
    values, signed = SPACES[space]._AUGMENTATION_SPACE[name]
    values = values(31, height, width)
    return [0.0] * 31 if values is None else values.tolist(), signed


@pytest.mark.parametrize("size", [(1, 1), (224, 224), (97, 331)])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", NAMES)
def test_magnitudes(name, space, size):
    expected, _ = torch_magnitudes(space, name, *size)
    np.testing.assert_allclose(magnitudes(space, name, *size), expected, rtol=3e-7, atol=3e-8)
    if name in ("TranslateX", "TranslateY", "Posterize"):
        assert [int(m) for m in magnitudes(space, name, *size)] == [int(m) for m in expected]


def chosen(name, size):
    """Some of the magnitudes of either space, with their signs."""
    if name == "Hue":
        return [-0.5, -0.3, -0.01, 0.0, 0.1, 0.25, 0.5]
    found = []
    for space in SPACES:
        values, signed = torch_magnitudes(space, name, *size)
        for value in values[:: 30 if size == (131, 257) else 6]:
            found += [value, -value] if signed else [value]
    return sorted(set(found))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*NAMES, "Hue"])
def test_operation(tmp_path, name, size, channels):
    image = picture(*size, channels)
    given = chosen(name, size)
    changed = ours(tmp_path, name, given, image)
    assert len(changed) == len(given)
    for magnitude, found in zip(given, changed):
        off = np.abs(found.astype(int) - theirs(name, magnitude, image))
        where = f"{name} {magnitude}"
        if name in GEOMETRY:
            # Halfway between two pixels, rounding decides; such points lie on a line.
            assert (off.max(axis=2) > 0).sum() <= max(size), where
        else:
            assert off.max() <= 1, where
            assert (off > 0).sum() <= max(3, 0.01 * off.size), where


def test_equalize_and_autocontrast_of_few_values(tmp_path):
    for values in [[7], [3, 250], [0, 255], [100, 101, 102]]:
        image = np.random.default_rng(1).choice(np.array(values, np.uint8), (40, 30, 3))
        for name in ("Equalize", "AutoContrast"):
            np.testing.assert_array_equal(ours(tmp_path, name, [0.0], image)[0], theirs(name, 0.0, image))
