"""trainer predict on folders, and predict and eval once the training data are gone."""
import gzip
import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from flowers import COLOURS, FLOWERS_RECIPE, save_images
from trainer import DIGITS, TRAINER, latest_checkpoint, sets, trainer


def train(recipe, run, *args):
    done = trainer("--recipe", recipe, "--output", run, *args)
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """A run whose training data are gone, and whose warm-up has more steps than the run epochs."""
    folder = tmp_path_factory.mktemp("flowers")
    save_images(folder / "train", COLOURS, 8)
    (folder / "flowers.toml").write_text(FLOWERS_RECIPE + '[schedule]\nunit = "steps"\nwarmup = 9\n')
    run = train(folder / "flowers.toml", folder / "run")
    shutil.rmtree(folder / "train")
    return run


def predictions(*args):
    done = trainer("predict", *args, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_folder_stands_for_the_images_below_it(flowers, tmp_path):
    pictures = save_images(tmp_path / "in", COLOURS, 2)
    (pictures / "notes.txt").write_text("no image")
    (pictures / ".hidden.png").write_bytes(b"no image")
    (pictures / "poppy/0.png").rename(pictures / "a.PNG")
    (pictures / "daisy/deeper").mkdir()
    Image.new("RGB", (16, 16), COLOURS["poppy"]).save(pictures / "daisy/deeper/b.jpg")
    (pictures / "violet/loop").symlink_to(pictures)
    (pictures / "violet/again").symlink_to(pictures / "poppy")
    lines = predictions(flowers, pictures, "--top", 1)
    expected = {"a.PNG": "poppy", "daisy/0.png": "daisy", "daisy/1.png": "daisy", "daisy/deeper/b.jpg": "poppy",
                "poppy/1.png": "poppy", "violet/0.png": "violet", "violet/1.png": "violet"}
    assert [(line["input"], line["classes"][0]["name"]) for line in lines] == [
        (str(pictures / name), label) for name, label in expected.items()]
    single = pictures / "violet/0.png"
    assert [line["input"] for line in predictions(flowers, single, f"{pictures}/daisy/")] == [
        str(single), *(str(pictures / name) for name in expected if name.startswith("daisy"))]


def test_many_links_between_folders_end(flowers, tmp_path):
    for i in range(12):
        (tmp_path / "in" / str(i)).mkdir(parents=True)
        for j in range(12):
            (tmp_path / "in" / str(i) / f"to{j}").symlink_to(tmp_path / "in" / str(j))
    Image.new("RGB", (16, 16)).save(tmp_path / "in/7/x.png")
    assert len(predictions(flowers, tmp_path / "in")) == 1


def test_images_smaller_than_what_is_cut_out_are_refused(flowers, tmp_path):
    pictures = save_images(tmp_path / "in", ["poppy"], 1)
    done = trainer("predict", flowers, pictures, *sets(data__resize=8))
    assert done.returncode == 2 and "expected 'resize' to be at least image_size (16), found 8" in done.stderr


def test_bad_files_in_a_folder_are_skipped_and_named(flowers, tmp_path):
    pictures = save_images(tmp_path / "in", ["poppy"], 2)
    (pictures / "poppy/bad.png").write_bytes((pictures / "poppy/0.png").read_bytes()[:40])
    (pictures / "poppy/gone.jpg").symlink_to(tmp_path / "nowhere")
    done = trainer("predict", flowers, pictures, "--json")
    assert done.returncode == 3, done.stderr
    assert [json.loads(line)["input"] for line in done.stdout.splitlines()] == [
        str(pictures / "poppy" / name) for name in ("0.png", "1.png")]
    assert f"skipped: {pictures}/poppy/bad.png" in done.stderr
    assert re.search(r"2 of 4 files could not be read: \S+/bad.png, \S+/gone.jpg; ", done.stderr), done.stderr


def test_probabilities_that_are_not_finite_are_refused(tmp_path):
    pictures = save_images(tmp_path / "train", COLOURS, 8)
    (tmp_path / "flowers.toml").write_text(FLOWERS_RECIPE)
    run = train(tmp_path / "flowers.toml", tmp_path / "run", *sets(
        train__steps=1, schedule__warmup=0, optimizer__learning_rate=1e30))
    done = trainer("predict", run, pictures / "poppy/0.png")
    assert done.returncode == 7 and done.stdout == "", done.stdout
    assert "step-" in done.stderr and "expected finite logits, found NaN" in done.stderr, done.stderr


def test_a_loss_that_is_not_finite_is_no_evaluation(tmp_path):
    save_images(tmp_path / "train", COLOURS, 8)
    (tmp_path / "flowers.toml").write_text(FLOWERS_RECIPE)
    run = train(tmp_path / "flowers.toml", tmp_path / "run", *sets(
        train__steps=1, schedule__warmup=0, optimizer__learning_rate=1e30))
    done = trainer("eval", run, *sets(data__eval__path=str(tmp_path / "train")), "--json")
    assert done.returncode == 7 and done.stdout == "", done.stdout
    assert "expected a finite loss over 24 samples, found NaN" in done.stderr, done.stderr


def test_output_that_can_not_be_written_ends_the_work(flowers, tmp_path):
    pictures = save_images(tmp_path / "in", ["poppy"], 3)
    (pictures / "poppy/9.png").write_bytes(b"damaged")
    command = f"'{TRAINER}' predict '{flowers}' '{pictures}' --batch 1"
    done = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True, timeout=300)
    assert done.returncode == 5 and "standard output can't be written: No space" in done.stderr
    assert "9.png" not in done.stderr  # which comes last
    done = subprocess.run(["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 141 and "9.png" not in done.stderr


@pytest.mark.parametrize("words", [("--prompt", "Once"), ("--tokens", 5), ("--seed", 1)])
def test_options_for_text_are_refused_for_images(flowers, words):
    done = trainer("predict", flowers, "some.png", *words)
    assert done.returncode == 2 and f"{words[0]}: this model takes images" in done.stderr


def test_a_run_without_a_checkpoint_says_so(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/recipe.toml").write_text("")
    for command in "predict", "eval", "audit":
        done = trainer(command, tmp_path / "run")
        assert done.returncode == 4 and "this run has no complete checkpoint yet" in done.stderr


def test_a_folder_without_images_is_refused(flowers, tmp_path):
    (tmp_path / "empty/below").mkdir(parents=True)
    (tmp_path / "empty/notes.txt").write_text("no image")
    done = trainer("predict", flowers, tmp_path / "empty")
    assert done.returncode == 3 and done.stdout == ""
    assert (f"{tmp_path}/empty: expected .jpg, .jpeg, .png files in the folder or below it, found none"
            in done.stderr), done.stderr


def evaluated(run, folder, *args):
    return trainer("eval", run, "--json", "--set", f"data.eval.path={folder}", *args)


def test_eval_needs_the_evaluation_data_alone(flowers, tmp_path):
    done = evaluated(flowers, save_images(tmp_path / "all", COLOURS, 3))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["top1"] == 100 and [entry["name"] for entry in report["classes"]] == list(COLOURS)
    # Of fewer classes, each counts under its name, though their numbers are others.
    done = evaluated(flowers, save_images(tmp_path / "two", ["poppy", "violet"], 3))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["top1"] == 100 and report["samples"] == 6
    assert [(entry["name"], entry["samples"]) for entry in report["classes"]] == [
        ("daisy", 0), ("poppy", 3), ("violet", 3)]
    assert "top1" in trainer("eval", flowers, "--set", f"data.eval.path={tmp_path}/two").stdout


def test_eval_takes_images_of_another_size(flowers, tmp_path):
    folder = save_images(tmp_path / "all", COLOURS, 3)
    done = evaluated(flowers, folder, *sets(data__image_size=24, data__resize=24))
    assert done.returncode == 0, done.stderr


def test_eval_refuses_a_class_that_was_not_learned(flowers, tmp_path):
    done = evaluated(flowers, save_images(tmp_path / "more", ["poppy", "rose"], 1))
    assert done.returncode == 3, done.stderr
    assert (f"{tmp_path}/more: expected folders of the classes that the model has learned (daisy, poppy, violet), "
            "found rose; rename or remove it") in done.stderr


def test_eval_without_evaluation_data_says_so(flowers):
    done = trainer("eval", flowers)
    assert done.returncode == 2 and "give it some under [data.eval]" in done.stderr, done.stderr


def test_idx_files_and_shards_too(flowers, tmp_path):
    digits = train(DIGITS, tmp_path / "digits", *sets(train__epochs=1))
    gone = sets(data__train__images="/gone/images.idx", data__train__labels="/gone/labels.idx")
    with_data, without = trainer("eval", digits, "--json"), trainer("eval", digits, "--json", *gone)
    assert without.returncode == 0, without.stderr
    assert without.stdout == with_data.stdout

    shards = tmp_path / "shards"
    save_images(tmp_path / "images", COLOURS, 4)
    for names, folder in ((COLOURS, "right"), (["lily", "poppy", "violet"], "wrong")):
        images = save_images(tmp_path / folder, names, 4)
        done = trainer("data", "pack", "--from", images, "--to", shards / folder)
        assert done.returncode == 0, done.stderr
    kind = sets(data__kind="webdataset", data__train__path="/gone", data__image_size=16, data__resize=16)
    done = trainer("eval", flowers, "--json", *kind, *sets(data__eval__path=str(shards / "right")))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["top1"] == 100
    done = trainer("eval", flowers, *kind, *sets(data__eval__path=str(shards / "wrong")))
    assert done.returncode == 3 and 'class 0 is "daisy" there and "lily" in these shards' in done.stderr, done.stderr


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    """A run on the characters of a text, whose data are gone but for eval.bin."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "song.txt").write_text("row, row, row your boat\n" * 200)
    done = trainer("data", "tokenize", folder / "song.txt", "--tokenizer", "chars", "--output", folder / "song",
                   "--eval-fraction", 0.2)
    assert done.returncode == 0, done.stderr
    vocabulary = int(re.search(r"vocabulary = (\d+)", done.stdout)[1])
    run = train("text_bytes", folder / "run", "--devices", "cpu", *sets(
        model__layers=2, model__width=32, data__length=32, data__vocabulary=vocabulary, batch__global=16,
        train__steps=60, schedule__warmup=0, optimizer__learning_rate=0.01, train__prompt="row",
        data__train__path=str(folder / "song/train.bin"), data__eval__path=str(folder / "song/eval.bin")))
    (folder / "song/eval.bin").rename(folder / "eval.bin")
    shutil.rmtree(folder / "song")
    return run


def test_a_run_keeps_its_tokenizer(text_run):
    assert sorted(path.name for path in (text_run / "tokenizer").iterdir()) == ["tokens.json", "vocab.json"]
    for saved in (text_run, latest_checkpoint(text_run)):
        (line,) = predictions(saved, "--prompt", "row, ", "--tokens", 40, "--temperature", 0)
        assert len(line["tokens"]) == 40 and "row your boat" in line["prompt"] + line["continuation"]


def test_eval_of_text_needs_the_evaluation_data_alone(text_run):
    done = evaluated(text_run, text_run.parent / "eval.bin")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loss"] < 1


def test_without_any_tokenizer_there_is_a_way_to_name_one(text_run, tmp_path):
    run = shutil.copytree(text_run, tmp_path / "run", symlinks=True)
    (run / "tokenizer").rename(tmp_path / "tokenizer")
    done = trainer("predict", run, "--prompt", "row")
    assert done.returncode == 3 and "song/tokens.json: cannot open" in done.stderr, done.stderr
    assert predictions(run, "--prompt", "row", "--tokens", 2, "--tokenizer", tmp_path / "tokenizer")


def test_what_is_no_text_is_refused(text_run, tmp_path):
    done = trainer("predict", text_run, "--prompt", "a", "--top", 3)
    assert done.returncode == 2 and "--top: this model takes text" in done.stderr
    Image.new("RGB", (16, 16)).save(tmp_path / "image.png")
    done = trainer("predict", text_run, tmp_path / "image.png")
    assert done.returncode == 3 and "image.png: expected text, found bytes of something else" in done.stderr
    done = trainer("predict", text_run, "--prompt", "ROW")
    assert done.returncode == 3 and '--prompt: the character "R"' in done.stderr, done.stderr


def test_a_folder_stands_for_the_texts_below_it(text_run, tmp_path):
    (tmp_path / "in/b").mkdir(parents=True)
    (tmp_path / "in/z.txt").write_text("row")
    (tmp_path / "in/b/a.txt.gz").write_bytes(gzip.compress(b"your"))
    (tmp_path / "in/image.png").write_bytes(b"\x89PNG")
    lines = predictions(text_run, tmp_path / "in", "--tokens", 2)
    assert [(line["input"], line["prompt"]) for line in lines] == [
        (str(tmp_path / "in/z.txt"), "row"), (str(tmp_path / "in/b/a.txt.gz"), "your")]
    (tmp_path / "in/b/bad.txt").write_text("")
    done = trainer("predict", text_run, tmp_path / "in", "--tokens", 2, "--json")
    assert done.returncode == 3 and "1 of 3 files could not be read" in done.stderr, done.stderr
    assert len(done.stdout.splitlines()) == 2
    shutil.rmtree(tmp_path / "in/b")
    (tmp_path / "in/z.txt").unlink()
    done = trainer("predict", text_run, tmp_path / "in")
    assert done.returncode == 3 and "expected .txt, .txt.gz files" in done.stderr, done.stderr
