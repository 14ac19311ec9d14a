"""Code that a run or a bench file brings along runs only with --trust-library."""
import json
import os
import shutil
import subprocess

import pytest

from trainer import DIGITS, trainer

@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = tmp_path_factory.mktemp("trained") / "run"
    done = trainer("--recipe", DIGITS, "--config", "cpu", "--output", run, "--set", "train.steps=2",
                   "--set", "telemetry.every_steps=1", "--set", "batch.micro=0")
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture(scope="module")
def bench_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    done = trainer("bench", "--recipe", DIGITS, "--config", "cpu", "--steps", "2", "--repeats", "1", "--out", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def mark(tmp_path):
    """A file that the library makes as soon as it is loaded."""
    return tmp_path / "loaded"


def library(path, mark):
    source = f'#include <fcntl.h>\n__attribute__((constructor)) void run(void) {{ creat("{mark}", 0600); }}\n'
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    return path


def run_with_library(trained, folder, name):
    """A copy of the run, whose recipe names the library."""
    shutil.copytree(trained, folder)
    recipe = folder / "recipe.toml"
    text = recipe.read_text()
    assert 'library = ""' in text
    recipe.write_text(text.replace('library = ""', f'library = "{name}"'))
    return folder


def refused(mark, *command):
    done = trainer(*command)
    assert not mark.exists(), f"{command} ran the library\n{done.stderr}"
    assert done.returncode == 2 and "[model] library: expected code that you chose" in done.stderr, done.stderr
    assert "--trust-library" in done.stderr
    return done.stderr


def loaded(mark, *command):
    """It is loaded; that it is no library of parts is said then."""
    done = trainer(*command)
    assert mark.exists(), done.stderr
    assert done.returncode == 2 and "without brim_abi()" in done.stderr, done.stderr
    mark.unlink()


def commands(run, tmp_path):
    recipe = ("--recipe", run / "recipe.toml")
    return [
        ("eval", run),
        ("predict", "--run", run, "image.png"),
        ("export", run, "--output", tmp_path / "weights.safetensors", "--format", "timm"),
        ("doctor", run, "--prove"),
        ("recipe", "check", *recipe),
        ("recipe", "show", *recipe),
        ("recipe", "show", *recipe, "--summary"),
        (*recipe, "--dry-run", "--output", tmp_path / "dry"),
        (*recipe, "--output", tmp_path / "again"),
        ("tune", *recipe),
        ("bench", *recipe),
        ("data", "bench", *recipe),
        ("devices", *recipe),
    ]


def test_every_command_refuses_the_library_of_a_run(trained, tmp_path, mark):
    run = run_with_library(trained, tmp_path / "run", "parts.so")
    library(run / "parts.so", mark)
    for command in commands(run, tmp_path):
        assert "parts.so, which came with a run" in refused(mark, *command)
        loaded(mark, *command, "--trust-library")


def test_a_bench_file_names_no_library(bench_file, tmp_path, mark):
    parts = library(tmp_path / "parts.so", mark)
    record = json.loads(bench_file.read_text())
    for variant in record["variants"]:
        assert 'library = ""' in variant["recipe"]
        variant["recipe"] = variant["recipe"].replace('library = ""', f'library = "{parts}"')
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(record))
    assert "which a bench file names" in refused(mark, "bench", "--replay", file)
    loaded(mark, "bench", "--replay", file, "--trust-library")


def test_a_library_outside_of_the_run_is_the_users(trained, tmp_path, mark):
    parts = library(tmp_path / "parts.so", mark)
    run = run_with_library(trained, tmp_path / "run", parts)
    loaded(mark, "eval", run)
    if os.geteuid() == 0:  # only root can give a file away
        os.chown(parts, 65534, 65534)
        assert "which a run names and another user owns" in refused(mark, "eval", run)


def test_ways_around_it(trained, tmp_path, mark):
    library(tmp_path / "parts.so", mark)

    beside = run_with_library(trained, tmp_path / "beside", "../parts.so")  # unpacked with the run
    refused(mark, "eval", beside)

    inside = run_with_library(trained, tmp_path / "inside", tmp_path / "inside/parts.so")
    library(inside / "parts.so", mark)
    refused(mark, "eval", inside)

    linked = run_with_library(trained, tmp_path / "linked", tmp_path / "link.so")
    library(linked / "parts.so", mark)
    (tmp_path / "link.so").symlink_to(linked / "parts.so")
    refused(mark, "eval", linked)

    base = tmp_path / "base"
    base.mkdir()
    (base / "base.toml").write_text('[model]\nlibrary = "../parts.so"\n')
    extending = run_with_library(trained, tmp_path / "extending", "")
    recipe = extending / "recipe.toml"
    recipe.write_text('extends = "../base/base.toml"\n' + recipe.read_text().replace('library = ""\n', ""))
    refused(mark, "eval", extending)

    bare = run_with_library(trained, tmp_path / "bare", "../parts.so")  # nothing of a run but a checkpoint
    for name in ("run.json", "metrics.jsonl"):
        (bare / name).unlink()
    (bare / "checkpoints").rename(bare / "kept")
    refused(mark, "eval", next((bare / "kept").glob("step-*")))


def test_what_the_command_line_names_is_the_users(trained, tmp_path, mark):
    parts = library(tmp_path / "parts.so", mark)
    run = run_with_library(trained, tmp_path / "run", "absent.so")
    loaded(mark, "eval", run, "--set", f"model.library={parts}")


def test_a_torchscript_file_is_code_too(trained, tmp_path, mark):
    run = run_with_library(trained, tmp_path / "run", "")
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('library = ""', 'torchscript = "model.pt"'))
    (run / "model.pt").write_text("a script")
    for command in (("eval", run), ("recipe", "check", "--recipe", recipe)):
        done = trainer(*command)
        assert done.returncode == 2 and "[model] torchscript: expected code that you chose" in done.stderr, done.stderr
