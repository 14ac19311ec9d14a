"""Names in data, in runs and on the network reach the terminal without control characters."""
import json
import shutil

import numpy
import pytest
from PIL import Image

from trainer import trainer

ESCAPE = "\x1b]0;owned\x07"
SHOWN = r"\x1b]0;owned\x07"


def assert_safe(*texts):
    for text in texts:
        assert not [c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160], repr(text)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Two classes and a file whose names hold escape sequences; one image is broken."""
    root = tmp_path_factory.mktemp("images")
    pixels = numpy.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=numpy.uint8)
    for name in ("cat", f"dog{ESCAPE}"):
        (root / name).mkdir()
        for i in range(4):
            Image.fromarray(pixels).save(root / name / f"{i}{ESCAPE}.png")
    (root / "cat" / f"broken{ESCAPE}.png").write_bytes(b"no image")
    return root


def test_data_inspect(images):
    found = trainer("data", "inspect", "--from", images)
    assert found.returncode == 3
    assert_safe(found.stdout, found.stderr)
    assert f"dog{SHOWN}" in found.stdout and "broken: " in found.stdout
    as_json = json.loads(trainer("data", "inspect", "--from", images, "--json").stdout)
    assert f"dog{ESCAPE}" in [one["name"] for one in as_json["classes"]]


@pytest.fixture(scope="module")
def run(images, tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    recipe = root / "recipe.toml"
    recipe.write_text(f"""
[model]
name = "mlp"
hidden = 8
[data]
kind = "image_folder"
image_size = 8
on_error = "skip"
[data.train]
path = "{images}"
[data.eval]
path = "{images}"
[batch]
global = 4
[train]
steps = 2
[optimizer]
name = "sgd"
learning_rate = 0.1
[device]
select = "cpu"
""")
    done = trainer("--recipe", recipe, "--output", root / "run")
    assert done.returncode == 0, done.stderr
    assert_safe(done.stderr)
    assert SHOWN in done.stderr  # the broken image's warning
    return root / "run"


def test_a_run_knows_the_classes_of_its_own_shards(run, images, tmp_path):
    whole = shutil.copytree(images, tmp_path / "whole", ignore=shutil.ignore_patterns("broken*"))
    packed = trainer("data", "pack", whole, tmp_path / "shards")
    assert packed.returncode == 0, packed.stderr
    recipe = tmp_path / "recipe.toml"
    recipe.write_text((run.parent / "recipe.toml").read_text().replace("image_folder", "webdataset")
                      .replace(str(images), str(tmp_path / "shards")))
    done = trainer("--recipe", recipe, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    for trained in (run, tmp_path / "run"):  # from folders, and from shards
        said = trainer("eval", trained, "--recipe", recipe)
        assert said.returncode == 0, said.stderr
        assert_safe(said.stdout, said.stderr)


def test_predict(run, images):
    file = images / "cat" / f"0{ESCAPE}.png"
    said = trainer("predict", "--run", run, file)
    assert said.returncode == 0, said.stderr
    assert_safe(said.stdout, said.stderr)
    assert f"0{SHOWN}.png:" in said.stdout and f"dog{SHOWN}" in said.stdout


def test_errors_and_warnings(images):
    refused = trainer("--recipe", f"no{ESCAPE}.toml")
    assert refused.returncode == 2
    assert_safe(refused.stderr)
    assert SHOWN in refused.stderr


def test_a_checkpoint_s_path_in_eval(run):
    moved = run.rename(run.with_name(f"run{ESCAPE}"))
    try:
        said = trainer("eval", moved)
        assert_safe(said.stdout, said.stderr)
        assert SHOWN in said.stdout
        assert_safe(trainer("doctor", moved).stdout)
    finally:
        moved.rename(run)
