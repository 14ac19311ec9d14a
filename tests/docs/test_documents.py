"""Every command in the documents runs, in order and in a folder of its own, on small stand-in data.

A ```sh block after `<!-- needs=… -->` asks for what a test machine lacks: its options are looked up only.
A ```toml block with a title is written to that file."""
import concurrent.futures
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from trainer import trainer  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["BRIM_BIN_DIR"])
NEEDS = {"gpu", "slurm", "kubernetes", "machines", "build", "clone"}
BLOCK = re.compile(r"^(?:<!-- needs=(\w+) -->\n)?```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md")), *sorted((SOURCE / "examples").glob("*/README.md"))]
LIMIT_S = 600  # only to catch a hang

SMALL = """
extends = "{recipe}"
[model]
name = "{model}"
[data]
image_size = 16
resize = 16
[batch]
global = 8
[train]
epochs = 1
[schedule]
warmup = 0
"""
SMALL_GPT = """
extends = "{recipe}"
[model]
name = "gpt"
layers = 1
heads = 2
width = 16
[data]
kind = "synthetic_tokens"
vocabulary = 257
length = 16
samples = 64
[train]
epochs = 1
[schedule]
warmup = 0
"""
SMALL_DIGITS = """
extends = "{recipe}"
[train]
epochs = 4
"""
# Benchmarks are read as they are written, and then run once, for a few steps.
RUNS_ONCE = """#!/bin/sh
case "$*" in
  *--replay*) ;;
  bench*--repeats*--steps*|compare*--repeats*--steps*) exec {trainer} "$@" --repeats 1 --steps 5 ;;
  compare*--steps*) exec {trainer} "$@" --steps 5 ;;
  bench*|compare*--repeats*) exec {trainer} "$@" --repeats 1 ;;
esac
exec {trainer} "$@"
"""


def blocks(page):
    """(needs, language, title, text) of each fenced block."""
    return [found.groups() for found in BLOCK.finditer(page.read_text())]


def commands():
    return [page for page in PAGES if any(language == "sh" for _, language, _, _ in blocks(page))]


def environment(folder):
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCH")}
    return dict(env, PATH=f"{folder}/scripts:{BIN}:{env['PATH']}", HOME=str(folder), XDG_CACHE_HOME=str(folder / ".cache"),
                OMP_NUM_THREADS="1", TERM="dumb", BRIM_GPU_LOCK_FOLDER=str(folder / ".locks"))


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory):
    """What a reader has: images in class folders, a text, weights, and small recipes by the bundled names."""
    folder = tmp_path_factory.mktemp("stand_ins")
    for part in ("train", "val"):
        for place, kind in enumerate(("daisy", "rose", "tulip")):
            (folder / "flowers" / part / kind).mkdir(parents=True)
            for number in range(4):
                Image.new("RGB", (40, 40), (80 * place, 40 * number, 0)).save(
                    folder / "flowers" / part / kind / f"{number}.jpg")
    # Written once: what another thread forks meanwhile would hold a new one open, and it could not be run.
    (folder / "runs_once").write_text(RUNS_ONCE.format(trainer=BIN / "trainer"))
    (folder / "runs_once").chmod(0o755)
    (folder / "book.txt").write_text("The trainer trains the model.\n" * 200)
    recipes = folder / "recipes"
    recipes.mkdir()
    for name, model in (("resnet50", "resnet18"), ("vit_s16", "vit_s16"), ("convnext_tiny", "convnext_tiny")):
        (recipes / f"{name}.toml").write_text(SMALL.format(recipe=SOURCE / "recipes" / f"{name}.toml", model=model))
    for name in ("text_bytes", "gpt2"):
        (recipes / f"{name}.toml").write_text(SMALL_GPT.format(recipe=SOURCE / "recipes" / f"{name}.toml"))
    (recipes / "digits.toml").write_text(SMALL_DIGITS.format(recipe=SOURCE / "recipes/digits.toml"))
    (folder / "flowers.toml").write_text(
        'extends = "resnet50"\n[data.train]\npath = "flowers/train"\n[data.eval]\npath = "flowers/val"\n')
    done = subprocess.run([BIN / "trainer", "train", "flowers.toml", "--output", "weights", "--set", "train.steps=1"],
                          cwd=folder, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([BIN / "trainer", "export", "weights", "--output", "resnet50.safetensors"],
                          cwd=folder, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "weights")
    return folder


def made_small(key):
    return f"{key[1]} = {1 if key[1] == 'epochs' else 8}"


def run_page(page, stand_ins, folder):
    shutil.copytree(stand_ins, folder)
    (folder / "scripts").mkdir()
    (folder / "scripts/trainer").symlink_to(stand_ins / "runs_once")
    for _, language, title, text in blocks(page):
        if language == "toml" and title:
            (folder / title).write_text(re.sub(r"^(epochs|global) = \d+", made_small, text, flags=re.MULTILINE))
    for needs, language, _, text in blocks(page):
        if language != "sh" or needs:
            continue
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], cwd=folder, env=environment(folder),
                              capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.fixture(scope="session")
def running(request, stand_ins, tmp_path_factory):
    """The chosen pages, as many at a time as there are cores: their commands use one thread each."""
    tests = [item for item in request.session.items if "running" in item.fixturenames]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield {page: pool.submit(run_page, page, stand_ins, tmp_path_factory.mktemp("page") / "here")
               for page in (test.callspec.params["page"] for test in tests)}


@pytest.mark.parametrize("page", commands(), ids=lambda page: str(page.relative_to(SOURCE)))
def test_the_commands_of_a_page_run(page, running):
    running[page].result()


@functools.cache
def help_of(program, *words):
    if program == "trainrun":
        return subprocess.run([BIN / "trainrun", "--help"], capture_output=True, text=True, check=True).stdout
    done = trainer("help", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_that_cannot_run_here_have_options_that_exist():
    seen = 0
    for page in PAGES:
        for needs, language, _, text in blocks(page):
            assert needs is None or needs in NEEDS, (page, needs)
            if language != "sh" or needs is None:
                continue
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["cmake"]:
                    continue  # there they are targets
                for place, word in enumerate(words):
                    program = word.rpartition("/")[2]
                    if program not in ("trainer", "trainrun"):
                        continue
                    rest = words[place + 1:]
                    rest = rest[:rest.index("trainer")] if program == "trainrun" and "trainer" in rest else rest
                    command = ["train"]
                    if rest and not rest[0].startswith("-") and program == "trainer":
                        command = rest[:2] if rest[0] in ("data", "recipe") else rest[:1]
                    known = help_of(program, *command)
                    for option in rest:
                        if option.startswith("--"):
                            assert option.split("=")[0] in known, (page.name, line, option)
                            seen += 1
    assert seen >= 5


def test_titled_recipes_are_valid(stand_ins, tmp_path):
    folder = tmp_path / "here"
    shutil.copytree(stand_ins, folder)
    for page in PAGES:
        for _, language, title, text in blocks(page):
            if language == "toml" and title and "extends" in text:
                (folder / title).write_text(text)
                done = trainer("recipe", "check", title, cwd=folder, **environment(folder))
                assert done.returncode == 0, (page.name, title, done.stderr)


def test_the_page_on_own_models_shows_the_example():
    [code] = [text for _, language, _, text in blocks(SOURCE / "docs/tutorials/own-model.md") if language == "cpp"]
    assert code == (SOURCE / "examples/own_model/own_model.cpp").read_text()


def test_the_pieces_shown_are_those_that_are_built():
    source = (SOURCE / "examples/pieces/pieces.cpp").read_text()
    shown = [text for _, language, _, text in blocks(SOURCE / "docs/how-to/pieces.md") if language == "cpp"]
    assert shown == [piece for _, piece in re.findall(r"// \[(\w+)\]\n(.*?)// \[\1\]\n", source, re.S)]


def test_the_paper_model_shows_what_its_program_computes():
    table = subprocess.run([sys.executable, SOURCE / "benchmarks/scaling_model.py"], capture_output=True, text=True, check=True)
    assert table.stdout in (SOURCE / "docs/scaling.md").read_text()


def test_the_readme_is_short():
    lines = (SOURCE / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert [line for line in lines if len(line) > 160 and not line.startswith("|")] == []


def test_links_lead_somewhere():
    """In the repository; that of the site is built strictly."""
    made = SOURCE / "docs/reference/cli.md"
    for page in [*PAGES, SOURCE / "CONTRIBUTING.md"]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            there = (page.parent / target).resolve()
            assert target.startswith("https://") or there.exists() or there == made, (page.name, target)


def test_quoted_messages_exist():
    """Each message of the troubleshooting page stands in a string of the sources."""
    texts = [path.read_text() for folder in ("framework", "models", "scripts")
             for path in (SOURCE / folder).rglob("*") if path.is_file() and path.suffix in (".cpp", ".h", ".cu", ".sh", "")]
    rows = re.findall(r"^\| `([^`]+)` \|", (SOURCE / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    assert len(rows) >= 40
    for message in rows:
        plain = message.replace("\\|", "|")
        assert any(plain in text or plain.replace('"', '\\"') in text for text in texts), message


def test_the_site_builds_without_a_broken_link(tmp_path):
    done = subprocess.run([SOURCE / "scripts/docs", "build"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    front = (SOURCE / "build/site/index.html").read_text()
    assert "scripts/trainer train digits" in re.sub(r"<[^>]+>", "", front)
    assert (SOURCE / "build/site/api/classbrim_1_1train_1_1TrainingStep.html").is_file()
    for page in (SOURCE / "build/site").rglob("*.html"):
        foreign = re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="(https?://[^"]+)"', page.read_text())
        assert foreign == [], (page.name, foreign)  # readable without a network


@pytest.mark.parametrize("script", ["pictures", "architecture"])
def test_pictures_are_current(script):
    done = subprocess.run([SOURCE / "scripts" / script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("patch", sorted((SOURCE / "docs/contributing/add-a-part").iterdir()), ids=lambda path: path.stem)
def test_the_commits_of_the_walk_through_still_apply(patch):
    done = subprocess.run(["git", "apply", "--check", patch], cwd=SOURCE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"add-a-part/{patch.name}" in (SOURCE / "docs/contributing/add-a-part.md").read_text()
