"""trainer eval by class: counted again from what trainer predict says of the same images."""
import collections
import gzip
import json

import numpy as np
import pytest
from PIL import Image

from trainer import DIGITS, SOURCE, sets, trainer


def idx(name):
    data = gzip.decompress((SOURCE / "recipes" / "data" / "digits" / name).read_bytes())
    sizes = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval") / "run"
    done = trainer("--recipe", DIGITS, "--output", folder, *sets(train__epochs=1))
    assert done.returncode == 0, done.stderr
    return folder


def test_the_classes_of_each_sample_are_those_that_predict_names(run, tmp_path):
    images, labels = idx("test-images.idx.gz"), idx("test-labels.idx.gz")
    files = []
    for i, image in enumerate(images):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(image).save(files[-1])
    said = trainer("predict", run, *files, "--top", 1, "--json")
    assert said.returncode == 0, said.stderr
    guesses = {line["input"]: line["classes"][0]["name"] for line in map(json.loads, said.stdout.splitlines())}
    expected = collections.defaultdict(collections.Counter)
    for file, label in zip(files, labels, strict=True):
        expected[str(label)][guesses[str(file)]] += 1

    done = trainer("eval", run, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {entry["name"]: entry["taken_for"] for entry in report["classes"]} == expected
    for entry in report["classes"]:
        assert entry["samples"] == sum(entry["taken_for"].values())
        assert entry["correct"] == entry["taken_for"].get(entry["name"], 0)
    assert sum(entry["correct"] for entry in report["classes"]) / len(labels) * 100 == pytest.approx(report["top1"])


def test_a_run_keeps_those_of_its_last_evaluation(run, tmp_path):
    kept = json.loads((run / "run.json").read_text())["classes"]
    assert kept == json.loads(trainer("eval", run, "--json").stdout)["classes"]
    both = trainer("--recipe", DIGITS, "--output", tmp_path / "both", "--devices", "cpu,cpu", *sets(train__epochs=1))
    assert both.returncode == 0, both.stderr
    kept = json.loads((tmp_path / "both" / "run.json").read_text())["classes"]
    assert sum(entry["samples"] for entry in kept) == 360  # each rank has seen half of them


def test_people_see_the_hardest_classes_first(run):
    report = json.loads(trainer("eval", run, "--json").stdout)
    lines = trainer("eval", run).stdout.splitlines()
    assert "top1" in lines[0] and lines[1].split() == ["class", "samples", "correct", "taken", "for"]
    shares = {entry["name"]: entry["correct"] / entry["samples"] for entry in report["classes"]}
    wrong = [name for name in shares if shares[name] < 1]
    assert [line.split()[0] for line in lines[2:]] == sorted(wrong, key=lambda name: shares[name])
    hardest = next(entry for entry in report["classes"] if entry["name"] == lines[2].split()[0])
    mistakes = {name: count for name, count in hardest["taken_for"].items() if name != hardest["name"]}
    name, count = lines[2].split("%  ")[1].split(", ")[0].split()
    assert count == f"({max(mistakes.values())})" and mistakes[name] == max(mistakes.values())


def test_many_classes_are_counted_without_what_they_were_taken_for(tmp_path):
    recipe = tmp_path / "many.toml"
    recipe.write_text('[model]\nname = "mlp"\nhidden = 8\n[data]\nkind = "synthetic"\nheight = 8\nwidth = 8\n'
                      'classes = 300\nsamples = 600\neval_samples = 600\n[batch]\nglobal = 60\n'
                      '[optimizer]\nname = "sgd"\n[train]\nsteps = 2\n')
    assert trainer("--recipe", recipe, "--output", tmp_path / "run").returncode == 0
    report = json.loads(trainer("eval", tmp_path / "run", "--json").stdout)
    assert len(report["classes"]) == 300 and sum(entry["samples"] for entry in report["classes"]) == 600
    assert all("taken_for" not in entry for entry in report["classes"])
    correct = sum(entry["correct"] for entry in report["classes"])
    assert correct / 6 == pytest.approx(report["top1"])
    said = trainer("eval", tmp_path / "run").stdout
    assert len(said.splitlines()) == 13 and "more with mistakes; --json has all" in said.splitlines()[-1]
