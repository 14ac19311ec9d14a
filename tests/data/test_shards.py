"""Shards agree with Python's tarfile and the webdataset package, both ways."""

import io
import os
import pathlib
import subprocess
import tarfile

import numpy as np
import pytest
import webdataset
from PIL import Image

TOOL = os.path.join(os.environ["BRIM_BIN_DIR"], "shard_tool")


def tool(*words, text=None):
    done = subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, input=text)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def picture(number, kind="JPEG", size=(40, 30)):
    random = np.random.default_rng(number)
    buffer = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)).save(buffer, kind)
    return buffer.getvalue()


def samples_of(pattern):
    """(label, image, key) of each sample, as the package reads them."""
    dataset = webdataset.WebDataset(str(pattern), shardshuffle=False, empty_check=False)
    for sample in dataset:
        image = next(sample[kind] for kind in ("jpg", "jpeg", "png") if kind in sample)
        yield int(sample["cls"]), image, sample["__key__"]


def same_samples(tmp_path, pattern, ours):
    """Ours are `label digest tar: member`; the digest is checked by writing the bytes as a tar."""
    peers = list(samples_of(pattern))
    assert len(ours) == len(peers)
    for line, (label, image, key) in zip(ours, peers):
        our_label, digest, name = line.split(" ", 2)
        assert int(our_label) == label
        assert digest == digest_of(tmp_path, image)
        assert name.split(": ", 1)[1].startswith(key + ".")


def digest_of(tmp_path, content, known={}):
    """The tool's digest of these bytes."""
    if content not in known:
        path = tmp_path / "one.tar"
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("x")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        known[content] = tool("tar", path)[0].split()[1]
    return known[content]


def test_shards_of_the_package_are_read(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    pattern = str(folder / "s-%03d.tar")
    with webdataset.ShardWriter(pattern, maxcount=7, verbose=0) as writer:
        for i in range(25):
            kind = ["jpg", "jpeg", "png"][i % 3]
            sample = {"__key__": f"train/{i % 4}/image{i:05}", "cls": i % 11, "json": {"number": i}}
            writer.write({**sample, kind: picture(i, "PNG" if kind == "png" else "JPEG")})
    ours = tool("list", folder, tmp_path / "cache", 0)
    assert len(ours) == 25
    same_samples(tmp_path, folder / "s-{000..003}.tar", ours)
    assert sorted(path.name for path in folder.glob("*.index")) == [f"s-00{i}.tar.index" for i in range(4)]
    assert tool("list", folder, tmp_path / "cache", 0) == ours  # by the indexes


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_formats_of_tarfile(tmp_path, form):
    path = tmp_path / "a.tar"
    names = ["a.jpg", "d/" + "n" * 98, "p" * 120 + "/" + "q" * 90]
    if form != tarfile.USTAR_FORMAT:
        names += ["x" * 300 + ".jpg", "é/ü.jpg", "/".join(["deep" * 10] * 12)]
    with tarfile.open(path, "w", format=form) as archive:
        for i, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = 1000 * i
            info.mtime = 1.5
            archive.addfile(info, io.BytesIO(bytes(1000 * i)))
            archive.addfile(tarfile.TarInfo(f"folder{i}/"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "l" * 300 if form != tarfile.USTAR_FORMAT else "l"
        archive.addfile(link)
    found = [line.split(" ", 2) for line in tool("tar", path) if not line.endswith("/")]
    assert [(int(size), name) for size, _, name in found] == [(1000 * i, name) for i, name in enumerate(names)]


def test_gnu_sparse_members_of_tar_are_refused(tmp_path):
    sparse = tmp_path / "sparse.jpg"
    with open(sparse, "wb") as file:
        file.truncate(1 << 20)
    for form in "gnu", "pax":
        path = tmp_path / f"{form}.tar"
        subprocess.run(["tar", f"--format={form}", "--sparse", "-C", tmp_path, "-cf", path, "sparse.jpg"], check=True)
        done = subprocess.run([TOOL, "tar", path], capture_output=True, text=True)
        assert done.returncode == 3
        assert f"{form}.tar: at byte" in done.stderr and "sparse" in done.stderr


def test_tarfile_reads_what_we_write(tmp_path):
    path = tmp_path / "a.tar"
    names = ["a.jpg", "n" * 100, "m" * 101, "p" * 150 + "/" + "q" * 99, "é/ü.png", "z" * 3000]
    tool("write", path, text="".join(f"{name} content of {i}\n" for i, name in enumerate(names)))
    with tarfile.open(path) as archive:
        assert [m.name for m in archive] == names
        assert [archive.extractfile(m).read().decode() for m in archive] == [f"content of {i}" for i in range(len(names))]
    listed = subprocess.run(["tar", "-tf", path], capture_output=True, check=True)
    assert listed.stderr == b""


def test_pixels_are_those_of_the_same_images_in_a_folder(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    with webdataset.ShardWriter(str(folder / "%02d.tar"), maxcount=3, verbose=0) as writer:
        for i in range(5):
            image = picture(i, size=(300, 260))
            writer.write({"__key__": str(i), "jpg": image, "cls": i})
            (tmp_path / "images" / str(i)).mkdir(parents=True)
            (tmp_path / "images" / str(i) / "x.jpg").write_bytes(image)
    lines = tool("pixels", "webdataset", folder)
    assert len(set(lines)) == 5
    assert lines == tool("pixels", "image_folder", tmp_path / "images")


def test_a_truncated_shard_is_an_error_in_words(tmp_path):
    path = tmp_path / "s.tar"
    with webdataset.TarWriter(str(path)) as writer:
        for i in range(4):
            writer.write({"__key__": str(i), "jpg": picture(i), "cls": i})
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    done = subprocess.run([TOOL, "list", path, tmp_path, "0"], capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.startswith(f"error[data]: {path}: at byte ") and "truncated" in done.stderr
    assert not pathlib.Path(f"{path}.index").exists()
