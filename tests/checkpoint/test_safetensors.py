"""Our safetensors files against the Python package, in both directions."""
import os
import pathlib
import random
import subprocess

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "safetensors_tool"

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.float8_e5m2, torch.float8_e4m3fn,
          torch.float8_e8m0fnu, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int16,
          torch.uint16, torch.float16, torch.bfloat16, torch.int32, torch.uint32, torch.float32,
          torch.complex64, torch.float64, torch.int64, torch.uint64]

# Where we follow the letter of the format and the package does not.
STRICTER = ["is given twice", "expected dtype, shape and data_offsets", "does not start with '{'",
            "more than 64 dimensions", '"F4" is not known', '"F6_', "too large",
            '"__metadata__" must be an object, found null']


def tool(*arguments):
    result = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True,
                            check=True)
    return result.stdout.splitlines()


def sample(dtype, shape):
    """A tensor of random bits (of 0 and 1 for bool)."""
    count = 1
    for extent in shape:
        count *= extent
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    raw = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def bits(tensor):
    """Bytes, which compare equal for NaN too."""
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        other = right[name]
        assert (tensor.dtype, tensor.shape, bits(tensor)) == (other.dtype, other.shape, bits(other))


def package_accepts(image):
    try:
        safetensors.deserialize(image)
        return True
    except safetensors.SafetensorError:
        return False


def test_every_dtype_to_the_byte(tmp_path):
    tensors = {f"{dtype}.{len(shape)}": sample(dtype, shape)
               for dtype in DTYPES for shape in [(), (5,), (2, 0, 3), (3, 1, 2)]}
    save_file(tensors, tmp_path / "python", metadata={"format": "pt"})
    tool("copy", tmp_path / "python", tmp_path / "ours")
    assert_same(load_file(tmp_path / "ours"), tensors)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "python").read_bytes()


def test_random_files_to_the_byte(tmp_path):
    random.seed(1)
    torch.manual_seed(1)
    paths = []
    for i in range(60):
        tensors = {}
        for j in range(random.randint(0, 12)):
            shape = [random.choice([0, 1, 2, 3, 7]) for _ in range(random.randint(0, 5))]
            name = random.choice(["layer.{}.weight", "ünïcode-{}", 'quote"\\{}', "tab\t{}\n", "\x01\x7f{}"])
            tensors[name.format(j)] = sample(random.choice(DTYPES), shape)
        metadata = {random.choice(["step", "ключ", "a\"b"]): "wert\u2028\x1f/"} if i % 3 else None
        save_file(tensors, tmp_path / f"{i}.python", metadata=metadata)
        paths += [tmp_path / f"{i}.python", tmp_path / f"{i}.ours"]
    tool("copy", *paths)
    for python, ours in zip(paths[::2], paths[1::2]):
        assert_same(load_file(ours), load_file(python))
        assert ours.read_bytes() == python.read_bytes()


def test_metadata_arrives(tmp_path):
    metadata = {"a": "1", "b": "", "": "empty key", "ü": "\U0001f600"}
    save_file({"x": torch.ones(3)}, tmp_path / "python", metadata=metadata)
    tool("copy", tmp_path / "python", tmp_path / "ours")
    with safetensors.safe_open(tmp_path / "ours", "pt") as file:
        assert file.metadata() == metadata


def test_malformed_files(tmp_path):
    verdicts = dict(line.split() for line in tool("malformed", tmp_path))
    assert len(verdicts) >= 60
    ours = dict(zip(verdicts, tool("check", *(tmp_path / name for name in verdicts))))
    assert "ok" not in ours.values()
    package = {name: "accepted" if package_accepts((tmp_path / name).read_bytes()) else "refused"
               for name in verdicts}
    assert package == verdicts
    for name, verdict in verdicts.items():
        if verdict == "accepted":
            assert any(reason in ours[name] for reason in STRICTER), ours[name]


def test_mutated_files(tmp_path):
    """Whatever happens to a file, we accept none that the package refuses, and refuse none that it
    accepts but for the reasons listed above."""
    random.seed(2)
    tensors = {"a": torch.arange(6).reshape(2, 3), "b.c": torch.ones(3, dtype=torch.bfloat16),
               "empty": torch.ones(0, 2), "scalar": torch.tensor(1.5)}
    save_file(tensors, tmp_path / "seed", metadata={"k": "v"})
    seed = (tmp_path / "seed").read_bytes()
    header = 8 + int.from_bytes(seed[:8], "little")
    pieces = [b"0", b"1", b"8", b"-", b".", b"e1", b"[", b"]", b"{", b"}", b",", b":", b'"', b" ",
              b"\n", b"\\u0061", b"null", b"true", b"\x00", b"\xff", b"F16", b"F4", b"9" * 19, b"a"]
    images = []
    for _ in range(3000):
        image = bytearray(seed)
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            at = random.randrange(8, header)
            kind = random.randrange(5)
            if kind == 0:
                image[at:at + 1] = random.choice(pieces)
            elif kind == 1:
                image[at:at] = random.choice(pieces)
            elif kind == 2:
                del image[at:at + random.randint(1, 6)]
            elif kind == 3:
                other = random.randrange(8, header)
                image[at:at] = image[other:other + random.randint(1, 40)]
            else:
                image[at] ^= 1 << random.randrange(8)
        if random.random() < 0.9:  # keep the frame right, so that the mutation is what is judged
            grown = len(image) - len(seed)
            image[:8] = (header - 8 + grown).to_bytes(8, "little")
        images.append(bytes(image))
    paths = [tmp_path / str(i) for i in range(len(images))]
    for path, image in zip(paths, images):
        path.write_bytes(image)
    ours = tool("check", *paths)
    accepted = 0
    for path, image, verdict in zip(paths, images, ours, strict=True):
        package = package_accepts(image)
        accepted += package
        if verdict == "ok":
            assert package, image[:header + 40]
        elif package:
            assert any(reason in verdict for reason in STRICTER), (verdict, image[:header + 40])
    assert accepted > 100  # mutations that leave a right file are among them


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
