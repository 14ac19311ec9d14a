"""Weights that a model starts from, and where they go: model.pretrained, model.freeze, trainer eval
and trainer export, with files that the safetensors package writes and reads."""
import gzip
import json
import pathlib
import signal
import subprocess

import numpy
import pytest
import torch
import torchvision
from safetensors.torch import load_file, save_file

from trainer import DIGITS, LIMIT_S, TRAINER, environment, latest_checkpoint, sets, trainer

RECIPE = """
[model]
name = "resnet18"
[data]
kind = "synthetic"
samples = 16
eval_samples = 8
classes = {classes}
height = 64
width = 64
[batch]
global = 8
[precision]
mode = "fp32"
[optimizer]
name = "sgd"
learning_rate = 0.01
[train]
steps = 2
"""


@pytest.fixture
def resnet(tmp_path):
    """A recipe, and torchvision's ResNet-18 with random weights in a file."""
    def make(classes=10, file_classes=10):
        torch.manual_seed(3)
        model = torchvision.models.resnet18(num_classes=file_classes)
        save_file(model.state_dict(), tmp_path / "resnet18.safetensors")
        (tmp_path / "job.toml").write_text(RECIPE.format(classes=classes))
        return tmp_path / "job.toml", tmp_path / "resnet18.safetensors", model
    return make


def weights(run):
    return load_file(latest_checkpoint(run) / "model.safetensors")


def test_a_run_starts_from_torchvisions_weights_and_exports_them_back(resnet, tmp_path):
    recipe, file, model = resnet()
    # Everything but the last layer frozen, which learns nothing at a rate of 0: all must be as it was.
    run = trainer("--recipe", recipe, "--output", tmp_path / "run", *sets(
        model__pretrained=str(file), model__freeze=["conv1.*", "bn1.*", "layer*"], optimizer__learning_rate=0.0))
    assert run.returncode == 0, run.stderr
    assert "frozen: all but 5,130 parameters" in run.stderr
    exported = tmp_path / "back.safetensors"
    onnx = trainer("export", tmp_path / "run", "--output", tmp_path / "back.onnx")
    assert onnx.returncode == 2 and "ends in .safetensors" in onnx.stderr and not (tmp_path / "back.onnx").exists()
    done = trainer("export", tmp_path / "run", "--output", exported)
    assert done.returncode == 0, done.stderr
    back = load_file(exported)
    torchvision.models.resnet18(num_classes=10).load_state_dict(back, strict=True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(back[name], tensor) and back[name].dtype == tensor.dtype, name
    again = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(exported)))
    assert again.returncode == 0 and "converted" not in again.stderr, again.stderr


def test_a_run_needs_the_file_no_more_once_it_has_begun(resnet, tmp_path):
    recipe, file, _ = resnet()
    start = ("--recipe", recipe, "--output", tmp_path / "run", *sets(model__pretrained=str(file)))
    assert trainer(*start).returncode == 0
    file.unlink()
    for words in (("--resume", "auto", *start, *sets(train__steps=4)), ("eval", tmp_path / "run"),
                  ("export", tmp_path / "run", "--output", tmp_path / "back.safetensors")):
        done = trainer(*words)
        assert done.returncode == 0, done.stderr
    assert latest_checkpoint(tmp_path / "run").name == "step-00000004"
    again = trainer("--recipe", recipe, "--output", tmp_path / "again", *sets(model__pretrained=str(file)))
    assert again.returncode == 4 and "there is no such file" in again.stderr


def test_the_evaluation_of_a_file_is_torchvisions(resnet):
    recipe, file, model = resnet()
    done = trainer("eval", "--recipe", recipe, "--json", *sets(model__pretrained=str(file)))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == 8 and 0 <= found["top1"] <= 100
    with torch.no_grad():  # what the loss of these weights is about, on images of their own
        loss = torch.nn.functional.cross_entropy(model.eval()(torch.randn(64, 3, 64, 64)), torch.arange(64) % 10)
    assert found["loss"] == pytest.approx(loss.item(), rel=0.3)


def test_a_last_layer_for_other_classes_starts_anew(resnet, tmp_path):
    recipe, file, model = resnet(classes=5, file_classes=10)
    run = trainer("--recipe", recipe, "--output", tmp_path / "run", *sets(
        model__pretrained=str(file), model__freeze=["conv1.*", "bn1.*", "layer*"]))
    assert run.returncode == 0, run.stderr
    assert "fc has 10 classes in the file and 5 in the model; it is re-initialised" in run.stderr
    after = weights(tmp_path / "run")
    assert after["fc.weight"].shape == (5, 512)
    for name, tensor in model.state_dict().items():
        assert name.startswith("fc.") or torch.equal(after[name], tensor), name


def test_frozen_weights_stay_and_the_rest_learns(resnet, tmp_path):
    recipe, file, model = resnet()
    run = trainer("--recipe", recipe, "--output", tmp_path / "run", *sets(
        model__pretrained=str(file), model__freeze=["layer1.*"], optimizer__weight_decay=0.1,
        optimizer__momentum=0.9))
    assert run.returncode == 0, run.stderr
    after, before = weights(tmp_path / "run"), model.state_dict()
    for name, tensor in before.items():
        same = torch.equal(after[name], tensor)
        assert same if name.startswith("layer1.") else not same, name


def write_digits(folder, digits):
    """The scans of these digits, and a recipe that trains small_cnn on them."""
    folder.mkdir()
    recipe = f'extends = "{DIGITS}"\n[model]\nname = "small_cnn"\n'
    for part, section in (("train", "train"), ("test", "eval")):
        source = DIGITS.parent / "data" / "digits"
        images = gzip.decompress((source / f"{part}-images.idx.gz").read_bytes())
        labels = gzip.decompress((source / f"{part}-labels.idx.gz").read_bytes())
        chosen = numpy.isin(numpy.frombuffer(labels[8:], numpy.uint8), digits)
        count = int(chosen.sum()).to_bytes(4, "big")
        pixels = numpy.frombuffer(images[16:], numpy.uint8).reshape(len(chosen), -1)
        (folder / f"{part}-images").write_bytes(images[:4] + count + images[8:16] + pixels[chosen].tobytes())
        (folder / f"{part}-labels").write_bytes(
            labels[:4] + count + numpy.frombuffer(labels[8:], numpy.uint8)[chosen].tobytes())
        recipe += f'[data.{section}]\nimages = "{part}-images"\nlabels = "{part}-labels"\n'
    (folder / "job.toml").write_text(recipe)
    return folder / "job.toml"


def test_a_network_of_five_digits_learns_the_others_with_a_frozen_backbone(tmp_path):
    low, high = write_digits(tmp_path / "low", [0, 1, 2, 3, 4]), write_digits(tmp_path / "high", [5, 6, 7, 8, 9])
    run = trainer("--recipe", low, "--output", tmp_path / "first", *sets(train__epochs=6))
    assert run.returncode == 0, run.stderr
    file = tmp_path / "backbone.safetensors"
    assert trainer("export", tmp_path / "first", "--output", file).returncode == 0
    before = load_file(file)
    head = next(name for name, tensor in before.items() if name.endswith(".weight") and tensor.shape[0] == 5)
    backbone = [name for name in before if name.partition(".")[0] != head.partition(".")[0]]
    run = trainer("--recipe", high, "--output", tmp_path / "second", *sets(
        model__pretrained=str(file), model__freeze=[name for name in backbone if "running" not in name
                                                    and "tracked" not in name], train__epochs=6))
    assert run.returncode == 0, run.stderr
    assert "has 5 classes in the file and 10 in the model; it is re-initialised" in run.stderr
    after = weights(tmp_path / "second")
    for name in backbone:  # the running statistics of its batch norms too
        assert torch.equal(after[name], before[name]), name
    lines = [json.loads(line) for line in (tmp_path / "second" / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("eval_top1", 0) for line in lines) > 70  # by chance: 20


def test_eval_of_a_run_is_its_own_last_evaluation(tmp_path):
    run = trainer("--recipe", DIGITS, "--output", tmp_path / "run",
                  *sets(train__epochs=3, train__ema=0.5, precision__mode="fp32"))
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    best = max((line for line in lines if "eval_top1" in line), key=lambda line: line["eval_top1"])
    done = trainer("eval", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["step"] == best["step"] and found["top1"] == pytest.approx(best["eval_top1"])
    for name, step in (("best", best["step"]), ("latest", lines[-1]["step"])):
        done = trainer("eval", tmp_path / "run/checkpoints" / name, "--json")
        assert json.loads(done.stdout)["step"] == step, done.stderr
    assert found["loss"] == pytest.approx(best["eval_loss"], rel=1e-6)
    # The exported weights are the averaged ones: evaluated alone, they give the same.
    assert trainer("export", tmp_path / "run", "--output", tmp_path / "w.safetensors").returncode == 0
    alone = trainer("eval", "--recipe", DIGITS, "--json",
                    *sets(model__pretrained=str(tmp_path / "w.safetensors"), precision__mode="fp32"))
    assert json.loads(alone.stdout)["loss"] == pytest.approx(found["loss"], rel=1e-6)
    newest = tmp_path / "run/checkpoints/latest"
    assert trainer("export", newest, "--no-ema", "--output", tmp_path / "own.safetensors").returncode == 0
    own, trained = load_file(tmp_path / "own.safetensors"), load_file(latest_checkpoint(tmp_path / "run") / "model.safetensors")
    assert own.keys() == trained.keys() and all(torch.equal(own[name], trained[name]) for name in own)


@pytest.mark.parametrize("command", ["eval", "predict", "profile"])
def test_a_command_of_one_process_refuses_several(tmp_path, command):
    run = tmp_path / "run"
    if command != "profile":
        assert trainer("train", DIGITS, "--output", run, *sets(train__steps=1)).returncode == 0
    words = {"eval": [run], "predict": [run, "image.png"], "profile": [DIGITS]}[command]
    done = trainer(command, *words, RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost",
                   MASTER_PORT="1")
    assert done.returncode == 2 and f"trainer {command} is one process, and torchrun starts 2" in done.stderr, done.stderr


def test_eval_that_is_stopped_gives_no_metrics(tmp_path):
    data = sets(data='{kind = "synthetic", height = 8, width = 8, channels = 1, classes = 10, samples = 640}')
    run = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *data, *sets(train__steps=1))
    assert run.returncode == 0, run.stderr
    many = sets(data__eval_samples=100000000)
    process = subprocess.Popen([TRAINER, "eval", tmp_path / "run", *many], env=environment(), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while process.poll() is None and "Threads:\t1\n" in status.read_text():
        pass  # until batches are made
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 75 and out == "", err
    assert "stopped before the last sample" in err


def refused(recipe, file, status, *words, **values):
    done = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(file), **values))
    assert done.returncode == status, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_files_that_do_not_fit_are_refused_in_words(resnet, tmp_path):
    recipe, file, model = resnet()
    state = model.state_dict()

    def changed(**changes):
        save_file({name: tensor.contiguous() for name, tensor in {**state, **changes}.items()
                   if tensor is not None}, file)
        return file
    refused(recipe, changed(**{"layer1.0.conv1.weight": None}), 4, "lacks layer1.0.conv1.weight")
    refused(recipe, changed(**{"layer9.weight": torch.zeros(2)}), 4, "layer9.weight", "no place")
    refused(recipe, changed(**{"bn1.bias": torch.zeros(3)}), 4, "bn1.bias: expected shape [64], found [3]")
    save_file({f"net.{name}": tensor.contiguous() for name, tensor in state.items()}, file)
    refused(recipe, file, 4, 'no name in common with this run: its names are like "net.bn1.bias"')
    strictless = sets(model__pretrained=str(file), model__strict=False)
    done = trainer("eval", "--recipe", recipe, *strictless)
    assert done.returncode == 4 and "none of its" in done.stderr and 'like "net.bn1.bias"' in done.stderr
    save_file({"conv1.weight": state["conv1.weight"], **{f"x.{i}": torch.zeros(1) for i in range(30)}}, file)
    done = trainer("eval", "--recipe", recipe, *strictless)
    assert done.returncode == 0 and "tensors in all are re-initialised" in done.stderr
    assert "30 tensors in all are not used" in done.stderr and len(done.stderr.splitlines()) < 40
    changed(**{"bn1.bias": torch.zeros(3)})
    # Without strict, what fits is taken and the rest said.
    done = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(file), model__strict=False))
    assert done.returncode == 0 and "has another shape for bn1.bias" in done.stderr
    changed()
    file.write_bytes(file.read_bytes()[:-7])
    refused(recipe, file, 4, str(file))
    refused(recipe, tmp_path / "none.safetensors", 4, "there is no such file")


def test_pickles_are_never_read(resnet, tmp_path):
    recipe, file, model = resnet()
    state = model.state_dict()
    wrapped = {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}, "epoch": 3}
    for content, legacy in ((state, False), (state, True), (wrapped, False)):
        pickled = tmp_path / "resnet18.pth"
        torch.save(content, pickled, _use_new_zipfile_serialization=not legacy)
        refused(recipe, pickled, 4, "one of PyTorch's pickles", "python3 -c")
        # The line that it proposes works.
        said = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(pickled))).stderr
        code = said.split('python3 -c "')[1].rsplit('"', 1)[0]
        exec(code)
        done = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(file)))
        assert done.returncode == 0, done.stderr


def test_types_are_converted_with_a_warning(resnet, tmp_path):
    recipe, file, model = resnet()
    save_file({name: tensor.bfloat16() if tensor.is_floating_point() else tensor
               for name, tensor in model.state_dict().items()}, file)
    done = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(file)))
    assert done.returncode == 0 and "BFloat16 weights are converted" in done.stderr


def test_float64_weights_are_taken_as_they_are(resnet, tmp_path):
    recipe, file, model = resnet()
    wide = {name: tensor.double() + 1e-12 if tensor.is_floating_point() else tensor
            for name, tensor in model.state_dict().items()}
    for weights in (wide, model.state_dict()):
        save_file(weights, file)
        done = trainer("--recipe", recipe, "--output", tmp_path / f"run-{id(weights)}", *sets(
            model__pretrained=str(file), precision__mode="fp64", train__steps=1, optimizer__learning_rate=0.0))
        assert done.returncode == 0 and "converted" not in done.stderr, done.stderr
        ours = load_file(latest_checkpoint(tmp_path / f"run-{id(weights)}") / "model.safetensors")
        assert torch.equal(ours["conv1.weight"], weights["conv1.weight"].double())


@pytest.mark.parametrize("patterns, words", [(["layer9.*"], '"layer9.*" matches no parameter'),
                                             (["*"], "leaves no parameter to train")])
def test_patterns_that_freeze_nothing_or_everything_are_refused(resnet, patterns, words):
    recipe, file, _ = resnet()
    refused(recipe, file, 2, words, model__freeze=patterns)


def test_eval_and_export_of_nothing_are_refused(tmp_path):
    for words, status in ((["eval", tmp_path / "none"], 4), (["eval"], 2), (["export", tmp_path], 2),
                          (["export", tmp_path, "--output", tmp_path / "x"], 4)):
        done = trainer(*words)
        assert done.returncode == status and "error[" in done.stderr, (words, done.stderr)
