"""A trained run is used while its data and files change."""
import json
import shutil

import pytest

from flowers import COLOURS, FLOWERS_RECIPE, save_images
from trainer import latest_checkpoint, sets, trainer


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data and a run that was trained on them; not to be changed."""
    folder = tmp_path_factory.mktemp("flowers")
    save_images(folder / "train", COLOURS, 8)
    save_images(folder / "val", COLOURS, 2)
    (folder / "flowers.toml").write_text(FLOWERS_RECIPE + '[data.eval]\npath = "val"\n')
    done = trainer("--recipe", folder / "flowers.toml", "--output", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run whose recipe names a copy of the data, in `train` and `val` beside it."""
    folder = tmp_path / "flowers"
    shutil.copytree(trained, folder, symlinks=True)
    for recipe in (folder / "flowers.toml", folder / "run/recipe.toml"):
        recipe.write_text(recipe.read_text().replace(str(trained), str(folder)))
    return folder / "run"


def best_guess(run, image):
    done = trainer("predict", run, image, "--top", 1, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["classes"][0]["name"]


def resumed(run):
    return trainer("--recipe", run.parent / "flowers.toml", "--resume", run, *sets(train__epochs=7))


def test_more_images_hinder_resuming_only(run):
    shutil.copy(run.parent / "train/daisy/0.png", run.parent / "train/daisy/more.png")
    assert trainer("eval", run).returncode == 0
    assert best_guess(run, run.parent / "val/poppy/0.png") == "poppy"
    done = resumed(run)
    assert done.returncode == 4 and "training samples was 24 and is 25. Resume with the data that it was trained on" in done.stderr, done.stderr


def test_a_renamed_class_keeps_the_name_that_was_learned(run):
    for part in ("train", "val"):
        (run.parent / part / "daisy").rename(run.parent / part / "zinnia")
    assert best_guess(run, run.parent / "val/zinnia/0.png") == "daisy"
    done = trainer("eval", run)
    assert done.returncode == 3 and "(daisy, poppy, violet), found zinnia" in done.stderr, done.stderr
    done = resumed(run)
    assert done.returncode == 4, done.stderr
    assert 'class 0 was "daisy" and is "poppy"' in done.stderr, done.stderr


def test_predict_needs_no_training_data(run, tmp_path):
    image = shutil.copy(run.parent / "val/poppy/0.png", tmp_path)
    with_data = trainer("predict", run, image)
    for part in ("train", "val"):
        shutil.rmtree(run.parent / part)
    done = trainer("predict", run, image)
    assert (done.returncode, done.stdout) == (0, with_data.stdout), done.stderr
    assert "poppy" in done.stdout
    assert trainer("eval", run).returncode == 3


@pytest.mark.parametrize("side", [0, -1, 1 << 40, "wide"])
def test_a_wrong_input_in_a_checkpoint_is_refused(run, side):
    state = latest_checkpoint(run) / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "input": {"channels": 3, "height": side}}))
    done = trainer("predict", latest_checkpoint(run), run.parent / "val/poppy/0.png")
    assert done.returncode == 4 and str(state.parent) in done.stderr, done.stderr


def test_damaged_weights_are_not_exported(run, tmp_path):
    file = latest_checkpoint(run) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    done = trainer("export", latest_checkpoint(run), "--output", tmp_path / "weights.safetensors")
    assert done.returncode == 4 and "model.safetensors" in done.stderr, done.stderr
    assert not (tmp_path / "weights.safetensors").exists()


def test_a_global_batch_beyond_the_data_needs_no_more_memory(trained, tmp_path):
    done = trainer("--recipe", trained / "flowers.toml", "--output", tmp_path / "run",
                   *sets(batch__global=200_000_000, train__epochs=1))
    assert done.returncode == 0 and "out of memory" not in done.stderr, done.stderr
