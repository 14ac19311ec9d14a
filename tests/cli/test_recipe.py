"""The recipe commands, and the pages generated from the config structs."""
import json
import os

import pytest
from jsonschema import Draft202012Validator
from PIL import Image

from trainer import DIGITS, SOURCE, sets, trainer

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

RECIPES = sorted((SOURCE / "recipes").glob("*.toml"))


def test_reference_page_is_the_one_in_docs():
    page = trainer("recipe", "reference")
    assert page.returncode == 0, page.stderr
    assert page.stdout == (SOURCE / "docs" / "recipe.md").read_text(), \
        "run: trainer recipe reference > docs/recipe.md"


def test_schema_is_the_one_in_docs():
    schema = trainer("recipe", "schema")
    assert schema.returncode == 0, schema.stderr
    assert schema.stdout == (SOURCE / "docs" / "recipe.schema.json").read_text(), \
        "run: trainer recipe schema > docs/recipe.schema.json"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid_for_the_trainer_and_for_the_schema(recipe):
    check = trainer("recipe", "check", "--recipe", recipe)
    assert check.returncode == 0, check.stderr
    schema = json.loads((SOURCE / "docs" / "recipe.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(tomllib.loads(recipe.read_text()))
    assert recipe.read_text().startswith("#"), "a recipe opens with its arithmetic"
    assert "# Arithmetic:" in recipe.read_text()


@pytest.mark.parametrize("profile", sorted((SOURCE / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_every_hardware_profile_can_be_layered_on_a_recipe(profile):
    check = trainer("recipe", "check", "--recipe", DIGITS, "--config", profile)
    assert check.returncode == 0, check.stderr


def test_schema_refuses_what_the_trainer_refuses():
    schema = Draft202012Validator(json.loads((SOURCE / "docs" / "recipe.schema.json").read_text()))
    recipe = tomllib.loads(DIGITS.read_text())
    assert schema.is_valid(recipe)
    for section, key, value in [("optimizer", "learning_rte", 0.1), ("optimizer", "name", "sdg"),
                                ("train", "epochs", 0), ("model", "width", 3), ("run", "seed", "one")]:
        bad = json.loads(json.dumps(recipe))
        bad[section][key] = value
        assert not schema.is_valid(bad), (section, key, value)
        assert trainer("recipe", "check", "--recipe", DIGITS,
                       *sets(**{f"{section}__{key}": value})).returncode == 2


def schema_in_docs():
    return Draft202012Validator(json.loads((SOURCE / "docs" / "recipe.schema.json").read_text()))


@pytest.mark.parametrize("layer", sorted((SOURCE / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_the_schema_takes_layers(layer):
    schema_in_docs().validate(tomllib.loads(layer.read_text()))


def test_the_schema_takes_a_layer_of_few_keys_and_finds_its_mistakes():
    schema = schema_in_docs()
    schema.validate({"optimizer": {"name": "lamb", "learning_rate": 1e-3}})
    schema.validate({"schedule": {"rise": 0.1}})
    assert not schema.is_valid({"optimizer": {"name": "lamb", "learning_rte": 1e-3}})
    assert not schema.is_valid({"model": {"name": "mlp"}, "data": {"kind": "synthetic"}})  # no optimizer


@pytest.mark.parametrize("example", sorted((SOURCE / "examples").glob("*/recipe.toml")),
                         ids=lambda path: path.parent.name)
def test_the_schema_takes_parts_of_a_library(example):
    recipe = tomllib.loads(example.read_text())
    schema_in_docs().validate(recipe)
    recipe["model"]["libary"] = recipe["model"].pop("library")
    assert not schema_in_docs().is_valid(recipe)
    recipe["model"].pop("libary")
    has_own_parts = example.parent.name != "own_callbacks"
    assert schema_in_docs().is_valid(recipe) != has_own_parts, "without a library its parts are unknown"


def test_schema_and_reference_read_the_recipe_they_are_given():
    for page in ("schema", "reference"):
        done = trainer("recipe", page, "--recipe", "no_such_recipe")
        assert done.returncode == 2 and "no_such_recipe: no such file" in done.stderr
        assert trainer("recipe", page, "--recipe", DIGITS).returncode == 0


def test_a_dropped_section_is_said_to_belong_to_every_part_that_has_it(tmp_path):
    recipe = tmp_path / "flowers.toml"
    recipe.write_text('[model]\nname = "mlp"\n[data]\nkind = "image_folder"\n[data.train]\npath = "a"\n'
                      '[data.eval]\npath = "b"\n[optimizer]\nname = "sgd"\n')
    done = trainer("recipe", "check", "--recipe", recipe, *sets(data__kind="synthetic"))
    assert done.returncode == 0, done.stderr
    assert "section 'eval' in [data] is dropped" in done.stderr
    assert 'belongs to kind = "idx" or "image_folder" or "tokens" or "webdataset"' in done.stderr


@pytest.mark.parametrize("keys", [{"eval__enabled": False}, {"eval__every_epochs": 0}])
def test_a_plateau_without_evaluations_is_warned_of(keys):
    plateau = sets(schedule__name="plateau", **keys)
    for command in (["recipe", "check"], ["--dry-run"]):
        done = trainer(*command, "--recipe", DIGITS, *plateau)
        assert done.returncode == 0, done.stderr
        assert 'schedule.name = "plateau" never lowers the learning rate' in done.stderr, done.stderr
    assert "never lowers" not in trainer("recipe", "check", "--recipe", DIGITS,
                                         *sets(schedule__name="plateau")).stderr


def test_a_plateau_without_an_evaluation_set_is_warned_of(tmp_path):
    for label in "ab":
        (tmp_path / "images" / label).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "images" / label / "0.png")
    recipe = tmp_path / "flowers.toml"
    recipe.write_text('[model]\nname = "mlp"\n[data]\nkind = "image_folder"\nimage_size = 32\nresize = 32\n[data.train]\n'
                      'path = "images"\n[optimizer]\nname = "sgd"\n'
                      '[batch]\nglobal = 2\n[schedule]\nname = "plateau"\n')
    done = trainer("--dry-run", "--recipe", recipe)
    assert "there is no evaluation set" in done.stderr, done.stderr


def test_devices_take_any_characters():
    done = trainer("recipe", "show", "--recipe", DIGITS, "--devices", 'a"b')
    assert tomllib.loads(done.stdout)["device"]["select"] == 'a"b', done.stderr


def test_show_is_a_fixed_point(tmp_path):
    shown = trainer("recipe", "show", "--recipe", DIGITS).stdout
    copy = tmp_path / "copy.toml"
    copy.write_text(shown)
    assert trainer("recipe", "show", "--recipe", copy).stdout == shown


def test_layers_apply_in_order(tmp_path):
    (tmp_path / "base.toml").write_text('[model]\nname = "mlp"\nhidden = 10\n[data]\nkind = "synthetic"\n'
                                        '[optimizer]\nname = "sgd"\nlearning_rate = 1.0\n[train]\nepochs = 1\n')
    (tmp_path / "mine.toml").write_text('extends = "base.toml"\n[model]\nhidden = 20\n')
    (tmp_path / "hardware.toml").write_text('[train]\nepochs = 3\n[optimizer]\nlearning_rate = 3\n')
    shown = trainer("recipe", "show", "--recipe", tmp_path / "mine.toml", "--config",
                    tmp_path / "hardware.toml", *sets(optimizer__learning_rate=4))
    assert shown.returncode == 0, shown.stderr
    recipe = tomllib.loads(shown.stdout)
    assert recipe["model"]["hidden"] == 20
    assert recipe["train"]["epochs"] == 3
    assert recipe["optimizer"]["learning_rate"] == 4.0


def test_a_recipe_is_found_by_name(tmp_path):
    assert trainer("recipe", "check", "--recipe", "digits", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["digits", "digits.toml", "recipes/digits", "recipes/digits.toml"])
def test_extends_finds_what_recipe_finds(tmp_path, name):
    for folder in ("flowers", "elsewhere"):
        (tmp_path / folder).mkdir()
    recipe = tmp_path / "flowers" / "flowers.toml"
    recipe.write_text(f'extends = "{name}"\n[train]\nepochs = 3\n')
    shown = trainer("recipe", "show", "--recipe", recipe, cwd=tmp_path / "elsewhere")
    assert shown.returncode == 0, shown.stderr
    assert tomllib.loads(shown.stdout)["train"]["epochs"] == 3
    assert trainer("recipe", "check", "--recipe", name, cwd=tmp_path).returncode == 0


def test_extends_of_nothing_lists_what_there_is(tmp_path):
    (tmp_path / "mine.toml").write_text('extends = "digts"\n')
    done = trainer("recipe", "check", "--recipe", "mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine.toml:1:11: 'extends': digts: no such file" in done.stderr
    assert "did you mean 'digits'?" in done.stderr


def test_a_pipe_is_no_recipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    for name in (tmp_path / "pipe.toml", tmp_path / "pipe"):
        done = trainer("recipe", "check", "--recipe", name)
        assert done.returncode == 2
        assert "pipe.toml: expected a regular file, found a pipe" in done.stderr
    done = trainer("recipe", "check", "--recipe", "/dev/null")
    assert done.returncode == 2 and "/dev/null: expected a regular file, found a device" in done.stderr


def test_check_tries_the_model_on_its_data(tmp_path):
    bad = trainer("recipe", "check", "text_bytes", *sets(model__heads=3))
    assert bad.returncode == 2
    assert "expected 'heads' to divide 'width', found 3 heads for a width of" in bad.stderr
    gone = trainer("recipe", "check", "text_bytes", *sets(model__heads=3, data__train__path=str(tmp_path / "no")))
    assert gone.returncode == 0 and "for want of its data" in gone.stderr and str(tmp_path / "no") in gone.stderr


def test_a_folder_of_checkpoints_that_no_run_wrote_is_ones_own(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "my.toml").write_text('extends = "digits"\n[telemetry]\nexec = ["cat"]\n')
    done = trainer("train", tmp_path / "my.toml", "--dry-run")
    assert done.returncode == 0, done.stderr
    (tmp_path / "checkpoints" / "latest").touch()
    done = trainer("train", tmp_path / "my.toml", "--dry-run")
    assert done.returncode == 2 and "came with a run" in done.stderr


def test_check_as_json():
    good = trainer("recipe", "check", "--recipe", DIGITS, "--json")
    assert json.loads(good.stdout) == {"valid": True, "problems": []}
    bad = trainer("recipe", "check", "--recipe", DIGITS, "--json", *sets(train__epoch=1, run__sed=1))
    assert bad.returncode == 2
    problems = json.loads(bad.stdout)["problems"]
    assert len(problems) == 2 and all("did you mean" in problem for problem in problems)


def test_version_names_what_it_is_made_of():
    result = trainer("version", "--json")
    assert result.returncode == 0, result.stderr
    version = json.loads(result.stdout)
    assert version["libtorch"] == "2.11.0"
    if not os.path.exists("/proc/driver/nvidia/version"):
        assert version["cuda"].startswith("not loaded: ")
