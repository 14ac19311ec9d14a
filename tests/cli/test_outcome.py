"""What a run leaves: sample predictions, the loss without label smoothing, and its age."""
import json
import math
import re
import signal
import time

import numpy as np
import pytest
from PIL import Image

from trainer import DIGITS, SOURCE, metrics, sets, start, trainer

RECIPE = ('[run]\nname = "r"\n[model]\nname = "mlp"\nhidden = 16\n[data]\nkind = "image_folder"\nimage_size = 16\n'
          'resize = 16\n[data.train]\npath = "{train}"\n[data.eval]\npath = "{eval}"\n[batch]\nglobal = 8\nmicro = 8\n'
          '[optimizer]\nname = "sgd"\nlearning_rate = 0.02\n[train]\nepochs = 6\n[eval]\nbatch = 4\n')
HOSTILE = """<img src=x onerror="document.title='owned'">&'</script>"""


def paint(path, colour, seed, size=16):
    """An image of one colour with some noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(-20, 20, (size, size, 3))
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path)


RED, BLUE = (200, 40, 40), (40, 40, 200)


def two_colours(root, red="red", blue="blue", wrong=(3, 10, 21), per_class=20, size=16):
    """Red and blue images, of which some of the evaluation lie in the folder of the other class.

    Returns the recipe and the wrong ones by their position in the evaluation data."""
    for name, colour in ((red, RED), (blue, BLUE)):
        for i in range(16):
            paint(root / "train" / name / f"{i:02}.png", colour, i, size)
    folders = sorted([red, blue])
    colours = {red: RED, blue: BLUE}
    for position in range(2 * per_class):
        folder = folders[position // per_class]
        is_wrong = position in wrong
        other = folders[1 - folders.index(folder)]
        file = root / "eval" / folder / f"{'wrong' if is_wrong else 'right'}-{position:02}.png"
        paint(file, colours[other if is_wrong else folder], 100 + position, size)
    # Their positions are those of the sorted names.
    files = [file for folder in folders for file in sorted((root / "eval" / folder).iterdir())]
    staged = {position: file for position, file in enumerate(files) if file.name.startswith("wrong")}
    recipe = root / "recipe.toml"
    recipe.write_text(RECIPE.format(train=root / "train", eval=root / "eval"))
    return recipe, staged


def predictions(run):
    return json.loads((run / "run.json").read_text()).get("sample_predictions")


def train(recipe, run, *args):
    done = trainer("--recipe", recipe, "--output", run, *args)
    assert done.returncode == 0, done.stderr
    return run


def losses(run):
    return [(line["step"], line[key]) for line in metrics(run) for key in ("loss", "eval_loss") if key in line]


# --- sample predictions -------------------------------------------------------------------------


def test_the_worst_mistakes_are_the_wrong_labels(tmp_path):
    recipe, staged = two_colours(tmp_path)
    run = train(recipe, tmp_path / "run")
    found = predictions(run)
    assert {entry["sample"] for entry in found["worst"]} == {str(file) for file in staged.values()}
    assert found["step"] == metrics(run)[-1]["step"]
    losses_of = [entry["loss"] for entry in found["worst"]]
    assert losses_of == sorted(losses_of, reverse=True)
    for entry in found["worst"]:
        assert {entry["label"], entry["prediction"]} == {"red", "blue"}
        assert f"/{entry['label']}/wrong-" in entry["sample"]
        # Of two classes: the label has what the prediction leaves.
        assert math.exp(-entry["loss"]) == pytest.approx(1 - entry["confidence"], abs=1e-5)
        assert entry["confidence"] > 0.5
    assert len(found["random"]) == 12 == len({entry["sample"] for entry in found["random"]})
    assert 0 < len({entry["label"] for entry in found["random"]}) <= 2
    for entry in found["worst"] + found["random"]:
        shown = np.asarray(Image.open(run / entry["file"]))
        assert np.array_equal(shown, np.asarray(Image.open(entry["sample"]))), entry
    assert {f"samples/{file.name}" for file in (run / "samples").iterdir()} == {
        entry["file"] for entry in found["worst"] + found["random"]}


def test_a_rank_shows_its_share(tmp_path):
    """Rank 0 sees the first half of each of the evaluation's batches of 2 × 4."""
    recipe, staged = two_colours(tmp_path)
    own = {str(file) for position, file in staged.items() if position % 8 < 4}
    assert 0 < len(own) < len(staged)
    run = train(recipe, tmp_path / "run", "--devices", "cpu,cpu")
    assert {entry["sample"] for entry in predictions(run)["worst"]} == own
    assert len(predictions(run)["random"]) == 12


def test_large_images_are_shown_small_and_grey_ones_grey(tmp_path):
    recipe, _ = two_colours(tmp_path / "large", size=200)
    run = train(recipe, tmp_path / "run", *sets(data__image_size=192, data__resize=192, train__epochs=1))
    sizes = {Image.open(file).size for file in (run / "samples").iterdir()}
    assert sizes == {(128, 128)}
    run = train(DIGITS, tmp_path / "digits", *sets(train__epochs=1))
    image = Image.open(run / "samples" / "random-01.png")
    assert (image.size, image.mode) == ((8, 8), "L")
    assert re.fullmatch(r".*test-images\.idx\.gz\[\d+\]", predictions(run)["random"][0]["sample"])


def test_without_mistakes_there_are_no_worst(tmp_path):
    recipe, _ = two_colours(tmp_path, wrong=())
    run = train(recipe, tmp_path / "run")
    assert predictions(run)["worst"] == [] and len(predictions(run)["random"]) == 12
    assert trainer("report", run).returncode == 0
    assert "None: every sample was predicted as it is labelled." in (run / "report.html").read_text()


def test_a_sample_that_cannot_be_read_is_left_out(tmp_path):
    recipe, staged = two_colours(tmp_path)
    for file in sorted((tmp_path / "eval" / "red").iterdir())[:8] + [list(staged.values())[0]]:
        file.write_bytes(b"no image")
    run = train(recipe, tmp_path / "run", *sets(data__on_error="skip"))
    shown = predictions(run)
    assert len(shown["worst"]) == len(staged) - 1
    assert len({entry["sample"] for entry in shown["random"]}) == 12


def test_without_evaluation_or_images_there_are_none(tmp_path):
    recipe, _ = two_colours(tmp_path)
    recipe.write_text(re.sub(r"\[data.eval\]\n.*\n", "", recipe.read_text()))
    text = SOURCE / "recipes" / "text_bytes.toml"
    for run in (train(recipe, tmp_path / "run"),
                train(text, tmp_path / "text", *sets(train__steps=4, batch__global=2, schedule__warmup=0))):
        assert predictions(run) is None and not (run / "samples").exists()
        assert trainer("report", run).returncode == 0
        assert "Sample predictions" not in (run / "report.html").read_text()


def test_a_resumed_run_shows_those_of_its_end(tmp_path):
    recipe, _ = two_colours(tmp_path)
    run = train(recipe, tmp_path / "run", *sets(train__epochs=1, optimizer__learning_rate=1e-6))
    first = predictions(run)
    assert len(first["worst"]) == 12  # nothing is learned yet
    train(recipe, run, "--resume", "auto", *sets(train__epochs=12))
    record = json.loads((run / "run.json").read_text())
    assert len(record["earlier"]) == 1 and "sample_predictions" not in record["earlier"][0]
    files = {entry["file"] for kind in ("worst", "random") for entry in record["sample_predictions"][kind]}
    assert {f"samples/{file.name}" for file in (run / "samples").iterdir()} == files
    assert len(record["sample_predictions"]["worst"]) < 12
    drawn = [entry["sample"] for entry in record["sample_predictions"]["random"]]
    assert drawn == [entry["sample"] for entry in first["random"]]


def test_names_of_classes_stay_text(tmp_path):
    hostile = HOSTILE.replace("/", "")  # a folder's name
    recipe, staged = two_colours(tmp_path, red=hostile)
    run = train(recipe, tmp_path / "run")
    assert hostile in {entry["label"] for entry in predictions(run)["worst"]}
    assert trainer("report", run).returncode == 0
    page = (run / "report.html").read_text()
    assert page.count("<img ") == len(staged) + 12 == page.count('<img src="data:image/png;base64,')
    assert "&lt;img src=x onerror=&quot;" in page


# --- the loss without label smoothing -----------------------------------------------------------


def first_line(folder, *args, recipe=DIGITS, **values):
    run = train(recipe, folder, *args, *sets(train__steps=1, telemetry__every_steps=1, **values))
    return next(line for line in metrics(run) if "loss" in line)


CASES = {
    "plain": {},
    "not fused": {"precision__fused": False},
    "float32": {"precision__mode": "fp32"},
    "micro-batches": {"batch__micro": 24},
    "mixup": {"data__augment__mixup": 0.4},
    "cutmix": {"data__augment__cutmix": 1.0, "precision__fused": False},
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_loss_of_a_run_without_smoothing(tmp_path, case):
    """The first step sees the same weights."""
    smooth = first_line(tmp_path / "smooth", train__label_smoothing=0.3, **CASES[case])
    plain = first_line(tmp_path / "plain", train__label_smoothing=0.0, **CASES[case])
    assert smooth["unsmoothed_loss"] == pytest.approx(plain["loss"], rel=1e-6)
    assert smooth["loss"] != pytest.approx(plain["loss"], rel=1e-4)
    assert "unsmoothed_loss" not in plain


def test_ranks_sum_it(tmp_path):
    three = first_line(tmp_path / "three", "--devices", "cpu,cpu,cpu", train__label_smoothing=0.3)
    plain = first_line(tmp_path / "plain", "--devices", "cpu,cpu,cpu", train__label_smoothing=0.0)
    assert three["unsmoothed_loss"] == pytest.approx(plain["loss"], rel=1e-6)


def test_language_models_have_it_too(tmp_path):
    """Not fused: a loss without smoothing is one of the forms that a run chooses by their times."""
    job = {"recipe": SOURCE / "recipes" / "text_bytes.toml", "precision__fused": False, "batch__global": 4,
           "schedule__warmup": 0}
    smooth, plain = (first_line(tmp_path / str(value), **job, train__label_smoothing=value) for value in (0.3, 0.0))
    assert smooth["unsmoothed_loss"] == pytest.approx(plain["loss"], rel=1e-6)
    assert "unsmoothed_loss" not in plain


def test_computing_it_changes_no_loss(tmp_path):
    """It is computed where a line of metrics is due: every step, or every tenth."""
    job = sets(train__epochs=2, train__label_smoothing=0.1, model__dropout=0.1)
    seldom, often = (train(DIGITS, tmp_path / str(every), *job, *sets(telemetry__every_steps=every))
                     for every in (10, 1))
    alike = {line["step"]: line for line in metrics(often) if "loss" in line}
    lines = [line for line in metrics(seldom) if "loss" in line]
    assert len(lines) == 5  # the last step's, too
    for line in lines:
        for key in ("loss", "unsmoothed_loss"):
            assert line[key] == alike[line["step"]][key]
    assert [line["eval_loss"] for line in metrics(seldom) if "eval_loss" in line] == [
        line["eval_loss"] for line in metrics(often) if "eval_loss" in line]


# --- the run's age ------------------------------------------------------------------------------


def test_the_age_of_a_run_is_that_of_its_processes(tmp_path):
    run = tmp_path / "run"
    job = ["--recipe", DIGITS, "--output", run, "--resume", "auto",
           *sets(train__epochs=60, telemetry__every_steps=1, checkpoint__every_steps=50)]
    process = start(*job)
    lines = []
    while len(lines) < 130:
        time.sleep(0.02)
        file = run / "metrics.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")] \
            if file.exists() else []
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines(True)
              if line.endswith("\n") and "loss" in json.loads(line)]
    assert all(line["run_age_s"] == line["process_age_s"] for line in before)
    done = trainer(*job)
    assert done.returncode == 0, done.stderr
    after = [line for line in metrics(run) if "run_age_s" in line]
    resumed = next(i for i, line in enumerate(after) if line["run_age_s"] > line["process_age_s"] + 1e-3)
    # The steps that were lost took time, too.
    assert after[resumed - 1]["step"] <= before[-1]["step"]
    for line in after[resumed:]:
        assert line["run_age_s"] - line["process_age_s"] == pytest.approx(before[-1]["run_age_s"], abs=1e-6)
    ages = [line["run_age_s"] for line in after]
    assert ages == sorted(ages)
    assert trainer("report", run).returncode == 0
    assert "Vertical lines: the run was resumed." in (run / "report.html").read_text()
