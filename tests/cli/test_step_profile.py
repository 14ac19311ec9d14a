"""trainer profile: operators and modules of real training steps, whose times and operations add up."""
import json
import re

import pytest
import torch
import torchvision
from torch.utils.flop_counter import FlopCounterMode

from trainer import DIGITS, sets, trainer

IMAGES = """
[run]
name = "images"
[model]
name = "resnet18"
[data]
kind = "synthetic"
height = 32
width = 32
classes = 10
samples = 64
eval_samples = 0
[batch]
global = 4
[optimizer]
name = "sgd"
[train]
steps = 9
"""
LAYERS, WIDTH, LENGTH, VOCABULARY = 2, 64, 32, 97
TOKENS = f"""
[run]
name = "tokens"
[model]
name = "gpt"
layers = {LAYERS}
heads = 4
width = {WIDTH}
pad_vocabulary_to = 1
[data]
kind = "synthetic_tokens"
length = {LENGTH}
vocabulary = {VOCABULARY}
samples = 64
eval_samples = 0
[batch]
global = 4
[optimizer]
name = "adamw"
[train]
steps = 9
"""


def profile(*args, steps=3):
    done = trainer("profile", *args, "--steps", steps, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_micro_batches_of_a_step_share_the_casts_of_weights(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(TOKENS)
    found = profile("--recipe", recipe, *sets(batch__micro=1, precision__mode="bf16", precision__fused=False), steps=1)
    copies = [(operator["calls"], *map(tuple, (operator["inputs"][0], operator["inputs"][1])))
              for operator in found["operators"] if operator["operator"] == "aten::copy_"]
    weight = [4 * WIDTH, WIDTH]  # of a block's first layer in its MLP, of which there is one in each
    to_bf16 = sum(calls for calls, to, of in copies if (to, of) == (("bf16", weight), ("fp32", weight)))
    to_fp32 = sum(calls for calls, to, of in copies if (to, of) == (("fp32", weight), ("bf16", weight)))
    assert (to_bf16, to_fp32) == (LAYERS, 4 * LAYERS)  # a gradient is cast in each


def flops(found, phase):
    return sum(row["flops"] for row in found["by_operator"] if row["phase"] == phase)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    return profile("digits", "--output", folder, steps=5), folder


def test_times_add_up_to_the_wall_time(digits):
    found, _ = digits
    wall = found["wall_s"]
    assert wall > 0 and found["steps"] == 5
    assert sum(found["phases_s"].values()) == pytest.approx(wall, rel=0.03)
    operators = sum(row["self_s"] for row in found["by_operator"])
    rest = sum(found["rest_s"].values())
    assert operators + rest == pytest.approx(wall, rel=0.03)
    assert {"data_wait", "measuring itself", "forward, between operators"} <= found["rest_s"].keys()
    assert all(row["self_s"] >= 0 and row["calls"] > 0 for row in found["by_operator"])
    assert sum(row["self_s"] for row in found["operators"]) == pytest.approx(operators)
    passes = sum(row["self_s"] for row in found["by_operator"] if row["phase"] in ("forward", "backward"))
    assert sum(row["self_s"] for row in found["by_module"]) == pytest.approx(passes)


def test_operations_of_an_mlp_are_those_of_its_products(digits):
    found, _ = digits
    layers = [2 * 64 * n * m for n, m in [(64, 256), (256, 256), (256, 10)]]
    assert flops(found, "forward") == sum(layers)
    # The first layer's input needs no gradient.
    assert flops(found, "backward") == 2 * sum(layers) - layers[0]
    modules = {row["module"]: row for row in found["by_module"]}
    named = sorted(name for name in modules if name not in ("input", "loss"))
    assert [modules[name]["flops"] for name in named] == [2 * layers[0], 3 * layers[1], 3 * layers[2]]
    assert "loss" in modules and all(modules[name]["forward_s"] > 0 for name in named)
    assert all(modules[name]["backward_s"] > 0 for name in named)


def test_each_operator_has_its_bound_and_its_distance_from_the_peaks(digits):
    found, _ = digits
    assert found["peaks"]["bytes_per_s"] > 0 and found["peaks"]["call_s"] > 0
    assert all(peak > 0 for peak in found["peaks"]["flops_per_s"].values())
    for row in found["by_operator"]:
        assert row["bound"] in ("compute", "memory", "launch", "–")
        if row["flops"] > 0:
            assert row["flops_per_s"] == pytest.approx(row["flops"] / row["self_s"])
    # SGD reads gradient and momentum, and reads and writes momentum and parameter, in fp32.
    (step,) = [row for row in found["by_operator"] if row["operator"] == "aten::_fused_sgd_"]
    parameters = 64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10
    assert 5 * 4 * parameters <= step["bytes"] <= 5.1 * 4 * parameters


def test_operations_of_a_resnet_are_those_that_pytorch_counts(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(IMAGES)
    model = torchvision.models.resnet18(num_classes=10)
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(4, 3, 32, 32)).sum().backward()
    found = profile(recipe, *sets(precision__mode="fp32"), steps=2)
    assert sum(row["flops"] for row in found["by_operator"]) == counter.get_total_flops()
    again = profile(recipe, *sets(precision__mode="bf16"), steps=2)
    assert sum(row["flops"] for row in again["by_operator"]) == counter.get_total_flops()
    by_module = {row["module"]: row["flops"] for row in again["by_module"]}
    for layer in ("layer1.0.conv1", "layer1.0.conv2"):
        assert by_module[layer] == 3 * 2 * 4 * 64 * 64 * 9 * 8 * 8
    # Though the fused form of a batch norm and the convolution behind it is a single node.
    assert not [name for name, count in by_module.items() if ".bn" in name and count > 0]


def test_operations_of_a_gpt_are_those_of_the_formula(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(TOKENS)
    found = profile(recipe, *sets(precision__mode="fp32"), steps=2)
    tokens = 4 * LENGTH
    blocks = LAYERS * 12 * WIDTH * WIDTH  # qkv, projection, and two of four times the width
    attention = LAYERS * 2 * 2 * tokens * LENGTH * WIDTH
    products = 2 * tokens * (blocks + WIDTH * VOCABULARY)
    # The loss in one with its output layer takes both gradients of that in forward.
    early = any(row["operator"] == "brim::linear_cross_entropy" for row in found["by_operator"])
    moved = 2 * 2 * tokens * WIDTH * VOCABULARY if early else 0
    assert flops(found, "forward") == products + attention + moved
    assert flops(found, "backward") == 2 * products + 5 * attention // 2 - moved


def test_a_finding_names_the_line_to_change(tmp_path):
    recipe = tmp_path / "job.toml"
    recipe.write_text(TOKENS)
    small = sets(model__width=16, model__heads=2, model__layers=1, data__vocabulary=20000)
    found = profile(recipe, *small, *sets(precision__fused=False), steps=2)
    changes = {each["rule"]: each["change"] for each in found["findings"]}
    assert changes["unfused"] == 'precision.fused = "auto"'
    # With that line it has nothing to say of the loss.
    found = profile(recipe, *small, steps=2)
    assert not [each for each in found["findings"] if "cross entropy" in each["message"]]
    assert {"brim::cross_entropy", "brim::linear_cross_entropy"} & {row["operator"] for row in found["by_operator"]}


def test_what_is_kept_is_what_was_printed(digits):
    found, folder = digits
    kept = json.loads((folder / "profile.json").read_text())
    assert kept == {key: found[key] for key in kept}


def test_a_table_for_people(tmp_path):
    done = trainer("profile", DIGITS, "--steps", 2, "--top", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 steps of digits on cpu" in done.stdout and "peaks, measured:" in done.stdout
    assert "operators, by the time of their own" in done.stdout
    assert re.search("  (measuring itself|data_wait|.*, between operators)$", done.stdout, re.M)  # what takes no time is left out
    modules = done.stdout.split("modules, forward and backward")[1]
    assert "loss" in modules or "more; --json has all" in modules
    assert not list(tmp_path.iterdir())


def test_forms_are_listed_by_what_they_save(tmp_path):
    (tmp_path / "images.toml").write_text(IMAGES)
    done = trainer("profile", "--recipe", tmp_path / "images.toml", "--steps", 2, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("fused ms  plain ms  taken\n")[1].split("\n\n")[0]
    rows = re.findall(r"^ *([\d.]+) +([\d.]+)  (?:fused|plain) +\S", table, re.MULTILINE)
    saved = [abs(float(fused) - float(plain)) for fused, plain in rows]
    assert len(saved) > 5
    assert all(former >= latter - 0.02 for former, latter in zip(saved, saved[1:])), table


@pytest.fixture(scope="module")
def profiled_run(tmp_path_factory):
    """A run, and a profile of its own recipe in its folder."""
    run = tmp_path_factory.mktemp("run") / "run"
    done = trainer("train", DIGITS, "--output", run, *sets(train__steps=24, eval__every_epochs=0,
                                                           telemetry__every_steps=2, run__name="<b>&amp;",
                                                           precision__mode="fp32"))
    assert done.returncode == 0, done.stderr
    done = trainer("profile", run / "recipe.toml", "--steps", 3, "--output", run)
    assert done.returncode == 0, done.stderr
    return run, done.stdout


def test_the_page_shows_modules_and_the_roofline_without_scripts(profiled_run):
    page = (profiled_run[0] / "profile.html").read_text()
    assert "<script" not in page and "<b>&amp;" not in page and "&lt;b&gt;&amp;amp;" in page
    assert "script-src" not in page and "default-src 'none'" in page
    cells = re.findall(r'class="cell r\d" style="left:([\d.]+)%;top:([\d.]+)%;width:([\d.]+)%;height:([\d.]+)%" '
                       r'title="([^"]*)"', page)
    assert {"layers.0", "layers.1", "layers.2", "loss"} <= {title.split(":")[0] for *_, title in cells}
    # The whole step, but for what is too small to be seen.
    assert sum(float(width) * float(height) for _, _, width, height, _ in cells) == pytest.approx(1e4, rel=0.01)
    dots = re.findall(r'<path class="dot [^>]*><title>([^<]*)</title>', page)
    assert len(dots) >= 5 and any(re.match("(aten::addmm|brim::block_linear) in layers.1, forward", dot) for dot in dots)


def test_doctor_and_report_show_the_profile_that_a_run_has(profiled_run):
    run, printed = profiled_run
    said = trainer("doctor", run)
    assert said.returncode == 0 and "3 steps of" in said.stdout
    assert "operators, by the time of their own" in said.stdout and "layers.1" in said.stdout
    proved = trainer("doctor", run, "--prove")
    assert proved.returncode == 0 and "layers.1" in proved.stdout
    assert proved.stdout.splitlines()[-1].startswith("proof    ")  # not lost above the profile
    found = json.loads(trainer("doctor", run, "--json").stdout)["profile"]
    assert found["steps"] == 3 and found["wall_s"] > 0
    for finding in found["findings"]:
        assert f"{finding['message']} [{finding['rule']}]" in printed
    done = trainer("report", run)
    assert done.returncode == 0, done.stderr
    page = (run / "report.html").read_text()
    assert "Profile of single steps" in page and 'class="treemap"' in page
    (run / "profile.json").write_text('{"steps": 1}')
    for command in ("doctor", "report"):
        done = trainer(command, run)
        assert done.returncode == 0 and "expected what trainer profile writes" in done.stderr
    assert "Profile of single steps" not in (run / "report.html").read_text()


@pytest.mark.parametrize("words", [["--steps", 0], ["--steps", 5000], ["--top", 0]])
def test_bad_numbers_are_refused(words):
    done = trainer("profile", DIGITS, *words)
    assert done.returncode == 2 and "expected a number from 1 to 1000" in done.stderr


def test_an_output_that_takes_no_files_is_found_before_anything_is_measured(tmp_path):
    for folder, problem in (("/proc/none", "cannot make the folder"), ("/proc/self", "can't be written to"),
                            (tmp_path, "expected a regular file or nothing there, found a folder")):
        if folder == tmp_path:
            (tmp_path / "profile.html").mkdir()
        done = trainer("profile", DIGITS, "--output", folder)
        assert done.returncode == 5 and problem in done.stderr, done.stderr
        assert done.stdout == ""
