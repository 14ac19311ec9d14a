"""Bad input ends in words, with the right exit status, quickly, and costs no file."""
import ctypes
import gzip
import json
import os
import resource
import shutil
import struct
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from trainer import DIGITS, SOURCE, TRAINER, environment, latest_checkpoint, server, sets, trainer

VALID = ('[model]\nname = "mlp"\n[data]\nkind = "synthetic"\nsamples = 64\nheight = 8\nwidth = 8\n'
         '[optimizer]\nname = "sgd"\n[train]\nsteps = 2\n')

RECIPES = {
    "empty": (b"", "empty"),
    "only a comment": (b"# nothing\n", "empty"),
    "syntax": (b"[run\nname = 1\n", "recipe.toml:1:"),
    "unknown section": (VALID.encode() + b"[optimiser]\nname = 'sgd'\n", "did you mean 'optimizer'?"),
    "unknown key with no near name": (VALID.replace("[optimizer]", "[precision]\nformat = 1\n[optimizer]").encode(),
                                      "unknown key 'format' in [precision]; known there: channels_last, fused, mode, scaler"),
    "unknown key": (VALID.replace("[optimizer]", "[optimizer]\nlearning_rte = 1").encode(),
                    "unknown key 'learning_rte' in [optimizer]; did you mean 'learning_rate'?"),
    "wrong type": (VALID.replace("steps = 2", 'steps = 2\nepochs = "ten"').encode(), "recipe.toml:12:"),
    "out of range": (VALID.replace("steps = 2", "steps = 2\nlabel_smoothing = 1.5").encode(), "label_smoothing"),
    "bad word": (VALID.encode() + b'[precision]\nmode = "fp17"\n', "fp16"),
    "nan": (VALID.replace('"sgd"', '"sgd"\nlearning_rate = nan').encode(), "learning_rate"),
    "duplicate key": (VALID.replace("steps = 2", "steps = 2\nsteps = 3").encode(), "recipe.toml:12:"),
    "not utf-8": (b'[run]\nname = "\xff\xfe"\n', "UTF-8"),
    "deep arrays": (b"a = " + b"[" * 10_000, "nest"),
    "deep tables": (b"a = " + b"{a=" * 10_000, "nest"),
    "deep keys": (b"a." * 10_000 + b"a = 1", "nest"),
    "no model": (VALID.replace('name = "mlp"\n', "").encode(), "name"),
    "unknown model": (VALID.replace('"mlp"', '"mpl"').encode(), "did you mean \"mlp\"?"),
    "micro over global": (VALID.encode() + b"[batch]\nglobal = 4\nmicro = 8\n", "micro"),
    "measured shares in a deterministic run": (
        VALID.encode() + b'[run]\ndeterministic = true\n[distributed]\nbalance = "throughput"\n', "throughput"),
    "a scale beyond float32": (VALID.encode() + b'[precision]\nmode = "fp16"\nscaler.init_scale = 1e39\n', "1e+38"),
    "a norm beyond float32": (VALID.replace("steps = 2", "steps = 2\nclip_norm = 1e39").encode(), "1e+38"),
    "a decay beyond float32": (VALID.replace('"sgd"', '"lamb"\nweight_decay = 1e39').encode(), "1e+38"),
    "a name with NUL": (VALID.encode() + b'[run]\nname = "\\u0000x"\n', "control characters"),
    "a name with a newline": (VALID.encode() + b'[run]\nname = "a\\nb"\n', '"a\\nb"'),
    "a name with an escape": (VALID.encode() + b'[run]\nname = "a\\u001b[31mb"\n', '"a\\u001B[31mb"'),
    "a name with a C1 escape": (VALID.encode() + b'[run]\nname = "a\\u009b31mb"\n', '"a\\u009B31mb"'),
    "a long name": (VALID.encode() + b'[run]\nname = "' + b"n" * 300 + b'"\n', "at most 200 bytes, found 300"),
    "a path with NUL": (VALID.replace('"mlp"', '"mlp"\npretrained = "a\\u0000b"').encode(), "NUL"),
    "a path as name": (VALID.encode() + b'[run]\nname = "../up"\n', "name"),
}


def refused(result, status, *words):
    assert result.returncode == status, (result.returncode, result.stderr)
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("error["), result.stderr
    assert all(line.startswith(("error[", "brim: ")) for line in lines), result.stderr
    for word in words:
        assert word in result.stderr, result.stderr
    assert "\x1b" not in result.stderr and "\u009b" not in result.stderr
    assert "terminate called" not in result.stderr


@pytest.mark.parametrize("name", RECIPES)
def test_bad_recipe(name, tmp_path):
    content, words = RECIPES[name]
    recipe = tmp_path / "recipe.toml"
    recipe.write_bytes(content)
    refused(trainer("--recipe", recipe, "--output", tmp_path / "run"), 2, words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["a name with NUL", "a long name"])
def test_a_dry_run_refuses_a_bad_name(name, tmp_path):
    content, words = RECIPES[name]
    (tmp_path / "recipe.toml").write_bytes(content)
    refused(trainer("--recipe", "recipe.toml", "--dry-run", cwd=tmp_path), 2, words)


def test_a_folder_for_the_run_that_no_recipe_can_name_is_refused(tmp_path):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/run\xff")
    refused(trainer("--recipe", DIGITS, "--output", place), 2, r"run\xff: expected a path in UTF-8")
    assert not os.path.exists(place)


def test_tokens_are_no_images(tmp_path):
    (tmp_path / "train.bin").write_bytes(bytes(4096))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nname = "mlp"\n[data]\nkind = "tokens"\n[data.train]\npath = "train.bin"\n'
                      '[optimizer]\nname = "sgd"\n')
    refused(trainer("--recipe", recipe, "--output", tmp_path / "run"), 2,
            'mlp takes images, but [data] kind = "tokens" gives token sequences')
    assert not (tmp_path / "run").exists()


def test_several_problems_are_reported_together(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(VALID + '[precision]\nmode = "fp17"\n[checkpoint]\nkeep = -1\nevery = 3\n')
    result = trainer("--recipe", recipe)
    refused(result, 2, ":13:", ":15:", ":16:")
    assert result.stderr.count("error[recipe]: ") == 3


def test_extends_loop(tmp_path):
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    refused(trainer("--recipe", tmp_path / "a.toml"), 2, "a.toml", "b.toml")


@pytest.mark.parametrize("args, words", [
    (["train"], "no recipe given"),
    (["--recipe", "nowhere.toml"], "nowhere.toml"),
    (["--recipe", SOURCE], ""),
    (["--recipe", DIGITS, "--set"], "set"),
    (["--recipe", DIGITS, "--set", "train.epochs"], "train.epochs"),
    (["--recipe", DIGITS, "--set", "=3"], ""),
    (["--recipe", DIGITS, "--frobnicate"], "frobnicate"),
    (["--recipe", DIGITS, "stray"], "stray"),
    (["profile", "--recipe", DIGITS, "--devices", "cpu,cpu"], "give one device by --devices, found cpu,cpu"),
    (["recipes"], "did you mean 'recipe'?"),
    (["recipe", "chekc", "--recipe", DIGITS], "chekc"),
    (["--recipe", DIGITS, "--config", "nowhere.toml"], "nowhere.toml"),
    (["--recipe", DIGITS, "--devices", "gpu zero"], "gpu zero"),
    (["--recipe", DIGITS, "--devices", "cpu,0"], 'several different GPUs as in "0,1"; found \'cpu\' beside'),
    (["--recipe", DIGITS, "--set", "train.epochs=99999999999999999999"], "the integer is out of range"),
    (["--recipe", DIGITS, "--set", "train.epochs="], "expected a value after '=', found none"),
])
def test_bad_command_line(args, words, tmp_path):
    refused(trainer(*args, cwd=tmp_path), 2, words)
    assert not any(tmp_path.iterdir())


def test_a_device_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_NVML_LIBRARY", "/nowhere.so")
    refused(trainer("--recipe", DIGITS, "--devices", "63", "--output", tmp_path / "run"), 5, "63")
    assert not (tmp_path / "run").exists()


def idx(images, magic=0x0803, count=None, shape=(8, 8)):
    return struct.pack(">IIII", magic, len(images) if count is None else count, *shape) + b"".join(images)


def labels(values, magic=0x0801, count=None):
    return struct.pack(">II", magic, len(values) if count is None else count) + bytes(values)


def digits_with(tmp_path, **files):
    args = []
    for name in ("images", "labels"):
        if name in files:
            path = tmp_path / name
            if files[name] is not None:
                path.write_bytes(files[name])
            args += ["--set", f'data.train.{name}="{path}"']
    return trainer("--recipe", DIGITS, "--output", tmp_path / "run", *args)


IMAGES = [bytes(64)] * 10
LABELS = list(range(10))


@pytest.mark.parametrize("files, words", [
    (dict(images=None), "images"),
    (dict(images=b""), "images"),
    (dict(images=idx(IMAGES, magic=0x0D03), labels=labels(LABELS)), "magic"),
    (dict(images=idx(IMAGES)[:-1], labels=labels(LABELS)), "images"),
    (dict(images=idx(IMAGES) + b"x", labels=labels(LABELS)), "images"),
    (dict(images=idx(IMAGES), labels=labels(LABELS[:-1])), "10"),
    (dict(images=idx(IMAGES, count=2**32 - 1), labels=labels(LABELS)), "images"),
    (dict(images=gzip.compress(idx(IMAGES))[:-20], labels=labels(LABELS)), "images"),
    (dict(images=idx(IMAGES, shape=(2**31, 2**31)), labels=labels(LABELS)), "images"),
])
def test_bad_idx(files, words, tmp_path):
    refused(digits_with(tmp_path, **files), 3, words)
    assert not (tmp_path / "run").exists()


def test_missing_and_empty_image_folders(tmp_path):
    def train(path):
        return trainer("--recipe", "resnet50", "--output", tmp_path / "run",
                       *sets(data__train__path=f'"{path}"', data__eval__path=f'"{path}"'))
    refused(train(tmp_path / "nowhere"), 3, "nowhere")
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "dog").mkdir()
    refused(train(tmp_path / "images"), 3, "cat")


def test_broken_image_is_named(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "one.jpg").write_bytes(b"\xff\xd8\xff\xe0 not a whole picture")
    result = trainer("--recipe", "resnet50", "--output", tmp_path / "run", *sets(
        model__name="resnet18", batch__global=2,
        data__train__path=f'"{tmp_path / "images"}"', data__eval__path='""'))
    refused_lines = result.stderr.splitlines()[-1]
    assert result.returncode == 3, result.stderr
    assert refused_lines.startswith("error[data]: ") and "one.jpg" in refused_lines
    assert 'data.on_error = "skip"' in refused_lines and "trainer data inspect DIR" in refused_lines


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("short") / "run"
    result = trainer("--recipe", DIGITS, "--output", run, *sets(train__steps=4, checkpoint__keep=0,
                                                                checkpoint__every_steps=2))
    assert result.returncode == 0, result.stderr
    return run


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone"])
def test_damaged_checkpoint(short_run, tmp_path, file, damage):
    run = tmp_path / "run"
    shutil.copytree(short_run, run)
    checkpoint = latest_checkpoint(run)
    path = checkpoint / file
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[:-7])
    elif damage == "flipped":
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
    else:
        path.unlink()
    refused(trainer("--recipe", DIGITS, "--resume", checkpoint, "--output", tmp_path / "new",
                    *sets(train__steps=4)), 4, checkpoint.name)
    assert not (tmp_path / "new").exists()


def test_resume_falls_back_to_the_newest_whole_checkpoint(short_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(short_run, run)
    (latest_checkpoint(run) / "model.safetensors").write_bytes(b"damaged")
    result = trainer("--recipe", DIGITS, "--output", run, "--resume", "auto", *sets(train__steps=4))
    assert result.returncode == 0, result.stderr
    assert "warning" in result.stderr and "step-00000004" in result.stderr


def test_a_fix_by_fewer_steps_than_a_line_of_metrics_has_is_refused(short_run):
    refused(trainer("doctor", short_run, "--fix", "--steps", 5), 2, "--steps: expected 10 or more")


@pytest.mark.parametrize("words", [["report", "RUN", "--output"],
                                   ["bench", "--recipe", DIGITS, "--steps", 2, "--repeats", 1, "--out"]])
def test_no_file_of_another_kind_is_overwritten(short_run, tmp_path, words):
    (tmp_path / "kept").write_text("precious")
    done = trainer(*[short_run if word == "RUN" else word for word in words], tmp_path / "kept")
    refused(done, 2, "there is a file already that is no re")
    assert (tmp_path / "kept").read_text() == "precious"


def test_a_page_of_all_runs_takes_the_place_of_no_other_file(short_run, tmp_path):
    (tmp_path / "kept").write_text("precious")
    refused(trainer("history", short_run, "--output", tmp_path / "kept"), 2, "that is no report")
    assert (tmp_path / "kept").read_text() == "precious"
    for _ in range(2):  # a page is replaced
        assert trainer("history", short_run, "--output", tmp_path / "page.html").returncode == 0


@pytest.mark.parametrize("words", [["report", "RUN", "--output"], ["history", "RUN", "--output"],
                                   ["bench", "--recipe", DIGITS, "--steps", 2, "--repeats", 1, "--out"],
                                   ["export", "RUN", "--output"]], ids=lambda words: words[0])
def test_an_output_that_is_no_file_stays_as_it_is(short_run, tmp_path, words):
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "link.safetensors").symlink_to("link.safetensors")
    (tmp_path / "device.safetensors").symlink_to("/dev/null")
    for name in ("pipe", "link", "device"):
        done = finished(*[short_run if word == "RUN" else word for word in words], tmp_path / f"{name}.safetensors")
        assert done.returncode == (2 if words[0] == "export" else 5), done.stderr
        assert "choose another name" in done.stderr
    assert (tmp_path / "pipe.safetensors").is_fifo()
    assert (tmp_path / "device.safetensors").is_char_device() and (tmp_path / "link.safetensors").is_symlink()


def test_a_cache_that_cannot_be_read_is_done_without(tmp_path):
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *sets(batch__micro="auto", train__steps=1),
                   XDG_CACHE_HOME=str(tmp_path / ("long" * 100)))
    assert done.returncode == 0, done.stderr


def test_weights_that_are_no_numbers_are_not_blamed_on_the_learning_rate(short_run, tmp_path):
    weights = load_file(latest_checkpoint(short_run) / "model.safetensors")
    save_file({name: tensor * np.float32("nan") for name, tensor in weights.items()}, tmp_path / "nan.safetensors")
    refused(trainer("--recipe", DIGITS, "--output", tmp_path / "run", "--set",
                    f"model.pretrained={tmp_path}/nan.safetensors"), 7, "No update has been made yet")


def test_resume_from_nowhere(tmp_path):
    refused(trainer("--recipe", DIGITS, "--resume", tmp_path / "nowhere"), 4, "nowhere")


PIPES = {
    "recipe": lambda pipe, run: (2, ["--recipe", pipe]),
    "config": lambda pipe, run: (2, ["--recipe", DIGITS, "--config", pipe]),
    "weights": lambda pipe, run: (4, ["--recipe", DIGITS, *sets(model__pretrained=str(pipe))]),
    "images": lambda pipe, run: (3, ["--recipe", DIGITS, *sets(data__train__images=str(pipe))]),
    "tokens": lambda pipe, run: (3, ["--recipe", "text_bytes", *sets(data__train__path=str(pipe))]),
    "prediction": lambda pipe, run: (3, ["predict", pipe, "--run", run]),
    "text": lambda pipe, run: (3, ["data", "tokenize", pipe, "--tokenizer", "bytes", "--output", run / "text"]),
}


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_place_of_a_file_is_refused(short_run, name, tmp_path):
    """Without a writer it could be waited for without end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status, args = PIPES[name](pipe, short_run)
    if args[0] == "--recipe":
        args = [*args, "--output", tmp_path / "run"]
    result = finished(*args)
    assert result.returncode == status, (result.returncode, result.stderr)
    assert str(pipe) in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("args", [["doctor"], ["report", "--output", "report.html"]], ids=lambda args: args[0])
def test_a_pipe_in_place_of_metrics_is_refused(short_run, args, tmp_path):
    shutil.copytree(short_run, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    os.mkfifo(tmp_path / "run" / "metrics.jsonl")
    result = finished(args[0], tmp_path / "run", *args[1:], cwd=tmp_path)
    assert result.returncode == 5, (result.returncode, result.stderr)
    assert "metrics.jsonl: expected a regular file, found a pipe" in result.stderr


def finished(*args, cwd=None):
    """As trainer(), but a process that waits is killed soon."""
    return server().run(*map(str, args), cwd=cwd, timeout=60)


def weights_file(path, tensors):
    """`tensors`: name to shape; all are empty."""
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
                         for name, shape in tensors.items()}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def test_a_shape_beyond_what_can_be_addressed_is_refused(tmp_path):
    path = weights_file(tmp_path / "w.safetensors", {"a": [0, 2**63 - 1, 2**63 - 1]})
    result = trainer("--recipe", DIGITS, *sets(model__pretrained=str(path)), "--output", tmp_path / "run")
    assert result.returncode == 4, result.stderr
    assert result.stderr.splitlines()[-1].startswith(f"error[checkpoint]: {path}: ")
    assert "too large to address" in result.stderr and "frame #" not in result.stderr


@pytest.mark.parametrize("strict", [True, False])
def test_many_unknown_tensors_are_counted(strict, tmp_path):
    path = weights_file(tmp_path / "w.safetensors", {f"unknown.{i}": [0] for i in range(100_000)})
    result = trainer("--recipe", DIGITS, *sets(model__pretrained=str(path), model__strict=strict, train__steps=1),
                     "--output", tmp_path / "run")
    assert result.returncode == 4, result.stderr[-2000:]
    assert len(result.stderr.splitlines()) < 60
    assert ("differences, the first 10 above" if strict else "none of its 100000 tensors fits this model") in result.stderr


@pytest.mark.parametrize("key, value", [("best", 1e308), ("step", 2**63 - 1), ("step", 3), ("step", -1)])
def test_a_state_that_no_run_has_is_refused(short_run, key, value, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(short_run, run)
    checkpoint = latest_checkpoint(run)
    state = json.loads((checkpoint / "state.json").read_text())
    state[key] = value
    (checkpoint / "state.json").write_text(json.dumps(state))
    reseal(checkpoint, "state.json")
    refused(trainer("--recipe", DIGITS, "--resume", checkpoint, "--output", tmp_path / "new",
                    *sets(train__steps=6)), 4, checkpoint.name, str(value))


def test_a_state_of_random_numbers_that_is_none_is_refused(short_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(short_run, run)
    checkpoint = latest_checkpoint(run)
    save_file({"cpu": np.zeros(3, np.uint8)}, checkpoint / "random.safetensors")
    reseal(checkpoint, "random.safetensors")
    refused(trainer("--recipe", DIGITS, "--resume", checkpoint, "--output", tmp_path / "new",
                    *sets(train__steps=6)), 4, "random.safetensors: cpu: expected the state of one of")


def reseal(checkpoint, name):
    """Makes the manifest agree with a file, as whoever means harm would."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for file in manifest["files"]:
        if file["name"] == name:
            content = (checkpoint / name).read_bytes()
            file.update(size=len(content), xxh3_128=digest(content))
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


class Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def digest(content):
    function = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    function.restype, function.argtypes = Hash, [ctypes.c_char_p, ctypes.c_size_t]
    found = function(content, len(content))
    return f"{found.high:016x}{found.low:016x}"


def test_output_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    advice = "cannot make the folder: Not a directory; choose another by --output"
    refused(trainer("--recipe", DIGITS, "--output", tmp_path / "file" / "run"), 5, f"{tmp_path}/file/run: {advice}")
    (tmp_path / "runs").write_text("")  # where runs go without --output
    refused(trainer("--recipe", DIGITS, cwd=tmp_path), 5, f"runs: {advice}")
    (tmp_path / "sweeps").write_text("")
    refused(trainer("sweep", "--recipe", DIGITS, "--vary", "run.seed=1,2", "--devices", "cpu", cwd=tmp_path), 5, advice)
    refused(trainer("--recipe", DIGITS, "--output", tmp_path / "file"), 2, "expected a folder, found a file")


def test_a_folder_of_runs_is_no_runs_folder(short_run, tmp_path):
    shutil.copytree(short_run, tmp_path / "runs" / "digits")
    refused(trainer("--recipe", DIGITS, "--output", "runs", cwd=tmp_path), 2, "did you mean --output runs/digits-2?")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["digits"]


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    """A limit on the size of files stands for the full disk: the optimizer's file no longer fits."""
    run = tmp_path / "run"
    job = ["--recipe", DIGITS, "--output", run]
    first = trainer(*job, *sets(train__steps=4, checkpoint__every_steps=2))
    assert first.returncode == 0, first.stderr
    good = latest_checkpoint(run)

    def limit():
        size = (good / "model.safetensors").stat().st_size // 2
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    result = subprocess.run([TRAINER, *map(str, job), "--resume", "auto",
                             *sets(train__steps=8, checkpoint__every_steps=2)], env=environment(),
                            text=True, capture_output=True, preexec_fn=limit, timeout=300)
    assert result.returncode == 5, (result.returncode, result.stderr)
    assert "error[resource]: " in result.stderr
    assert latest_checkpoint(run) == good
    again = trainer(*job, "--resume", "auto", *sets(train__steps=8, checkpoint__every_steps=2))
    assert again.returncode == 0, again.stderr


def test_a_batch_norm_with_a_single_value_is_refused_in_words(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(VALID.replace('"mlp"', '"resnet18"') + "[batch]\nglobal = 4\nmicro = 1\n")
    refused(trainer("--recipe", recipe, "--output", tmp_path / "run"), 2, "batch norm", "batch.micro", "drop_last")


def test_exhausted_memory_is_said_in_words(tmp_path):
    """Under a limit on the address space, as a container has one on memory."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nname = "resnet18"\n[data]\nkind = "synthetic"\nsamples = 2\nheight = 4096\n'
                      'width = 4096\nworkers = 0\nprefetch = 0\n[batch]\nglobal = 1\n[optimizer]\nname = "sgd"\n'
                      '[train]\nsteps = 2\n')
    limit = 3 << 30
    run = subprocess.run([TRAINER, "--recipe", recipe, "--output", tmp_path / "run"], env=environment(), text=True,
                         capture_output=True, timeout=600,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert run.returncode == 5, run.stderr
    assert "error[resource]: out of memory at step 1 with micro-batch 1: parameters" in run.stderr
    assert "device.memory_gib" in run.stderr
