"""The JSON Schema against an implementation of draft 2020-12: where it refuses, Brim refuses."""
import json
import os
import pathlib
import subprocess
import tomllib

import jsonschema
import pytest

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]).resolve() / "recipe_sample"
RUN = '[run]\nname = "a"\n'
SYNTHETIC = RUN + '[data]\nkind = "synthetic"\n'

GOOD = {
    "least": SYNTHETIC,
    "default part's keys": SYNTHETIC + "[optimizer]\nmomentum = 0.5\nnesterov = true\n",
    "chosen part": SYNTHETIC + '[optimizer]\nname = "adamw"\nbetas = [0.5, 0.9]\n',
    "part's section": SYNTHETIC + '[optimizer]\nname = "adamw"\n[optimizer.limits]\nlargest = 2\n',
    "required key of a part": RUN + '[data]\nkind = "folder"\npath = "/x"\n',
    "auto": SYNTHETIC + '[batch]\nmicro = "auto"\n',
    "integer or auto": SYNTHETIC + "[batch]\nmicro = 3\n",
    "integer as number": SYNTHETIC + "[optimizer]\nlearning_rate = 1\n",
    "section beside a part": SYNTHETIC + "[data.train]\nlimit = 3\n",
    "lists": '[run]\nname = "a"\ntags = ["x"]\ndevices = [0, 63]\n[data]\nkind = "synthetic"\n',
}
BAD = {
    "unknown section": SYNTHETIC + "[optimiser]\nmomentum = 0.5\n",
    "unknown key": SYNTHETIC + "[optimizer]\nlearning_rte = 0.5\n",
    "unknown key of a part's section": SYNTHETIC
    + '[optimizer]\nname = "adamw"\n[optimizer.limits]\nsmallest = 2\n',
    "key of another part": SYNTHETIC + '[optimizer]\nname = "adamw"\nmomentum = 0.5\n',
    "key of another than the default part": SYNTHETIC + "[optimizer]\nbetas = [0.5]\n",
    "section of another part": SYNTHETIC + '[optimizer]\nname = "sgd"\n[optimizer.limits]\n',
    "unknown part": SYNTHETIC + '[optimizer]\nname = "sdg"\n',
    "unknown word": SYNTHETIC + '[precision]\nmode = "int8"\n',
    "wrong type": SYNTHETIC + '[optimizer]\nlearning_rate = "x"\n',
    "number for an integer": '[run]\nname = "a"\nseed = 1.5\n[data]\nkind = "synthetic"\n',
    "boundary above": SYNTHETIC + "[optimizer]\nlearning_rate = 0\n",
    "boundary below": SYNTHETIC + "[optimizer]\nmomentum = 1.0\n",
    "another part's range": SYNTHETIC + '[optimizer]\nname = "adamw"\nlearning_rate = 11\n',
    "element out of range": '[run]\nname = "a"\ndevices = [64]\n[data]\nkind = "synthetic"\n',
    "word for an integer": SYNTHETIC + '[batch]\nmicro = "automatic"\n',
    "missing key": "[run]\nseed = 1\n[data]\nkind = 'synthetic'\n",
    "missing section": "[data]\nkind = 'synthetic'\n",
    "missing part": RUN + "[data]\n",
    "missing key of a part": RUN + '[data]\nkind = "folder"\n',
    "empty required text": '[run]\nname = ""\n[data]\nkind = "synthetic"\n',
}


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(subprocess.check_output([TOOL, "schema"]))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def brim_accepts(folder, text):
    path = folder / "recipe.toml"
    path.write_text(text)
    result = subprocess.run([TOOL, "check", path], capture_output=True, text=True)
    assert result.returncode in (0, 2), result.stderr
    return result.returncode == 0


@pytest.mark.parametrize("name", GOOD)
def test_both_accept(validator, tmp_path, name):
    validator.validate(tomllib.loads(GOOD[name]))
    assert brim_accepts(tmp_path, GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_both_refuse(validator, tmp_path, name):
    assert not validator.is_valid(tomllib.loads(BAD[name]))
    assert not brim_accepts(tmp_path, BAD[name])


def test_a_recipe_that_extends_may_leave_required_keys_to_the_other(validator):
    validator.validate({"extends": "base.toml", "optimizer": {"momentum": 0.5}})
    assert not validator.is_valid({"extends": "base.toml", "optimizer": {"momentun": 0.5}})


def test_errors_reach_stderr_with_status_2(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text("[run]\nnam = 1\n")
    result = subprocess.run([TOOL, "check", "r.toml"], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "error[recipe]: r.toml: missing key 'kind' in [data] (where samples come from)\n"
        "error[recipe]: r.toml:1:1: missing key 'name' in [run] (name of the run)\n"
        "error[recipe]: r.toml:2:1: unknown key 'nam' in [run]; did you mean 'name'?\n"
    )
