"""What cmake --install installs, seen from outside: its programs run, the examples are built with it,
and their own model trains by recipe."""
import shutil

import pytest
from safetensors.numpy import load_file

from installed import SOURCE, build, install, losses, must_run, run

STEPS = ("--set", "train.steps=20", "--set", "telemetry.every_steps=1", "--set", "precision.mode=fp32")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    install(folder)
    return folder


@pytest.fixture(scope="module")
def own_model(prefix):
    return built(prefix, "own_model")


def built(prefix, example):
    """A copy of the example, built in its folder build/ as its recipe expects."""
    folder = prefix / "examples" / example
    shutil.copytree(SOURCE / "examples" / example, folder)
    build(folder, folder / "build", prefix)
    return folder


def test_installed_programs_find_their_recipes(prefix, tmp_path):
    only_here = prefix / "share/brim/recipes/only_here.toml"
    shutil.copy(prefix / "share/brim/recipes/digits.toml", only_here)
    done = must_run(prefix / "bin/trainer", "--recipe", "only_here", "--config", "cpu", "--dry-run", cwd=tmp_path)
    assert "1,437 training" in done.stderr
    assert "usage: trainrun" in must_run(prefix / "bin/trainrun", "--help").stdout


def test_a_model_of_ones_own_linked_into_a_trainer(own_model, tmp_path):
    trainer, recipe = own_model / "build/own_trainer", own_model / "recipe.toml"
    must_run(trainer, "--recipe", recipe, "--output", tmp_path / "run", *STEPS)
    falling = losses(tmp_path / "run")
    assert len(falling) == 20 and falling[-1] < 0.8 * falling[0]
    must_run(trainer, "eval", tmp_path / "run", cwd=tmp_path)
    weights = tmp_path / "weights.safetensors"
    must_run(trainer, "export", tmp_path / "run", "--output", weights)
    shapes = {name: tensor.shape for name, tensor in load_file(weights).items()}
    assert shapes == {"conv.weight": (16, 3, 3, 3), "conv.bias": (16,), "head.weight": (10, 256), "head.bias": (10,)}


def test_its_ranks(own_model, tmp_path):
    must_run(own_model / "build/own_trainer", "--recipe", own_model / "recipe.toml", "--devices", "cpu,cpu",
             "--output", tmp_path / "run", *STEPS, "--set", "train.steps=3")
    assert len(losses(tmp_path / "run")) == 3


def test_the_trainer_from_code(prefix, tmp_path):
    loop = built(prefix, "own_loop")
    weights = tmp_path / "weights.safetensors"
    said = must_run(loop / "build/own_loop", weights, cwd=tmp_path).stdout.split()
    assert float(said[3]) < 0.5 * float(said[1]), said
    assert sorted(load_file(weights)) == ["first.bias", "first.weight", "last.bias", "last.weight"]
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]  # no run's folder


def test_a_wrong_key_is_the_recipes_matter(own_model):
    done = run(own_model / "build/own_trainer", "--recipe", own_model / "recipe.toml", "--set", "model.width=0")
    assert done.returncode == 2 and "'width' in [model]: expected an integer at least 1" in done.stderr
