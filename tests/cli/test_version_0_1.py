"""The recipe, checkpoints and metrics of a run of version 0.1: read on, with warnings for renamed keys."""
import json
import pathlib
import shutil

import pytest
from safetensors.numpy import load_file

from trainer import trainer

OLD = pathlib.Path(__file__).parent / "version_0_1" / "run"
RENAMED = {"initial_scale": "init_scale", "minimum_scale": "min_scale", "watch": "metric"}


def warns(stderr):
    return all(f"'{old}'" in stderr and f"is deprecated; use '{new}'" in stderr for old, new in RENAMED.items())


def test_its_recipe_and_checkpoint_resume(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    done = trainer("--recipe", tmp_path / "run" / "recipe.toml", "--output", tmp_path / "new",
                   "--resume", tmp_path / "run" / "checkpoints" / "step-00000004")
    assert done.returncode == 0, done.stderr
    assert warns(done.stderr)
    ours, theirs = (load_file(run / "checkpoints" / "step-00000008" / "model.safetensors")
                    for run in (tmp_path / "new", OLD))
    assert set(ours) == set(theirs)
    for name in theirs:
        assert ours[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name
    written = (tmp_path / "new" / "recipe.toml").read_text()
    assert all(f"\n{new} = " in written and f"\n{old} = " not in written for old, new in RENAMED.items())


def test_its_run_is_evaluated_and_reported(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    done = trainer("eval", tmp_path / "run", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["top1"] == 37.5, done.stderr
    done = trainer("report", tmp_path / "run", "--output", tmp_path / "run.html")
    assert done.returncode == 0 and "37.5" in (tmp_path / "run.html").read_text(), done.stderr
    done = trainer("doctor", tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_an_old_and_a_new_name_together(tmp_path):
    recipe = (OLD / "recipe.toml").read_text()
    (tmp_path / "r.toml").write_text(recipe.replace('watch = "accuracy"', 'watch = "accuracy"\nmetric = "loss"'))
    done = trainer("recipe", "check", "--recipe", tmp_path / "r.toml")
    assert done.returncode == 2
    assert "'watch' in [schedule] is the deprecated name of 'metric', which is given too; remove it" in done.stderr


def test_a_later_layer_overrides_by_either_name(tmp_path):
    for key in ("schedule.watch", "schedule.metric"):
        done = trainer("recipe", "show", "--recipe", OLD / "recipe.toml", "--set", f'{key}="loss"')
        assert done.returncode == 0 and '\nmetric = "loss"' in done.stdout, done.stderr
