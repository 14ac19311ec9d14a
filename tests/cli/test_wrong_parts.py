"""Models, datasets and tasks of a library that break the rules of their interfaces: each ends in words, without a
crash, before it costs an epoch where that can be known."""
import json

import pytest

from test_bad_input import refused
from trainer import TRAINER, sets, trainer

LIBRARY = TRAINER.parent / "wrong_parts.so"
RECIPE = f"""[model]
library = "{LIBRARY}"
name = "wrong_net"
[data]
kind = "wrong_samples"
workers = 0
[batch]
global = 8
[optimizer]
name = "sgd"
learning_rate = 0.01
[train]
task = "wrong_task"
epochs = 1
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("wrong") / "wrong.toml"
    path.write_text(RECIPE)
    return path


def train(recipe, output, *args, **values):
    wrong = values.pop("BRIM_WRONG_PARTS", "")
    return trainer("train", recipe, "--output", output, *args, *sets(**values), BRIM_WRONG_PARTS=wrong)


def test_what_is_right_trains(recipe, tmp_path):
    done = train(recipe, tmp_path / "run")
    assert done.returncode == 0 and "best top1 2" in done.stderr, done.stderr


@pytest.mark.parametrize("values, expected", [
    ({"data__wrong_eval": "larger"}, "the evaluation data: expected samples like those of training, 8×8×1 (height, "
                                     "width, channels) in 4 classes, found 9×9×1 (height, width, channels) in 4 classes"),
    ({"data__wrong_eval": "more classes"}, "in 4 classes, found 8×8×1 (height, width, channels) in 6 classes"),
    ({"data__wrong_eval": "empty"}, "the evaluation data: expected at least one sample, found 0"),
    ({"data__wrong_eval": "no pixels"}, "the evaluation data: expected sizes and classes of at least 1"),
    ({"data__wrong": "empty"}, "the training data: expected at least one sample, found 0"),
    ({"data__wrong": "negative"}, "the training data: expected at least one sample, found -3"),
    ({"data__wrong": "no pixels"}, "found 0×8×1 (height, width, channels) in 4 classes"),
    ({"data__wrong": "negative pixels"}, "found -8×8×1 (height, width, channels) in 4 classes"),
    ({"data__wrong": "huge"}, "found 2147483648×2147483648×4 (height, width, channels) in 4 classes"),
    ({"data__wrong": "no classes"}, "found 8×8×1 (height, width, channels) in 0 classes"),
    ({"data__wrong": "negative classes"}, "found 8×8×1 (height, width, channels) in -4 classes"),
])
def test_data_that_no_model_can_take_are_refused_on_opening(recipe, tmp_path, values, expected):
    done = train(recipe, tmp_path / "run", "--dry-run", **values)
    refused(done, 3, expected)


def test_a_label_beyond_the_classes_names_its_sample(recipe, tmp_path):
    done = train(recipe, tmp_path / "run", data__wrong="label")
    refused(done, 3, "wrong[7]: expected a label from 0 to 3, found 9")
    done = train(recipe, tmp_path / "skipped", data__wrong="label", data__on_error="skip")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("values, expected", [
    ({"model__wrong": "null"}, 'model.name = "wrong_net": build() returned no model'),
    ({"model__wrong": "unregistered"}, 'model.name = "wrong_net": build() returned a model without parameters'),
    ({"data__wrong": "null"}, 'data.kind = "wrong_samples": open_train() returned no dataset'),
    ({"train__wrong_task": "null"}, 'train.task = "wrong_task": build() returned no task'),
    ({"BRIM_WRONG_PARTS": "null callback"}, "callbacks(): expected an object in each entry, found a null pointer"),
    ({"train__wrong_task": "best by nothing"}, 'train.task = "wrong_task": best_by() names no metric'),
    ({"model__wrong": "undefined"}, "the model's forward() gives no tensor for one image: expected floating-point [1, 4]"),
    ({"model__wrong": "long"}, "the model's forward() gives long [1, 4]"),
    ({"model__wrong": "complex"}, "the model's forward() gives complexfloat [1, 4]"),
    ({"model__wrong": "meta"}, "the model's forward() gives float [1, 4] on meta"),
    ({"model__wrong": "wide"}, "the model's forward() gives float [1, 8]"),
])
def test_parts_are_looked_at_when_they_are_built(recipe, tmp_path, values, expected):
    refused(train(recipe, tmp_path / "run", "--dry-run", **values), 2, expected)


def test_the_recipes_check_builds_the_model_too(recipe):
    refused(trainer("recipe", "check", "--recipe", recipe, "--set", "model.wrong=null"), 2, "build() returned no model")


@pytest.mark.parametrize("values, expected", [
    ({"model__wrong": "detached"}, "the task's loss(): expected a tensor with a gradient, found one without; look for "
                                   "detach()"),
    ({"model__wrong": "frozen"}, "no parameter of the model asks for one (requires_grad)"),
    ({"train__wrong_task": "detached loss"}, "found one without; look for detach()"),
    ({"train__wrong_task": "undefined loss"}, "the task's loss(): expected a floating-point tensor [], found no tensor"),
    ({"train__wrong_task": "vector loss"}, "the task's loss(): expected a floating-point tensor [], found float [8]"),
    ({"train__wrong_task": "long loss"}, "the task's loss(): expected a floating-point tensor [], found long []"),
    ({"train__wrong_task": "undefined sums"}, "evaluation_sums(): expected double [K] (float64), found no tensor"),
    ({"train__wrong_task": "float sums"}, "evaluation_sums(): expected double [K] (float64), found float [3]"),
    ({"train__wrong_task": "scalar sums"}, "evaluation_sums(): expected double [K] (float64), found double []"),
    ({"train__wrong_task": "varying sums", "eval__batch": 16}, "as many values of each batch, found 16 and then 8"),
    ({"train__wrong_task": "no metrics"}, 'of which there are none, found "top1"'),
    ({"train__wrong_task": "best by another"}, 'expected one of its metrics(), loss, top1, found "top5"'),
    ({"train__wrong_task": "nameless metric"}, 'expected a printable name of its own for each, found ""'),
    ({"train__wrong_task": "metric of two lines"}, 'found "my\\x0aloss"'),
    ({"train__wrong_task": "metric twice"}, 'found "top1" twice'),
])
def test_results_are_looked_at_when_they_first_come(recipe, tmp_path, values, expected):
    done = train(recipe, tmp_path / "run", **values)
    assert done.returncode == 2 and expected in done.stderr.splitlines()[-1], done.stderr


def test_a_classification_says_what_logits_it_takes(recipe, tmp_path):
    done = train(recipe, tmp_path / "run", model__wrong="pixels", train__task="classification")
    refused(done, 2, "the model gives [8, 1, 8, 8] for 8 images: expected [8, 4], a value for each of the data's classes")


@pytest.mark.parametrize("wrong, expected", [("taken name", 'found "mlp", which is taken'), ("empty name", 'found ""')])
def test_a_library_takes_no_name_that_is_there(recipe, tmp_path, wrong, expected):
    done = train(recipe, tmp_path / "run", BRIM_WRONG_PARTS=wrong)
    refused(done, 2, f"[model] library: {LIBRARY}: expected a name of its own for each component", expected)


def test_a_key_is_there_once(recipe, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text(recipe.read_text().replace("wrong_net", "twice"))
    done = trainer("recipe", "show", "--recipe", own, "--trust-library")
    refused(done, 2, "'width' in [model]: expected one key of that name, found two; rename the key of name = \"twice\"",
            "'pretrained' in [model]: expected one key of that name, found two", "own.toml:3:8: ")


def test_a_batch_norm_of_libtorch_is_planned_without_the_size_that_it_refuses(recipe):
    done = trainer("plan", "--recipe", recipe, "--devices", "cpu,cpu", "--json",
                   *sets(model__wrong="one value", train__task="classification"))
    assert done.returncode == 0, done.stderr
    assert {row["micro"] for row in json.loads(done.stdout)["candidates"]} == {2, 4}
