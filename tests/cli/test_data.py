"""trainer data: folders become shards that the webdataset package reads and the trainer learns from."""
import http.server
import io
import json
import shutil
import signal
import threading
import time

import numpy as np
import pytest
import webdataset
from PIL import Image

from trainer import assert_same_tensors, evaluations, latest_checkpoint, metrics, sets, start, trainer


def image_folder(root, classes=3, images=8, size=(40, 30)):
    random = np.random.default_rng(0)
    for label in range(classes):
        folder = root / f"class {label}"
        folder.mkdir(parents=True)
        for i in range(images):
            pixels = random.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.{'png' if i % 4 == 3 else 'jpg'}")
    return root


def cache(folder):
    return sets(data__shard_cache=str(folder / "cache"))


def packed_by(*args):
    done = trainer("data", "pack", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def samples(folder):
    """(image, label) of all shards, as the package reads them."""
    shards = sorted(map(str, folder.glob("*.tar")))
    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        yield sample.get("jpg", sample.get("png")), int(sample["cls"])


def test_the_package_reads_what_was_packed(tmp_path):
    folder = image_folder(tmp_path / "images")
    report = packed_by("--from", folder, "--to", tmp_path / "shards", "--samples", 10)
    assert (report["images"], report["shards"], report["kept_shards"]) == (24, 3, 0)
    found = list(samples(tmp_path / "shards"))
    expected = {path.read_bytes(): int(path.parent.name[-1]) for path in folder.glob("*/*")}
    assert dict(found) == expected and len(found) == 24
    assert len({label for _, label in found[:10]}) == 3  # classes are mixed
    again = packed_by("--from", folder, "--to", tmp_path / "shards", "--samples", 10)
    assert again["kept_shards"] == 3


def test_a_changed_image_is_packed_again(tmp_path):
    folder = image_folder(tmp_path / "images")
    words = ["--from", folder, "--to", tmp_path / "shards", "--samples", 8]
    packed_by(*words)
    (folder / "class 0" / "0.jpg").write_bytes((folder / "class 1" / "0.jpg").read_bytes())
    assert packed_by(*words)["kept_shards"] == 2
    assert sorted(samples(tmp_path / "shards")) == sorted(
        (path.read_bytes(), int(path.parent.name[-1])) for path in folder.glob("*/*"))


def test_another_set_with_the_same_names_is_no_old_pack(tmp_path):
    folder = image_folder(tmp_path / "images")
    shutil.copytree(folder, tmp_path / "others")
    packed_by("--from", folder, "--to", tmp_path / "shards")
    done = trainer("data", "pack", tmp_path / "others", tmp_path / "shards")
    assert done.returncode == 3 and "packed of other images" in done.stderr, done.stderr


def test_a_pack_that_lacks_shards_is_noticed(tmp_path):
    packed_by("--from", image_folder(tmp_path / "images"), "--to", tmp_path / "shards", "--samples", 10)
    assert "expected" not in trainer("data", "inspect", tmp_path / "shards").stderr
    (tmp_path / "shards" / "shard-000002.tar").unlink()  # as a pack that was killed leaves it
    done = trainer("data", "inspect", tmp_path / "shards")
    assert "expected 24 images by its pack.json, found 20" in done.stderr


def test_shards_do_not_go_where_a_class_would_be(tmp_path):
    folder = image_folder(tmp_path / "images")
    for inside in (folder, folder / "shards", folder / ".." / "images" / "class 0"):
        done = trainer("data", "pack", folder, inside)
        assert done.returncode == 2 and "not within" in done.stderr, done.stderr
    assert not (folder / "shards").exists()
    assert trainer("data", "pack", folder, tmp_path / "images-packed").returncode == 0


def test_what_macos_keeps_beside_a_shard_is_none(tmp_path):
    packed_by("--from", image_folder(tmp_path / "images"), "--to", tmp_path / "shards")
    (tmp_path / "shards" / "._shard-000000.tar").write_bytes(b"x")
    done = trainer("data", "inspect", tmp_path / "shards")
    assert done.returncode == 0, done.stderr


def test_a_bench_skips_what_training_skips(tmp_path):
    folder = image_folder(tmp_path / "images")
    (folder / "class 0" / "0.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "recipe.toml").write_text(
        '[model]\nname = "mlp"\n[data]\nkind = "image_folder"\nimage_size = 16\nresize = 16\n'
        f'[data.train]\npath = "{folder}"\n[eval]\nenabled = false\n[batch]\nglobal = 8\n'
        '[optimizer]\nname = "sgd"\nlearning_rate = 0.01\n[train]\nepochs = 1\n')
    words = ["data", "bench", tmp_path / "recipe.toml", "--workers", "0", "--samples", 24]
    assert trainer(*words).returncode == 3
    done = trainer(*words, *sets(data__on_error="skip"))
    assert done.returncode == 0, done.stderr


def test_evaluation_shards_of_other_classes_are_refused(tmp_path):
    image_folder(tmp_path / "images")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nname = "mlp"\n[data]\nkind = "webdataset"\nimage_size = 16\nresize = 16\n'
                      '[data.train]\npath = "train"\n[data.eval]\npath = "eval"\n[batch]\nglobal = 8\n'
                      '[optimizer]\nname = "sgd"\nlearning_rate = 0.01\n[train]\nepochs = 1\n')
    packed_by("--from", tmp_path / "images", "--to", tmp_path / "train")
    packed_by("--from", tmp_path / "images", "--to", tmp_path / "eval")
    done = trainer("--recipe", recipe, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "images" / "class 0")
    packed_by("--from", tmp_path / "images", "--to", tmp_path / "fewer")
    (tmp_path / "images" / "class 1").rename(tmp_path / "images" / "another")
    packed_by("--from", tmp_path / "images", "--to", tmp_path / "renamed")
    for name, found in (("fewer", "class 1"), ("renamed", "another")):
        other = sets(data__eval__path=str(tmp_path / name))
        for words in (["--recipe", recipe, "--output", tmp_path / name / "run"], ["eval", tmp_path / "run"]):
            done = trainer(*words, *other)
            assert done.returncode == 3 and f'class 0 is "class 0" there and "{found}" in these' in done.stderr, done.stderr


def test_evaluation_counts_the_samples_that_it_could_read(tmp_path):
    recipe = folder_recipe(tmp_path, data='on_error = "skip"')
    trained(recipe, tmp_path / "run", *sets(train__epochs=1))
    (tmp_path / "images" / "class 1" / "0.jpg").write_bytes(b"none")
    done = trainer("eval", tmp_path / "run", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["samples"] == 23, done.stderr


def test_output_that_is_no_terminal_has_no_live_line(tmp_path):
    folder = image_folder(tmp_path / "images", classes=1, images=1)
    for args in (["inspect", "--from", folder], ["pack", "--from", folder, "--to", tmp_path / "shards"]):
        done = trainer("data", *args)
        assert done.returncode == 0 and "\x1b" not in done.stderr + done.stdout, done.stderr
        assert done.stdout.startswith("1 image"), done.stdout
        assert "1 images" not in done.stdout and "1 classes" not in done.stdout and "1 shards" not in done.stdout


@pytest.mark.parametrize("classes", [4, 6])
def test_top5_needs_more_than_five_classes(tmp_path, classes):
    image_folder(tmp_path / "images", classes=classes, images=2, size=(16, 16))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nname = "mlp"\n[data]\nkind = "image_folder"\nimage_size = 16\nresize = 16\n[data.train]\n'
                      'path = "images"\n[data.eval]\npath = "images"\n[batch]\nglobal = 4\n'
                      '[optimizer]\nname = "sgd"\n[train]\nsteps = 1\n')
    done = trainer("--recipe", recipe, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert ("  top5 " in done.stderr) == (classes == 6), done.stderr
    assert ("eval_top5" in evaluations(tmp_path / "run")[-1]) == (classes == 6)
    said = trainer("eval", tmp_path / "run")
    assert ("  top5 " in said.stdout) == (classes == 6), said.stdout


RECIPE = ('[model]\nname = "mlp"\n[data]\nkind = "{kind}"\nimage_size = 16\nresize = 16\n[data.train]\n'
          'path = "{path}"\n[batch]\nglobal = 4\n[optimizer]\nname = "sgd"\n[train]\nsteps = 1\n')


@pytest.mark.parametrize("packed", [False, True])
def test_a_dry_run_names_an_empty_image(tmp_path, packed):
    folder = image_folder(tmp_path / "images", size=(16, 16))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(kind="image_folder", path=folder))
    (folder / "class 1" / "0.jpg").write_bytes(b"")
    name = f"{folder}/class 1/0.jpg"
    if packed:
        with webdataset.TarWriter(str(tmp_path / "s.tar")) as shard:
            shard.write({"__key__": "a", "jpg": b"x", "cls": b"0"})
            shard.write({"__key__": "b", "jpg": b"", "cls": b"1"})
        recipe.write_text(RECIPE.format(kind="webdataset", path=tmp_path / "s.tar"))
        name = f"{tmp_path}/s.tar: b.jpg"
    done = trainer("--recipe", recipe, "--dry-run")
    assert done.returncode == 3, done.stderr
    assert f"error[data]: {name}: expected an image, found an empty file. " in done.stderr
    done = trainer("--recipe", recipe, "--dry-run", "--set", "data.on_error=skip")
    assert done.returncode == 0 and f"warning: {name}: expected an image, found an empty" in done.stderr


@pytest.fixture
def served(tmp_path):
    """tmp_path at an address, the requests for each file of it, and bodies that end only there."""
    requests, endless = [], set()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=tmp_path)

        def log_message(self, *_):
            pass

        def do_GET(self):
            requests.append(self.path.rpartition("/")[2])
            if requests[-1] not in endless:
                return super().do_GET()
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(4096):
                    self.wfile.write(bytes(1 << 20))
            except OSError:
                pass
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", requests, endless
    server.shutdown()
    server.server_close()


def test_predictions_name_the_classes_of_shards_on_the_web(tmp_path, served):
    address, _, _ = served
    folder = image_folder(tmp_path / "images", size=(16, 16))
    packed_by("--from", folder, "--to", tmp_path / "shards", "--samples", 10)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(kind="webdataset", path=address + "/shards/shard-{000000..000002}.tar"))
    done = trainer("--recipe", recipe, "--output", tmp_path / "run", *cache(tmp_path))
    assert done.returncode == 0, done.stderr
    done = trainer("predict", tmp_path / "run", folder / "class 1" / "0.jpg", "--json")
    assert done.returncode == 0, done.stderr
    names = {guess["name"] for guess in json.loads(done.stdout)["classes"]}
    assert names == {"class 0", "class 1", "class 2"}


def test_a_shard_without_end_is_fetched_once(tmp_path, served):
    """Its samples are skipped one after the other; each would fetch it again."""
    address, requests, endless = served
    folder = image_folder(tmp_path / "images", size=(16, 16))
    packed_by("--from", folder, "--to", tmp_path / "shards", "--samples", 12)
    endless.add("shard-000001.tar")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(kind="webdataset", path=address + "/shards/shard-{000000..000001}.tar"))
    done = trainer("--recipe", recipe, "--output", tmp_path / "run", *cache(tmp_path),
                   *sets(data__shard_cache_gib=1, data__on_error="skip", train__steps=12))
    assert done.returncode == 0, done.stderr
    assert "shard-000001.tar: expected at most 1.0 GiB, found more, of undeclared length" in done.stderr
    assert requests.count("shard-000001.tar") == 1
    assert not list((tmp_path / "cache").glob("*shard-000001.tar*.part"))


def test_resized_images_are_close_to_pillows(tmp_path):
    folder = tmp_path / "images"
    for label in "ab":
        (folder / label).mkdir(parents=True)
    y, x = np.mgrid[0:300, 0:400]
    pixels = np.stack([127 + 100 * np.sin(x / 20), 127 + 100 * np.cos(y / 30), (x + y) / 3], -1)
    image = Image.fromarray(pixels.astype(np.uint8))
    image.save(folder / "a" / "x.png")
    image.resize((40, 30)).save(folder / "b" / "x.png")
    packed_by("--from", folder, "--to", tmp_path / "shards", "--resize", 150, "--quality", 95)
    sizes = {}
    for content, label in samples(tmp_path / "shards"):
        packed = Image.open(io.BytesIO(content))
        sizes[label] = (packed.format, packed.size)
        if label == 0:
            whole = np.asarray(image.resize((200, 150), Image.Resampling.BILINEAR)).astype(int)
            assert np.abs(np.asarray(packed).astype(int) - whole).mean() < 2
    assert sizes == {0: ("JPEG", (200, 150)), 1: ("PNG", (40, 30))}


def test_a_killed_pack_goes_on_to_the_same_shards(tmp_path):
    folder = image_folder(tmp_path / "images", images=200, size=(120, 100))
    words = ["data", "pack", "--from", folder, "--samples", 20, "--resize", 60, "--threads", 1, "--to"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert trainer(*words, whole).returncode == 0
    process = start(*words, broken)
    while process.poll() is None and len(list(broken.glob("*.tar.index"))) < 3:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    report = packed_by(*words[2:], broken)
    assert report["kept_shards"] >= 3 and report["shards"] == 30
    for path in whole.glob("*.tar"):
        assert (broken / path.name).read_bytes() == path.read_bytes()


def test_broken_images_are_listed(tmp_path):
    folder = image_folder(tmp_path / "images")
    (folder / "class 1" / "0.jpg").write_bytes(b"GIF89a")
    content = (folder / "class 2" / "3.png").read_bytes()
    (folder / "class 2" / "3.png").write_bytes(content[: len(content) // 2])
    done = trainer("data", "inspect", "--from", folder, "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert found["images"] == 24
    assert [entry["images"] for entry in found["classes"]] == [8, 8, 8]
    assert found["height"]["median"] == 30 and found["width"]["median"] == 40
    assert len(found["broken"]) == 2
    assert "class 1/0.jpg" in found["broken"][0] and "class 2/3.png" in found["broken"][1]
    text = trainer("data", "inspect", "--from", folder)
    assert text.returncode == 3
    assert "24 images" in text.stdout and text.stdout.count("broken: ") == 2

    packed = trainer("data", "pack", "--from", folder, "--to", tmp_path / "shards")
    assert packed.returncode == 3
    assert packed.stderr.startswith("error[data]: ") and "class 1/0.jpg" in packed.stderr
    assert not list((tmp_path / "shards").glob("*.tar*"))


def test_shards_are_inspected_too(tmp_path):
    packed_by("--from", image_folder(tmp_path / "images"), "--to", tmp_path / "shards", "--samples", 10)
    for path in tmp_path / "shards", tmp_path / "shards" / "shard-{000000..000002}.tar":
        done = trainer("data", "inspect", "--from", path, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["images"] == 24 and found["broken"] == []


@pytest.mark.parametrize(
    "words,message",
    [
        ([], "expected inspect, pack, tokenize or bench, found none"),
        (["pak"], "expected inspect, pack, tokenize or bench, found 'pak'"),
        (["pack"], "--from is missing"),
        (["pack", "--from", "x"], "--to is missing"),
        (["pack", "--from", "x", "--to", "y", "--samples", "0"], "--samples: expected a number from 1"),
        (["pack", "--from", "x", "--to", "y", "--quality", "101"], "--quality: expected a number from 1 to 100"),
        (["inspect"], "--from is missing"),
        (["inspect", "--from", "digits.toml"], "digits.toml: expected a folder of images or of tar shards, found a recipe"),
    ],
    ids=str,
)
def test_bad_usage(tmp_path, words, message):
    done = trainer("data", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error[usage]: ") and message in done.stderr
    assert not list(tmp_path.iterdir())


def test_training_from_shards(tmp_path):
    packed_by("--from", image_folder(tmp_path / "images"), "--to", tmp_path / "shards", "--samples", 10)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[run]\nname = "r"\n[model]\nname = "mlp"\n[data]\nkind = "webdataset"\nimage_size = 16\nresize = 16\n'
        '[data.train]\npath = "shards"\n[data.eval]\npath = "shards/shard-{000000..000001}.tar"\n'
        '[batch]\nglobal = 8\n[optimizer]\nname = "sgd"\n[train]\nepochs = 2\n'
    )
    done = trainer("--recipe", recipe, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    lines = metrics(tmp_path / "run")
    assert sum("eval_top1" in line for line in lines) >= 1

    (tmp_path / "shards" / "shard-000001.tar").unlink()
    done = trainer("--recipe", recipe, "--output", tmp_path / "again")
    assert done.returncode == 3 and "shard" in done.stderr


def folder_recipe(tmp_path, name="recipe.toml", data="", augment='crop = "random_resized"\nflip = true'):
    """A small classifier of image_folder()'s images."""
    image_folder(tmp_path / "images")
    recipe = tmp_path / name
    recipe.write_text(
        f'[run]\nname = "r"\n[model]\nname = "mlp"\n[data]\nkind = "image_folder"\nimage_size = 16\nresize = 16\n{data}\n'
        '[data.train]\npath = "images"\n[data.eval]\npath = "images"\n'
        f"[data.augment]\n{augment}\n"
        '[batch]\nglobal = 8\n[optimizer]\nname = "sgd"\nlearning_rate = 0.01\n[train]\nepochs = 3\n'
    )
    return recipe


def trained(recipe, run, *words):
    done = trainer("--recipe", recipe, "--output", run, *words)
    assert done.returncode == 0, done.stderr
    return done


def test_bench_says_how_fast_and_what_bounds_it(tmp_path):
    recipe = folder_recipe(tmp_path)
    words = ["data", "bench", "--recipe", recipe, "--samples", 48, "--workers", "0,2"]
    done = trainer(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [entry["workers"] for entry in found["workers"]] == [0, 2]
    assert all(entry["samples"] >= 48 and entry["samples_per_s"] > 0 for entry in found["workers"])
    stages = found["stages_s_per_sample"]
    assert set(stages) == {"read", "decode", "resize", "augment", "copy"} and min(stages.values()) > 0
    assert found["device"] == "cpu"
    text = trainer(*words)
    slowest = max(stages, key=stages.get)
    assert text.returncode == 0 and "bounded by " in text.stdout
    assert slowest in text.stdout
    digits = trainer("data", "bench", "digits", "--samples", 200, "--workers", 0)  # with no augmentation
    assert digits.returncode == 0 and "no key of this recipe makes it cheaper" in digits.stdout, digits.stdout
    for bad in ("x", "1,,2", "-1", ""):
        assert trainer(*words[:-1], bad).returncode == 2


def test_bad_samples_end_the_run_or_are_replaced_and_named(tmp_path):
    recipe = folder_recipe(tmp_path)
    bad = tmp_path / "images" / "class 1" / "0.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    failed = trainer("--recipe", recipe, "--output", tmp_path / "failed")
    assert failed.returncode == 3 and "class 1/0.jpg" in failed.stderr
    skip = ["--set", "data.on_error=skip"]
    for workers in (0, 2):
        run = tmp_path / f"run{workers}"
        done = trained(recipe, run, *skip, "--set", f"data.workers={workers}")
        assert done.stderr.count("skipped: ") == 2  # once in training, and in the three evaluations
        assert "class 1/0.jpg" in done.stderr
        assert "1 training sample could not be read and was replaced by another" in done.stderr
        assert "1 evaluation sample could not be read and was left out of the metrics" in done.stderr
        assert len(evaluations(run)) == 3
    assert_same_tensors(latest_checkpoint(tmp_path / "run0"), latest_checkpoint(tmp_path / "run2"))
    capped = trainer("--recipe", recipe, "--output", tmp_path / "capped", *skip, "--set", "data.max_skipped=0")
    assert capped.returncode == 3 and "data.max_skipped allows 0" in capped.stderr


def test_caches_and_threads_change_nothing(tmp_path):
    recipe = folder_recipe(tmp_path, augment='crop = "random_resized"\nflip = true\nauto = "rand_augment"\nmixup = 0.2\nerase = 0.3')
    trained(recipe, tmp_path / "plain", "--set", "data.workers=0")
    for name, words in {
        "auto": ["data.workers=auto"],
        "seven": ["data.workers=7", "data.prefetch=1"],
        "encoded": ["data.cache=encoded"],
        "decoded": ["data.cache=decoded"],
        "short": ["data.cache=decoded", "data.cache_gib=0.00002"],
    }.items():
        sets = [word for key in words for word in ("--set", key)]
        done = trained(recipe, tmp_path / name, *sets)
        assert_same_tensors(latest_checkpoint(tmp_path / "plain"), latest_checkpoint(tmp_path / name))
        assert ("the cache is full" in done.stderr) == (name == "short")
