"""data.decode = "gpu" on a simulated GPU, whose nvJPEG is libjpeg: what it decodes has the CPU's bits, so the losses are the
CPU's wherever each image was decoded."""
import json
import pathlib
import sys

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from trainer import TRAINER, evaluations, metrics, sets, trainer  # noqa: E402

RECIPE = """[model]
name = "mlp"
[data]
kind = "image_folder"
image_size = 32
resize = 40
train.path = "images/train"
eval.path = "images/val"
augment.crop = "random_resized"
augment.flip = true
augment.auto = "trivial_augment"
[batch]
global = 24
[optimizer]
name = "sgd"
[train]
steps = 9
[precision]
mode = "fp32"
[telemetry]
every_steps = 1
"""
KINDS = {"plain": {}, "sharp colour": {"subsampling": 0}, "progressive": {"progressive": True}, "grey": {"mode": "L"},
         "inks": {"mode": "CMYK"}, "turned": {"orientation": 6}, "png": {"suffix": ".png"}}


def save(path, kind, random):
    height, width = random.integers(40, 160, 2)
    small = random.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3)).astype(np.uint8)
    how = dict(KINDS[kind])
    image = Image.fromarray(small).resize((int(width), int(height)), Image.Resampling.BICUBIC).convert(how.pop("mode", "RGB"))
    if orientation := how.pop("orientation", None):
        how["exif"] = image.getexif()
        how["exif"][0x112] = orientation
    image.save(path.with_suffix(how.pop("suffix", ".jpg")), quality=90, **how)


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(1)
    for split, count in ("train", 35), ("val", 14):
        for label in "abc":
            (tmp_path / "images" / split / label).mkdir(parents=True)
            for i in range(count):
                save(tmp_path / "images" / split / label / f"{i}.jpg", list(KINDS)[i % len(KINDS)], random)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def train(folder, output, decode, *words, device="cuda:0", **variables):
    words, values = [word for word in words if isinstance(word, str)], [word for word in words if isinstance(word, dict)]
    settings = {"data__decode": decode, **(values[0] if values else {})}
    return trainer("train", "recipe.toml", "--output", output, "--devices", device, *words, *sets(**settings), cwd=folder,
                   BRIM_NVJPEG_LOG=str(folder / f"{output}.log"), **variables)


def batches(folder, output):
    """How many images nvJPEG was given at once, and what became of them."""
    return [(int(line.split()[0]), line.split()[1]) for line in (folder / f"{output}.log").read_text().splitlines()]


def decoded(folder, output):
    return sum(count for count, what in batches(folder, output) if what == "decoded")


def outcome(folder, output):
    lines = [line["loss"] for line in metrics(folder / output) if "loss" in line]
    return lines, [(line["eval_loss"], line["eval_top1"]) for line in evaluations(folder / output)]


def expect_done(done):
    assert done.returncode == 0, done.stderr


@pytest.fixture
def on_cpu(folder):
    expect_done(train(folder, "cpu", "cpu"))
    assert not (folder / "cpu.log").exists()
    return folder


@pytest.mark.parametrize("settings, variables", [
    ({}, {}), ({"data__workers": 0}, {"BRIM_SIMULATED_MIB": "560", "BRIM_NVJPEG_MIB": "12"}), ({"data__workers": 3, "data__prefetch": 5}, {}), ({"data__cache": "encoded"}, {}),
    ({}, {"BRIM_NVJPEG_REFUSES": "3"}), ({}, {"BRIM_NVJPEG_REFUSES": "1"})])
def test_losses_are_those_of_decoding_on_the_cpu(on_cpu, settings, variables):
    expect_done(train(on_cpu, "gpu", "gpu", settings, **variables))
    assert outcome(on_cpu, "gpu") == outcome(on_cpu, "cpu")
    assert all(line["device"]["host_syncs"] == 0 for line in metrics(on_cpu / "gpu")[2:] if "device" in line)
    # Those of a batch that is refused are tried alone.
    refused = sum(count for count, what in batches(on_cpu, "gpu") if what == "refused" and count > 1)
    assert (refused > 0) == ("BRIM_NVJPEG_REFUSES" in variables)
    assert sum(count == 1 for count, _ in batches(on_cpu, "gpu")) >= refused
    # An epoch and a half of 105 and two evaluations of 42, of which the GPU takes 3 kinds in 7.
    least = {None: 3 * (105 + 2 * 42) // 7, "3": 1, "1": 0}[variables.get("BRIM_NVJPEG_REFUSES")]
    assert decoded(on_cpu, "gpu") >= least


def test_a_stopped_run_goes_on(on_cpu):
    expect_done(train(on_cpu, "gpu", "gpu", {"train__steps": 4}))
    expect_done(train(on_cpu, "gpu", "gpu", "--resume", "auto"))
    assert outcome(on_cpu, "gpu")[0] == outcome(on_cpu, "cpu")[0]


def test_images_that_cannot_be_read_are_replaced(on_cpu):
    plain = on_cpu / "images/train/a/0.jpg"
    plain.write_bytes(plain.read_bytes()[:-100])
    (on_cpu / "images/train/b/7.jpg").write_bytes(b"no image")
    for decode in "cpu", "gpu":
        done = train(on_cpu, f"{decode} skips", decode, {"data__on_error": "skip"})
        expect_done(done)
        assert f"skipped: {plain}: truncated: the JPEG data ends early" in done.stderr
        assert "images/train/b/7.jpg: expected a JPEG or PNG image" in done.stderr
    assert outcome(on_cpu, "gpu skips") == outcome(on_cpu, "cpu skips")
    done = train(on_cpu, "fails", "gpu")
    assert done.returncode == 3 and "images/train/" in done.stderr and "data.on_error" in done.stderr


def test_shards_are_decoded_too(on_cpu):
    expect_done(trainer("data", "pack", "images/train", "shards/train", cwd=on_cpu))
    expect_done(trainer("data", "pack", "images/val", "shards/val", cwd=on_cpu))
    shards = {"data__kind": "webdataset", "data__train__path": "shards/train", "data__eval__path": "shards/val"}
    for decode in "cpu", "gpu":
        expect_done(train(on_cpu, f"{decode} shards", decode, shards))
    assert outcome(on_cpu, "gpu shards") == outcome(on_cpu, "cpu shards")
    assert decoded(on_cpu, "gpu shards") > 0


def test_the_trained_model_is_evaluated_and_data_are_timed(folder):
    expect_done(train(folder, "run", "gpu"))
    done = trainer("eval", "run", "--devices", "cuda:0", "--json", cwd=folder, BRIM_NVJPEG_LOG=str(folder / "eval.log"))
    expect_done(done)
    assert json.loads(done.stdout)["loss"] == pytest.approx(evaluations(folder / "run")[-1]["eval_loss"], rel=1e-6)
    assert decoded(folder, "eval") == 18
    done = trainer("data", "bench", "recipe.toml", "--devices", "cuda:0", "--workers", "0,2", "--samples", "105", "--json",
                   *sets(data__decode="gpu"), cwd=folder, BRIM_NVJPEG_LOG=str(folder / "bench.log"))
    expect_done(done)
    assert all(line["samples_per_s"] > 0 for line in json.loads(done.stdout)["workers"])
    assert decoded(folder, "bench") > 90


def test_without_a_gpu_or_without_nvjpeg_the_run_does_not_begin(folder):
    done = train(folder, "run", "gpu", device="cpu")
    assert done.returncode == 2 and 'data.decode = "gpu": expected a CUDA device, found cpu' in done.stderr, done.stderr
    done = train(folder, "run", "gpu", BRIM_NVJPEG_ENGINE="0")
    assert done.returncode == 5 and "nvJPEG can't be used: this GPU has no engine that decodes JPEG" in done.stderr
    # Only the driver is where libraries are looked for.
    lib = folder / "lib"
    lib.mkdir()
    (lib / "libcuda.so.1").symlink_to(TRAINER.parents[1] / "lib/libbrim_cuda.so")
    (lib / "libnvjpeg.so.13").write_bytes(b"no library")
    done = train(folder, "run", "gpu", LD_LIBRARY_PATH=str(lib))
    assert done.returncode == 5 and 'data.decode = "gpu": nvJPEG can\'t be used: ' in done.stderr, done.stderr
    assert not (folder / "run").exists() or not list((folder / "run").glob("checkpoints/*"))


def test_decoded_images_are_not_kept(folder):
    done = train(folder, "run", "gpu", {"data__cache": "decoded"})
    assert done.returncode == 2 and 'expected cache = "none" or "encoded" with decode = "gpu"' in done.stderr, done.stderr


def test_a_deterministic_run_refuses(folder):
    done = train(folder, "run", "gpu", {"run__deterministic": True})
    assert done.returncode == 2 and 'deterministic = true can\'t hold with [data] decode = "gpu"' in done.stderr


def test_a_decoder_that_takes_nothing_is_said(on_cpu):
    done = train(on_cpu, "gpu", "gpu", {"batch__global": 70, "train__steps": 3}, BRIM_NVJPEG_REFUSES="1")
    expect_done(done)
    assert done.stderr.count("nvJPEG has taken none of") == 1


@pytest.mark.parametrize("mib", range(517, 529))
def test_memory_that_falls_short_anywhere_loses_nothing(on_cpu, mib):
    """512 MiB are set aside; the first few sizes are too small for the model itself."""
    here = [train(on_cpu, f"{decode} {mib}", decode, {"data__workers": 3}, BRIM_SIMULATED_MIB=str(mib)) for decode in ("cpu", "gpu")]
    assert here[0].returncode in (0, 5) and here[1].returncode in (0, 5), here[1].stderr
    if all(done.returncode == 0 for done in here):
        assert outcome(on_cpu, f"gpu {mib}") == outcome(on_cpu, f"cpu {mib}")


def test_where_memory_falls_short_the_cpu_decodes(on_cpu):
    done = train(on_cpu, "gpu", "gpu", BRIM_NVJPEG_MIB="3000")
    expect_done(done)
    assert done.stderr.count("not enough GPU memory to decode images: the CPU decodes") == 1
    assert outcome(on_cpu, "gpu") == outcome(on_cpu, "cpu") and not (on_cpu / "gpu.log").exists()
