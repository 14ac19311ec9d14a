"""What people and shells read about the commands: help, completion, man pages, colours."""
import functools
import json
import os
import pathlib
import pty
import re
import shlex
import subprocess
import tomllib

import pytest

from trainer import SOURCE, TRAINER, environment, trainer

COMMANDS = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", trainer("--help").stdout, re.MULTILINE)


@functools.cache
def help_of(command):
    return trainer("help", *command.split()).stdout


def on_terminal(*args, **more):
    """What the trainer writes where its stderr is a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([TRAINER, *args], stderr=follower, stdout=follower,
                               stdin=subprocess.DEVNULL, env={**environment(), "TERM": "xterm", **more})
    os.close(follower)
    text = b""
    try:
        while block := os.read(leader, 4096):
            text += block
    except OSError:  # Linux's word for the other end being closed
        pass
    process.wait()
    os.close(leader)
    return text.decode()


def test_there_are_32_commands():
    assert len(COMMANDS) == 32, COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_usage_and_examples_in_80_columns(command):
    text = help_of(command)
    assert text.startswith(f"usage: trainer {command}")
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^Examples:\n  \S", text, re.MULTILINE)
    assert trainer(*command.split(), "--help").stdout == text


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_have_options_that_exist(command):
    for line in re.findall(r"^  (?:source <\()?(trainer .*?)\)?$", help_of(command), re.MULTILINE):
        words = shlex.split(line.split(" > ")[0])
        name = " ".join(words[1:3]) if " ".join(words[1:3]) in COMMANDS else words[1]
        if name.startswith("--"):
            continue
        known = help_of(name)
        for word in words:
            assert not word.startswith("--") or word.split("=")[0] in known, (line, word)


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_set_keys_that_their_recipe_has(command):
    recipes = {path.stem for path in (SOURCE / "recipes").glob("*.toml")}
    for line in re.findall(r"^  (trainer .*? --set .*)$", help_of(command), re.MULTILINE):
        words = shlex.split(line)
        values = [word for i, word in enumerate(words) if "--set" in words[i - 1:i + 1]]
        for recipe in recipes & {word.removeprefix("runs/") for word in words}:
            done = trainer("recipe", "check", recipe, *values)
            assert done.returncode == 0, (line, done.stderr)


def test_the_overview_names_all_commands_in_80_columns():
    text = trainer("help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert text == trainer("--help").stdout == trainer().stdout
    assert trainer("data", "--help").stdout == trainer("help", "data").stdout
    assert "data pack" in trainer("data", "--help").stdout and "tune" not in trainer("data", "--help").stdout


def test_version():
    assert trainer("--version").stdout == trainer("version").stdout
    assert re.search(r"^brim +0\.2\.0$", trainer("--version").stdout, re.MULTILINE)


@pytest.mark.parametrize("args, message", [
    (["frobnicate"], "unknown command 'frobnicate'; see trainer help"),
    (["tuen"], "unknown command 'tuen'; did you mean 'tune'?"),
    (["digits.toml"], "unknown command 'digits.toml'; to train a recipe: trainer train digits.toml"),
    (["data"], "trainer data: expected inspect, pack, tokenize or bench, found none; see trainer help data"),
    (["data", "pak"], "trainer data: expected inspect, pack, tokenize or bench, found 'pak'; "
                      "see trainer help data"),
    (["train"], "no recipe given; expected a path or the name of a bundled recipe, such as digits"),
    (["train", "digits", "--recipe", "digits"], "--recipe: expected one, found 2"),
    (["train", "digits", "more"], "unexpected argument 'more'; see trainer help train"),
    (["train", "digits", "--frobnicate"], "unknown option '--frobnicate'; see trainer help train"),
    (["digits", "--ouput", "x"], "unknown command 'digits'; see trainer help"),
    (["train", "digits", "--ouput=x"],
     "unknown option '--ouput'; did you mean '--output'? See trainer help train"),
    (["--recipe", "digits", "-o", "x"], "unknown option '-o'; see trainer help train"),
    (["train", "digits", "--resume", ""], "--resume: expected a value, found an empty one; see trainer help train"),
    (["train", "digits", "--output", ""], "--output: expected a value, found an empty one; see trainer help train"),
    (["train", "digits", "--output"], "--output: expected a value, found none; see trainer help train"),
    (["train", "digits", "--dry-run=yes"],
     "--dry-run: expected no value, found 'yes'; see trainer help train"),
    (["predict", "run", "--top", "1.5"], "--top: expected a 64-bit integer, found '1.5'; see trainer help predict"),
    (["predict", "run", "--temperature", "nan"],
     "--temperature: expected a number, found 'nan'; see trainer help predict"),
    (["data", "tokenize", "a.txt", "--output", "tokens", "--tokenizer="],
     "--tokenizer: expected a value, found an empty one; see trainer help data tokenize"),
    (["predict", "run", "--temperature", "hot"],
     "--temperature: expected a number, found 'hot'; see trainer help predict"),
    (["data", "inspect"], "--from is missing; see trainer help data inspect"),
    (["completion", "tcsh"],
     "trainer completion: expected bash, zsh or fish, found 'tcsh'; see trainer help completion"),
    (["help", "frobnicate"], "there is no command 'frobnicate'; see trainer help"),
    (["completion"], "trainer completion: expected bash, zsh or fish, found none; see trainer help completion"),
    (["help", "sweep", "nonsense"], "there is no command 'sweep nonsense'; see trainer help"),
    (["help", "data", "pack", "more"], "there is no command 'data pack more'; see trainer help"),
    (["help", "data", "pac"], "there is no command 'data pac'; see trainer help"),
    (["eval"], "no run given; try: trainer eval runs/digits"),
    (["audit"], "no run given; try: trainer audit runs/digits"),
    (["predict"], "no run given; try: trainer predict runs/digits seven.png"),
    (["doctor", "--prove"], "--prove: expected a run's folder too"),
], ids=str)
def test_a_wrong_command_line_is_a_usage_error(args, message):
    done = trainer(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error[usage]: {message}\n"


@pytest.mark.parametrize("key, ours", [("lr", "optimizer.learning_rate"), ("optimizer.lr", "learning_rate"),
                                       ("batch_size", "batch.global"), ("train.grad_clip", "clip_norm")])
def test_a_key_by_its_name_in_other_tools_is_found(key, ours):
    done = trainer("recipe", "check", "digits", "--set", f"{key}=1")
    assert done.returncode == 2
    assert done.stderr.endswith(f"did you mean '{ours}'?\n")


def test_a_key_without_its_section_is_found():
    done = trainer("recipe", "check", "digits", "--set", "learning_rate=0.1")
    assert done.returncode == 2
    assert done.stderr.endswith("did you mean 'optimizer.learning_rate'?\n")


def test_a_resolved_recipe_as_json_is_that_as_toml():
    text = trainer("recipe", "show", "digits").stdout
    assert json.loads(trainer("recipe", "show", "digits", "--json").stdout) == tomllib.loads(text)


def test_man_pages(tmp_path):
    folder = tmp_path / "share/man/man1"
    assert trainer("help", "--man", folder).returncode == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"trainer.1"} | {f"trainer-{command.replace(' ', '-')}.1" for command in COMMANDS}
    page = (folder / "trainer-data-pack.1").read_text()
    assert page.startswith('.TH trainer-data-pack 1 "" "Brim ') and r"\-\-resize" in page
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            assert not line.startswith("'") and re.match(r"\.(TH|SH|SS|TP|PP|B|BR|nf|fi)\b|[^.]|$", line), line


def test_colours_are_for_terminals_only():
    red = "\x1b[1;31merror[usage]:\x1b[0m"
    assert red in on_terminal("frobnicate")
    assert "\x1b[" not in on_terminal("frobnicate", NO_COLOR="1")
    assert "\x1b[" not in on_terminal("frobnicate", TERM="dumb")
    assert red in on_terminal("frobnicate", NO_COLOR="")
    assert "\x1b[" not in trainer("frobnicate").stderr
