"""Every recipe in recipes/ can be shown, tuned, trained and measured as a new user would: by name of
the file, on small stand-in data of its own kind."""
import json

import numpy as np
import pytest
from PIL import Image

from trainer import SOURCE, metrics, sets, trainer

RECIPES = sorted(path.stem for path in (SOURCE / "recipes").glob("*.toml"))

# What makes the job small. The warm-up and the rest of the schedule stay as they are.
SMALL_IMAGES = {"data__image_size": 32, "data__resize": 32}
SMALL = {
    "digits": {},
    "text_bytes": {"data__length": 32},
    "gpt2": {"data__length": 32, "data__vocabulary": 512, "batch__global": 2, "batch__micro": 1},
    "inception_v3": {"batch__global": 2, "batch__micro": 2},  # it takes no smaller images
}
# What is measured in place of a large model, whose step test_a_step takes: a smaller one.
LIGHT = {
    "convnext_tiny": {"model__name": "small_vit"},
    "inception_v3": {"model__auxiliary": False, "data__image_size": 96, "data__resize": 96,
                     "optimizer__learning_rate": 1e-6},
    "gpt2": {"model__name": "gpt", "model__layers": 1, "model__width": 32},
    "resnet50": {"model__name": "resnet18"},
    "resnext50": {"model__name": "resnet18"},
    "vit_s16": {"model__name": "small_vit"},
}
# Recipes whose data lie beside them.
BUNDLED = ("digits", "text_bytes")


def save_images(folder):
    for part in ("train", "val"):
        for kind in ("cat", "dog"):
            (folder / part / kind).mkdir(parents=True)
            for number in range(4):
                Image.new("RGB", (40, 30), (number, 0, 0)).save(folder / part / kind / f"{number}.jpg")
    return {"data__train__path": str(folder / "train"), "data__eval__path": str(folder / "val")}


def save_tokens(folder):
    folder.mkdir(parents=True)
    for part in ("train", "eval"):
        np.arange(33 * 8, dtype="<u2").tofile(folder / f"{part}.bin")
    return {"data__train__path": str(folder / "train.bin"), "data__eval__path": str(folder / "eval.bin")}


@pytest.fixture(scope="module", params=RECIPES)
def job(request, tmp_path_factory):
    """--recipe and --set arguments of one recipe on stand-in data."""
    name = request.param
    small = {"batch__global": 8, "batch__micro": 4, "precision__mode": "fp32", "checkpoint__enabled": False,
             **SMALL.get(name, SMALL_IMAGES)}
    if name not in BUNDLED:
        folder = tmp_path_factory.mktemp("data") / name
        small |= save_tokens(folder) if name == "gpt2" else save_images(folder)
    return ["--recipe", SOURCE / "recipes" / f"{name}.toml", *sets(**small)]


def test_dry_run(job, tmp_path):
    done = trainer(*job, "--dry-run", "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "plan: " in done.stderr and not (tmp_path / "run").exists()


def test_tune(job, request):
    light = LIGHT.get(request.node.callspec.params["job"], {})
    done = trainer("tune", *job, *sets(**light), "--json")
    assert done.returncode == 0, done.stderr
    assert 1 <= json.loads(done.stdout)["micro"] <= 8


def test_summary(job):
    done = trainer("recipe", "show", *job, "--summary", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["parameters"] > 0 and found["forward_flops"] > 0 and found["activation_bytes"] > 0


def test_a_step(job, tmp_path):
    """The first of a run as long as the recipe's, as schedule.steps = ... lays it out."""
    done = trainer(*job, "--output", tmp_path / "run", *sets(train__steps=1, schedule__steps=1_000_000,
                                                             telemetry__every_steps=1))
    assert done.returncode == 0, done.stderr
    assert [line["step"] for line in metrics(tmp_path / "run") if "loss" in line] == [1]


def test_bench(job, tmp_path, request):
    light = LIGHT.get(request.node.callspec.params["job"], {})
    done = trainer("bench", *job, *sets(**light), "--steps", 2, "--repeats", 1, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [variant] = json.loads(done.stdout)["variants"]
    assert variant["summary"]["flops_per_step"] > 0
