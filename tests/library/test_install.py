"""What cmake --install installs, seen from outside: its programs run, the examples are built with it,
and their own model, dataset and task train by recipe."""
import json
import re
import shutil
import subprocess

import pytest
from safetensors.numpy import load_file

from installed import (SOURCE, binaries, build, check_run_paths, cmake, commands_of, install, losses, must_run, run,
                       run_as_written)

STEPS = ("--set", "train.steps=20", "--set", "telemetry.every_steps=1", "--set", "precision.mode=fp32")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home") / "brim"  # ~/brim, as in the documents
    install(folder)
    return folder


@pytest.fixture(scope="module")
def own_model(prefix):
    return built(prefix, "own_model")


@pytest.fixture(scope="module")
def own_dataset(prefix):
    return built(prefix, "own_dataset")


@pytest.fixture(scope="module")
def own_task(prefix):
    return built(prefix, "own_task")


@pytest.fixture(scope="module")
def own_callbacks(prefix):
    return built(prefix, "own_callbacks")


@pytest.fixture(scope="module")
def pieces(prefix):
    return built(prefix, "pieces") / "build/pieces"


def built(prefix, example):
    """A copy of the example, built by the first command of its page."""
    folder = prefix / "examples" / example
    shutil.copytree(SOURCE / "examples" / example, folder, ignore=shutil.ignore_patterns("build"))
    run_as_written(commands_of(folder / "README.md")[0], folder, prefix.parent)
    return folder


def linked_recipe(own_model):
    """The example's recipe without its library, which the program has inside."""
    lines = (own_model / "recipe.toml").read_text().splitlines(keepends=True)
    recipe = own_model / "linked.toml"
    recipe.write_text("".join(line for line in lines if not line.startswith("library")))
    return recipe


def refused(prefix, example, library):
    done = run(prefix / "bin/trainer", "recipe", "check", "--recipe", example / "recipe.toml",
               "--set", f"model.library={library}")
    assert done.returncode == 2, done.stderr
    assert f"{library}: " in done.stderr and "[model] library" in done.stderr, done.stderr
    return done.stderr


def shared_library(path, source, *options):
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-w", "-", "-o", path, *options], input=source, text=True,
                   check=True)
    return path


def test_installed_programs_find_their_recipes(prefix, tmp_path):
    only_here = prefix / "share/brim/recipes/only_here.toml"
    shutil.copy(prefix / "share/brim/recipes/digits.toml", only_here)
    done = must_run(prefix / "bin/trainer", "--recipe", "only_here", "--config", "cpu", "--dry-run", cwd=tmp_path)
    assert "1,437 training" in done.stderr
    for name in ("only_here", "recipes/only_here.toml"):
        (tmp_path / "mine.toml").write_text(f'extends = "{name}"\n')
        must_run(prefix / "bin/trainer", "recipe", "check", "--recipe", tmp_path / "mine.toml", cwd=prefix)
    assert "usage: trainrun" in must_run(prefix / "bin/trainrun", "--help").stdout
    share = prefix / "share"
    assert "trainer-data-pack" in (share / "man/man1/trainer-data-pack.1").read_text()
    assert "complete " in (share / "bash-completion/completions/trainer").read_text()
    assert "#compdef trainer" in (share / "zsh/site-functions/_trainer").read_text()
    assert "complete " in (share / "fish/vendor_completions.d/trainer.fish").read_text()


def test_no_library_is_looked_for_in_the_current_folder(prefix, own_model):
    check_run_paths(binaries(prefix / "bin", prefix / "lib") + binaries(own_model / "build"))


def test_a_model_of_ones_own_trains_linked_and_as_a_library(prefix, own_model, tmp_path):
    recipe = own_model / "recipe.toml"
    must_run(prefix / "bin/trainer", "--recipe", recipe, "--output", tmp_path / "loaded", *STEPS)
    must_run(own_model / "build/own_trainer", "--recipe", linked_recipe(own_model), "--output", tmp_path / "linked",
             *STEPS)
    loaded, linked = losses(tmp_path / "loaded"), losses(tmp_path / "linked")
    assert len(loaded) == 20 and loaded[-1] < 0.8 * loaded[0]
    assert loaded == linked

    # A run's folder knows where its library is.
    must_run(prefix / "bin/trainer", "eval", tmp_path / "loaded", cwd=tmp_path)
    weights = tmp_path / "weights.safetensors"
    must_run(prefix / "bin/trainer", "export", tmp_path / "loaded", "--output", weights)
    shapes = {name: tensor.shape for name, tensor in load_file(weights).items()}
    assert shapes == {"conv.weight": (16, 3, 3, 3), "conv.bias": (16,), "head.weight": (10, 256), "head.bias": (10,)}


def must_take_a_step(command, cwd, prefix, output):
    """A document's command of the trainer, a single step long."""
    run_as_written(" ".join([command, *STEPS, "--set train.steps=1 --output", str(output)]), cwd, prefix.parent)
    assert len(losses(output)) == 1


@pytest.mark.parametrize("example, count", [("own_dataset", 1), ("own_model", 2), ("own_task", 1),
                                            ("own_callbacks", 1)])
def test_the_commands_of_an_examples_page_run(prefix, example, count, request, tmp_path):
    folder = request.getfixturevalue(example)
    commands = commands_of(folder / "README.md")[1:]  # the first has built it
    assert len(commands) == count
    for place, command in enumerate(commands):
        must_take_a_step(command, folder, prefix, tmp_path / f"run{place}")


def test_the_commands_of_the_page_on_own_models_run(prefix, own_model, tmp_path):
    commands = [line for line in commands_of(SOURCE / "docs/tutorials/own-model.md") if "--recipe" in line]
    assert len(commands) == 2
    for place, command in enumerate(commands):
        must_take_a_step(command, prefix, prefix, tmp_path / f"run{place}")


def test_a_library_that_the_program_has_inside_is_named_as_such(own_model):
    done = run(own_model / "build/own_trainer", "recipe", "check", "--recipe", own_model / "recipe.toml")
    assert done.returncode == 2 and "\"own_net\", which is taken" in done.stderr
    assert "--set 'model.library=\"\"'" in done.stderr


def test_the_schema_of_a_recipe_has_its_librarys_keys(prefix, own_model):
    schema = json.loads(must_run(prefix / "bin/trainer", "recipe", "schema", "--recipe",
                                 own_model / "recipe.toml").stdout)
    model = schema["properties"]["model"]["properties"]
    assert "own_net" in model["name"]["enum"] and model["width"] is not None
    page = must_run(prefix / "bin/trainer", "recipe", "reference", "--recipe", own_model / "recipe.toml").stdout
    assert '[model] with name = "own_net"' in page


def test_ranks_of_a_library_and_of_a_linked_program(prefix, own_model, tmp_path):
    for name, program, recipe in (("loaded", prefix / "bin/trainer", own_model / "recipe.toml"),
                                  ("linked", own_model / "build/own_trainer", linked_recipe(own_model))):
        must_run(program, "--recipe", recipe, "--devices", "cpu,cpu", "--output", tmp_path / name, *STEPS,
                 "--set", "train.steps=3")
        assert len(losses(tmp_path / name)) == 3


def test_layers_of_libtorch_warn_of_no_strides(prefix, own_model, tmp_path):
    done = must_run(prefix / "bin/trainer", "--recipe", own_model / "recipe.toml", "--devices", "cpu,cpu", "--output",
                    tmp_path / "run", "--set", "train.steps=2", "--set", "precision.channels_last=true")
    assert "strides" not in done.stderr, done.stderr


def test_a_dataset_of_ones_own(prefix, own_dataset, tmp_path):
    must_run(prefix / "bin/trainer", "--recipe", own_dataset / "recipe.toml", "--output", tmp_path / "run", *STEPS)
    falling = losses(tmp_path / "run")
    assert falling[-1] < 0.5 * falling[0]


def test_a_task_of_ones_own(prefix, own_task, tmp_path):
    must_run(prefix / "bin/trainer", "--recipe", own_task / "recipe.toml", "--output", tmp_path / "run", *STEPS)
    falling = losses(tmp_path / "run")
    assert falling[-1] < 0.5 * falling[0]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "eval_s" in line][-1]
    assert last["eval_top1"] > 50 and "eval_top5" not in last


def test_callbacks_stop_a_run(prefix, own_callbacks, tmp_path):
    """The loss of the few evaluation images rises long before the 200 epochs are over."""
    run_folder = tmp_path / "run"
    done = run(prefix / "bin/trainer", "--recipe", own_callbacks / "recipe.toml", "--output", run_folder,
               "--set", "precision.mode=fp32")
    assert done.returncode == 75, done.stderr
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if "eval_loss" in line]
    evaluated = [line["eval_loss"] for line in evaluations]
    assert 4 <= len(evaluated) < 200 and min(evaluated[-3:]) >= min(evaluated[:-3])
    assert f"step {evaluations[-1]['step']}: no better evaluation in the last 3" in done.stderr
    for checkpoint in (run_folder / "checkpoints").glob("step-*"):
        step = int(checkpoint.name.removeprefix("step-"))
        assert f"checkpoint of step {step} is in {checkpoint}" in done.stderr, done.stderr


def test_pieces_work_alone(prefix, pieces, tmp_path):
    def said(name):
        return must_run(pieces, name, cwd=tmp_path).stdout

    loss, scale = said("mixed_precision").removeprefix("loss ").split(", scale ")
    assert float(loss) < 0.01 and float(scale) >= 1
    assert said("data_loader") == "2000 samples\n"
    batch, peak = said("batch_search").removeprefix("batch ").split(", ")[:2]
    assert int(batch) > 10_000 and 0.9 * 256 < float(peak.removesuffix(" MiB")) <= 256
    assert said("checkpoint") == "step 100, epoch 3\n"
    assert said("phases").count("forward") == 3 and json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    both = must_run(prefix / "bin/trainrun", "--nproc-per-node=2", pieces, "data_parallel", cwd=tmp_path)
    biases = set(re.findall(r"rank [01]: bias (\S+)", both.stdout))
    assert both.stdout.count("bias") == 2 and len(biases) == 1, both.stdout


def test_a_wrong_shape_is_the_recipes_matter(prefix, own_model):
    done = run(prefix / "bin/trainer", "--recipe", own_model / "recipe.toml", "--set", "model.width=0")
    assert done.returncode == 2 and "'width' in [model]: expected an integer at least 1" in done.stderr


def test_libraries_that_are_none_are_refused(prefix, own_dataset, tmp_path):
    assert "no such file" in refused(prefix, own_dataset, tmp_path / "absent.so")
    text = tmp_path / "text.so"
    text.write_text("no library")
    assert "expected a shared library" in refused(prefix, own_dataset, text)
    other = shared_library(tmp_path / "other.so", "int x;")
    assert "without brim_abi()" in refused(prefix, own_dataset, other)
    old = shared_library(tmp_path / "old.so", 'const char* brim_abi(void) { return "Brim 0.0.1"; }')
    assert "the headers of Brim 0.0.1, but this program is Brim " in refused(prefix, own_dataset, old)


def test_a_comment_is_no_part_of_the_interface(tmp_path):
    def interface(change):
        source = tmp_path / "source"
        shutil.copytree(SOURCE / "framework", source / "framework", dirs_exist_ok=True)
        model = source / "framework/nn/model.h"
        model.write_text(change(model.read_text()))
        must_run(cmake(), "-D", f"SOURCE={source}", "-D", f"OUTPUT={tmp_path}/abi.h", "-D", "BRIM=1", "-D", "TORCH=2",
                 "-P", SOURCE / "scripts/cmake/Abi.cmake")
        return (tmp_path / "abi.h").read_text()

    before = interface(lambda text: text)
    assert interface(lambda text: text.replace("// ", "// so: ")) == before
    assert interface(lambda text: text.replace("virtual at::Tensor forward", "virtual at::Tensor passes")) != before


def test_a_library_of_this_brim_can_still_be_wrong(prefix, own_dataset, tmp_path):
    abi = (prefix / "include/brim/recipe/abi.h").read_text()
    begin = abi + "const char* brim_abi(void) { return BRIM_ABI; } "
    half = shared_library(tmp_path / "half.so", begin)
    assert "without brim_register()" in refused(prefix, own_dataset, half)
    lacking = shared_library(tmp_path / "lacking.so", begin + "void nowhere(); void brim_register() { nowhere(); }")
    assert "undefined symbol: nowhere" in refused(prefix, own_dataset, lacking)
    build(own_dataset, tmp_path / "hidden", prefix, "-DCMAKE_CXX_VISIBILITY_PRESET=hidden")
    done = run(prefix / "bin/trainer", "recipe", "check", "--recipe", own_dataset / "recipe.toml",
               "--set", f"model.library={tmp_path}/hidden/libown_dataset.so")
    assert done.returncode == 2 and "expected a library that registers a component" in done.stderr
