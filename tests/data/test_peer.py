"""What is read agrees with what Pillow, torchvision and numpy read."""

import hashlib
import os
import pathlib
import pickle
import subprocess
import zlib

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image, ImageOps
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2

TOOL = os.path.join(os.environ["BRIM_BIN_DIR"], "data_tool")
SIZES = [(1, 1), (7, 5), (64, 48), (333, 500)]


def tool(*words):
    done = subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pixels(command, path, *words):
    out = path.with_suffix(".raw")
    height, width = map(int, tool(command, path, *words, out).split())
    return np.fromfile(out, dtype=np.uint8).reshape(height, width, 3)


def picture(height, width, channels=3, seed=0):
    """Smooth colours with some noise, as photographs have."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        127 + 80 * np.sin(x / (5 + 3 * c) + c) * np.cos(y / (7 + 2 * c)) + random.normal(0, 8, (height, width))
        for c in range(channels)
    ]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def torch_rgb(path):
    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    return decode_image(data, ImageReadMode.RGB, apply_exif_orientation=True).permute(1, 2, 0).numpy()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"quality": 30},
        {"quality": 100, "subsampling": 0},
        {"subsampling": 1},
        {"progressive": True},
        {"optimize": True},
        {"restart_marker_blocks": 3},
    ],
    ids=str,
)
def test_jpeg_equals_torchvision(tmp_path, size, options):
    path = tmp_path / "x.jpg"
    Image.fromarray(picture(*size)).save(path, **options)
    np.testing.assert_array_equal(pixels("decode", path), torch_rgb(path))


def test_grayscale_jpeg(tmp_path):
    path = tmp_path / "x.jpg"
    Image.fromarray(picture(50, 60, 1)[..., 0]).save(path)
    np.testing.assert_array_equal(pixels("decode", path), torch_rgb(path))


def test_cmyk_jpeg(tmp_path):
    path = tmp_path / "x.jpg"
    Image.fromarray(picture(50, 60, 4), "CMYK").save(path, quality=95)
    ours = pixels("decode", path).astype(int)
    pillow = np.asarray(Image.open(path).convert("RGB")).astype(int)
    assert np.abs(ours - pillow).max() <= 1


PNG_KINDS = {
    "L": lambda: Image.fromarray(picture(40, 50, 1)[..., 0]),
    "RGB": lambda: Image.fromarray(picture(40, 50)),
    "P": lambda: Image.fromarray(picture(40, 50)).quantize(64),
    "P2": lambda: Image.fromarray(picture(40, 50)).quantize(3),
    "1": lambda: Image.fromarray(picture(40, 50, 1)[..., 0]).convert("1"),
}


@pytest.mark.parametrize("kind", PNG_KINDS)
def test_png_equals_pillow(tmp_path, kind):
    path = tmp_path / "x.png"
    image = PNG_KINDS[kind]()
    image.save(path)
    np.testing.assert_array_equal(pixels("decode", path), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_png_alpha_is_dropped(tmp_path, mode):
    path = tmp_path / "x.png"
    image = Image.fromarray(picture(40, 50, len(mode)), mode)
    image.save(path)
    np.testing.assert_array_equal(pixels("decode", path), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_png_transparent_colour_is_dropped(tmp_path, mode):
    path = tmp_path / "x.png"
    image = PNG_KINDS[mode]()
    image.save(path, transparency=(1, 2, 3) if mode == "RGB" else 5)
    np.testing.assert_array_equal(pixels("decode", path), np.asarray(image.convert("RGB")))


def png_chunk(kind, data):
    body = kind + data
    return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def write_png(path, rows, colour_type, depth, interlace=0):
    """A PNG of `rows` passes, each [height, width, bytes]; Pillow writes neither 16-bit RGB nor Adam7."""
    height, width = rows[0]
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([depth, colour_type, 0, 0, interlace])
    data = b"".join(b"\0" + row.tobytes() for image in rows[1:] for row in image)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + png_chunk(b"IDAT", zlib.compress(data)) + png_chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("colour_type,channels", [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_png_16_bit(tmp_path, colour_type, channels):
    path = tmp_path / "x.png"
    values = np.random.default_rng(0).integers(0, 65536, (20, 30, channels))
    write_png(path, [(20, 30), values.astype(">u2").reshape(20, -1)], colour_type, 16)
    colours = values[..., : 1 if channels < 3 else 3]
    expected = np.broadcast_to((colours * 255 + 32767) // 65535, (20, 30, 3))
    np.testing.assert_array_equal(pixels("decode", path), expected)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (21, 34)])
def test_png_interlaced(tmp_path, size):
    path = tmp_path / "x.png"
    image = picture(*size)
    steps = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    passes = [image[y::dy, x::dx] for y, x, dy, dx in steps]
    write_png(path, [size, *(p for p in passes if p.size)], 2, 8, interlace=1)
    np.testing.assert_array_equal(pixels("decode", path), image)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_exif_orientation(tmp_path, orientation, suffix):
    path = tmp_path / f"x.{suffix}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(picture(40, 56)).save(path, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    np.testing.assert_array_equal(pixels("decode", path), expected)


FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def torch_resized(image, target, name):
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    mode = getattr(v2.InterpolationMode, name.upper())
    return v2.functional.resize(tensor, list(target), mode, antialias=True).permute(1, 2, 0).numpy().astype(int)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("size", [(60, 80), (333, 500), (31, 200)])
@pytest.mark.parametrize("target", [(224, 224), (17, 90), (60, 80), (1, 1), (400, 12)])
def test_resize_equals_pillow_and_torchvision(tmp_path, size, target, name):
    path = tmp_path / "x.png"
    image = Image.fromarray(picture(*size))
    image.save(path)
    ours = pixels("resize", path, name, 0, 0, *size, *target).astype(int)
    pillow = np.asarray(image.resize((target[1], target[0]), FILTERS[name])).astype(int)
    # Rounding twice in another order; bicubic weights of up to 1.2 carry the first error on.
    assert np.abs(ours - pillow).max() <= (1 if name == "bilinear" else 2)
    assert np.abs(ours - pillow).mean() < 0.25
    assert np.abs(ours - torch_resized(image, target, name)).mean() < 1


JPEG_KINDS = {
    "4:2:0": {},
    "4:2:2": {"subsampling": 1},
    "4:4:4": {"subsampling": 0},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 3},
    "grayscale": {"channels": 1},
    "turned": {"turn": 6},
}


def save_jpeg(path, size, channels=3, turn=1, **options):
    exif = Image.Exif()
    exif[0x0112] = turn
    image = picture(*size, channels)
    Image.fromarray(image[..., 0] if channels == 1 else image).save(path, exif=exif, **options)


@pytest.mark.parametrize("kind", JPEG_KINDS)
def test_decoding_a_part_equals_decoding_all(tmp_path, kind):
    path = tmp_path / "x.jpg"
    save_jpeg(path, (375, 375), **JPEG_KINDS[kind])
    random = np.random.default_rng(1)
    for _ in range(25):
        height, width = (int(n) for n in random.integers(1, 376, 2))
        box = int(random.integers(0, 376 - height)), int(random.integers(0, 376 - width)), height, width
        words = ("bilinear", *box, 112, 96)
        np.testing.assert_array_equal(pixels("draw", path, *words), pixels("resize", path, *words), str(box))


@pytest.mark.parametrize("kind", JPEG_KINDS)
@pytest.mark.parametrize("box", [(0, 0, 375, 500), (11, 7, 333, 470), (100, 90, 201, 230), (40, 30, 90, 64)])
@pytest.mark.parametrize("target", [(224, 224), (112, 100), (40, 50)])
def test_crop_and_resize_equal_torchvision(tmp_path, kind, box, target):
    """Exact decoding within 1 grey level on average, fast_decode within 2.5."""
    path = tmp_path / "x.jpg"
    save_jpeg(path, (500, 375) if kind == "turned" else (375, 500), **JPEG_KINDS[kind])
    top, left, height, width = box
    expected = torch_resized(torch_rgb(path)[top : top + height, left : left + width], target, "bilinear")
    words = ("bilinear", *box, *target)
    assert np.abs(pixels("draw", path, *words) - expected).mean() < 1
    assert np.abs(pixels("fast", path, *words) - expected).mean() < 2.5


@pytest.mark.parametrize("size", [(60, 80), (80, 61), (333, 500), (31, 200), (256, 256)])
@pytest.mark.parametrize("resize,crop", [(256, 224), (64, 64), (65, 32)])
def test_fit_equals_torchvision(tmp_path, size, resize, crop):
    path = tmp_path / "x.png"
    image = Image.fromarray(picture(*size))
    image.save(path)
    expected = v2.Compose([v2.Resize(resize), v2.CenterCrop(crop)])(image)
    assert np.abs(pixels("fit", path, resize, crop).astype(int) - np.asarray(expected)).max() <= 1


def test_image_folder_lists_as_torchvision(tmp_path):
    names = ["b/2.jpg", "b/10.JPG", "b/sub/1.png", "b/sub-a/1.png", "a b/x.jpeg", "Z/y.png", "é/q.jpg", "b/skip.gif"]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(8, 8)).save(path)
    (tmp_path / "file.jpg").write_text("not in a class")
    ours = [line.split(" ", 1) for line in tool("list", tmp_path).splitlines()]
    peer = torchvision.datasets.ImageFolder(
        tmp_path, is_valid_file=lambda f: pathlib.Path(f).suffix.lower() in (".jpg", ".jpeg", ".png")
    )
    assert [(path, int(label)) for label, path in ours] == peer.samples


def cifar_arrays(count, classes):
    random = np.random.default_rng(classes)
    return random.integers(0, 256, (count, 3072), dtype=np.uint8), random.integers(0, classes, count)


def write_pickled(folder, name, content):
    """A file of the Python version, and its MD5, which torchvision asks for."""
    data = pickle.dumps(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return [name, hashlib.md5(data).hexdigest()]


def ours_of_cifar(folder, labels):
    out = folder / "pixels.raw"
    found = [int(line) for line in tool("cifar", folder, labels, out).split()]
    return np.fromfile(out, dtype=np.uint8).reshape(-1, 32, 32, 3), found


def torchvision_of_cifar(base, folder, monkeypatch, files, names):
    meta = write_pickled(folder / base.base_folder, base.meta["filename"], {base.meta["key"]: names})
    monkeypatch.setattr(base, "train_list", files)
    monkeypatch.setattr(base, "test_list", [])
    monkeypatch.setattr(base, "meta", base.meta | {"md5": meta[1]})
    return base(folder)


def test_cifar_10_equals_torchvision(tmp_path, monkeypatch):
    base, pickled, images, labels = torchvision.datasets.CIFAR10, [], [], []
    for number, count in (1, 7), (2, 5):
        pixels, classes = cifar_arrays(count, 10 + number)
        classes %= 10
        records = np.concatenate([classes.astype(np.uint8)[:, None], pixels], axis=1)
        (tmp_path / f"data_batch_{number}.bin").write_bytes(records.tobytes())
        pickled.append(write_pickled(tmp_path / base.base_folder, f"data_batch_{number}",
                                     {"data": pixels, "labels": classes.tolist()}))
        images.append(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels += classes.tolist()
    peer = torchvision_of_cifar(base, tmp_path, monkeypatch, pickled, [str(i) for i in range(10)])
    ours, found = ours_of_cifar(tmp_path, "fine")
    np.testing.assert_array_equal(ours, peer.data)
    np.testing.assert_array_equal(ours, np.concatenate(images))
    assert found == peer.targets == labels


def test_cifar_100_equals_torchvision(tmp_path, monkeypatch):
    pixels, fine = cifar_arrays(9, 100)
    coarse = fine // 5
    records = np.concatenate([coarse.astype(np.uint8)[:, None], fine.astype(np.uint8)[:, None], pixels], axis=1)
    (tmp_path / "train.bin").write_bytes(records.tobytes())
    base = torchvision.datasets.CIFAR100
    pickled = write_pickled(tmp_path / base.base_folder, "train", {"data": pixels, "fine_labels": fine.tolist()})
    peer = torchvision_of_cifar(base, tmp_path, monkeypatch, [pickled], [str(i) for i in range(100)])
    ours, found = ours_of_cifar(tmp_path, "fine")
    np.testing.assert_array_equal(ours, peer.data)
    assert found == peer.targets
    assert ours_of_cifar(tmp_path, "coarse")[1] == coarse.tolist()


@pytest.mark.parametrize("kind", ["uint16", "uint32"])
@pytest.mark.parametrize("length", [1, 7, 100])
def test_token_windows_are_numpys(tmp_path, kind, length):
    """As nanoGPT's train.py takes them from a memory map, at every multiple of the length."""
    vocabulary = 50_257 if kind == "uint16" else 1 << 20
    path = tmp_path / "train.bin"
    np.random.default_rng(1).integers(0, vocabulary, 1000).astype(kind).tofile(path)
    out = tmp_path / "rows"
    tool("tokens", path, kind, vocabulary, length, "stream", out)
    ours = np.fromfile(out, dtype=np.int32).reshape(-1, length + 1)
    data = np.memmap(path, dtype=kind, mode="r")
    starts = range(0, len(data) - length, length)
    np.testing.assert_array_equal(ours[:, :-1], [data[i : i + length] for i in starts])
    np.testing.assert_array_equal(ours[:, 1:], [data[i + 1 : i + 1 + length] for i in starts])


@pytest.mark.parametrize("packing", ["documents", "padded"])
def test_documents_attend_to_themselves(tmp_path, packing):
    """Each document is whole in a segment of its own, and the mask of a row's segments is block-diagonal."""
    random = np.random.default_rng(2)
    documents = [random.integers(0, 99, random.integers(1, 30)).tolist() + [99] for _ in range(200)]
    path = tmp_path / "train.bin"
    np.concatenate(documents).astype(np.uint16).tofile(path)
    out = tmp_path / "rows"
    tool("tokens", path, "uint16", 100, 40, packing, out)
    rows = torch.from_numpy(np.fromfile(out, dtype=np.int32).reshape(-1, 3, 41))
    found = []
    for tokens, positions, segments in rows:
        mask = torch.block_diag(*(torch.ones(n, n) for n in segments.unique_consecutive(return_counts=True)[1]))
        assert torch.equal(mask.bool(), segments[:, None] == segments[None, :])
        for segment in range(1, int(segments.max()) + 1):
            at = segments == segment
            assert positions[at].tolist() == list(range(int(at.sum())))
            found.append(tokens[at].tolist())
        assert not tokens[segments == 0].any() and not positions[segments == 0].any()
    assert sorted(found) == sorted(documents)
    least = sum(map(len, documents)) / 41
    assert len(rows) == len(documents) if packing == "padded" else least <= len(rows) <= 1.2 * least
