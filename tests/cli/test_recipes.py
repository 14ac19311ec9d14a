"""Every recipe on images can be started: a dry run on a folder of pictures, and two steps at the
smallest size on synthetic ones."""

import pytest
from PIL import Image

from trainer import SOURCE, metrics, sets, trainer

# The least side of an image for each.
RECIPES = {"resnet50": 32, "resnext50": 32, "vit_s16": 16, "convnext_tiny": 32, "inception_v3": 299}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for part in ("train", "val"):
        for kind in ("cat", "dog"):
            (folder / part / kind).mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (40, 30), (number, 0, 0)).save(folder / part / kind / f"{number}.jpg")
    return folder


def path_of(name):
    return SOURCE / "recipes" / f"{name}.toml"


@pytest.mark.parametrize("name", RECIPES)
def test_dry_run(pictures, tmp_path, name):
    done = trainer("--recipe", path_of(name), "--dry-run", "--output", tmp_path / "run", *sets(
        data__train__path=str(pictures / "train"), data__eval__path=str(pictures / "val")))
    assert done.returncode == 0, done.stderr
    assert "plan: " in done.stderr and "4 training and 4 evaluation samples" in done.stderr


@pytest.mark.parametrize("name", RECIPES)
def test_two_steps(tmp_path, name):
    side = RECIPES[name]
    done = trainer("--recipe", path_of(name), "--output", tmp_path / "run", *sets(
        data__kind="synthetic", data__classes=5, data__height=side, data__width=side, data__samples=4,
        data__eval_samples=2, batch__global=2, batch__micro=0, train__epochs=1, schedule__warmup=0,
        precision__mode="fp32", telemetry__every_steps=1, checkpoint__enabled=False))
    assert done.returncode == 0, done.stderr
    assert [line["step"] for line in metrics(tmp_path / "run") if "loss" in line] == [1, 2]
