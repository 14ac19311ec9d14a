"""Language models from end to end: trained, stopped, resumed, tuned, exported, asked; and what they
say to the wrong data."""
import gzip
import json
import math
import re

import numpy as np
import pytest

from trainer import SOURCE, assert_same_tensors, latest_checkpoint, metrics, sets, tensors, train_in_ranks, trainer

RECIPE = SOURCE / "recipes" / "text_bytes.toml"
VOCABULARY = 257
SMALL = sets(model__layers=2, model__width=64, data__length=64, batch__global=16, run__seed=3,
             telemetry__every_steps=1, telemetry__tensorboard=False, schedule__warmup=0,
             eval__every_epochs=1)


def train(folder, *args, ranks=1):
    args = ("--recipe", RECIPE, *SMALL, *args)
    if ranks > 1:
        return train_in_ranks(ranks, folder, *args)
    done = trainer(*args, "--devices", "cpu", "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder


def losses(run):
    return [line["loss"] for line in metrics(run) if "loss" in line]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("text") / "run", *sets(train__steps=120))


def test_it_learns(run):
    uniform = math.log(VOCABULARY)
    assert losses(run)[0] == pytest.approx(uniform, abs=0.3)
    evaluation = [line for line in metrics(run) if "eval_loss" in line][-1]
    assert evaluation["eval_loss"] < 0.6 * uniform
    assert evaluation["eval_perplexity"] == pytest.approx(math.exp(evaluation["eval_loss"]))
    assert 0 < evaluation["eval_top1"] < 100


def test_the_best_checkpoint_has_the_lowest_loss(run):
    evaluations = {line["step"]: line["eval_loss"] for line in metrics(run) if "eval_loss" in line}
    assert len(evaluations) >= 2
    best = (run / "checkpoints" / "best").read_text().strip()
    assert int(best.removeprefix("step-")) == min(evaluations, key=evaluations.get)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = train(tmp_path / "whole", *sets(train__steps=8))
    first = sets(train__steps=4, schedule__steps=8)
    train(tmp_path / "parts", *first)
    train(tmp_path / "parts", "--resume", "auto", *sets(train__steps=8))
    assert losses(tmp_path / "parts") == losses(whole)
    assert_same_tensors(latest_checkpoint(tmp_path / "parts"), latest_checkpoint(whole))


# Documents fill their rows to different parts, so that micro-batches and ranks weigh differently.
@pytest.mark.parametrize("args", [
    (), sets(data__packing="documents", data__end_of_document=10),
    sets(data__packing="padded", data__end_of_document=10, model__pad_vocabulary_to=64)])
def test_ranks_and_micro_batches_learn_what_one_pass_learns(tmp_path, args):
    args = (*args, *sets(precision__mode="fp64", train__steps=6, model__dropout=0.0,
                         optimizer__name="sgd", batch__global=15, train__clip_norm=0.0))
    alone = train(tmp_path / "alone", *args)
    pieces = train(tmp_path / "pieces", *args, *sets(batch__micro=4))
    ranks = train(tmp_path / "ranks", *args, *sets(batch__micro=4), ranks=2)
    ours = tensors(latest_checkpoint(alone))
    for other in (pieces, ranks):
        theirs = tensors(latest_checkpoint(other))
        for name in ours:
            if name.startswith("model/"):
                worst = np.abs(ours[name] - theirs[name]).max()
                assert worst <= 1e-9 * max(1, np.abs(ours[name]).max()), name
        np.testing.assert_allclose(losses(alone), losses(other), rtol=1e-6)


def test_what_ranks_trained_by_cost_is_asked_on_one(tmp_path):
    padded = sets(data__packing="padded", data__end_of_document=10, train__steps=2)
    run = train(tmp_path / "run", *padded, *sets(distributed__balance="cost"), ranks=2)
    done = trainer("eval", run)
    assert done.returncode == 0, done.stderr
    assert "by data.end_of_document they end with 10" in done.stderr
    assert trainer("predict", run, "--prompt", "to", "--tokens", 2).returncode == 0


def test_recompute_changes_nothing(tmp_path):
    args = sets(train__steps=2)
    plain = train(tmp_path / "plain", *args)
    again = train(tmp_path / "again", *args, *sets(train__recompute=["transformer.h.*"]))
    assert_same_tensors(latest_checkpoint(plain), latest_checkpoint(again))


def test_a_tuned_batch(tmp_path):
    done = trainer("--recipe", RECIPE, *SMALL, "--devices", "cpu", "--output", tmp_path / "run",
                   *sets(batch__micro="auto", batch__global=24, device__memory_gib=1.0,
                         train__steps=2))
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "run")) == 2
    assert json.loads((tmp_path / "run" / "run.json").read_text())["tuning"]["micro"] >= 1


def test_eval(run):
    done = trainer("eval", run, "--json", "--devices", "cpu")
    assert done.returncode == 0, done.stderr
    best = min(line["eval_loss"] for line in metrics(run) if "eval_loss" in line)
    assert json.loads(done.stdout)["loss"] == pytest.approx(best, rel=1e-6)


def predict(*args):
    done = trainer("predict", "--devices", "cpu", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_predict_goes_on_with_text(run, tmp_path):
    (tmp_path / "one.txt").write_text("The learning rate ")
    (tmp_path / "two.txt").write_text("A run ")
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    # Sums of products differ by rounding from batch to batch, which in bf16 changes what is drawn.
    args = ["--run", run, "--tokens", 90, "--json", "--prompt", "trainer ", *files, *sets(precision__mode="fp32")]
    lines = [json.loads(line) for line in predict(*args).splitlines()]
    assert [line["prompt"] for line in lines] == ["trainer ", "The learning rate ", "A run "]
    assert [line.get("input") for line in lines] == [None, *map(str, files)]
    assert all(0 < len(line["tokens"]) <= 90 for line in lines)  # more than the model's 64
    # The same numbers give the same text, whatever is computed beside it; others give another.
    assert [json.loads(line) for line in predict(*args, "--batch", 1).splitlines()] == lines
    assert [json.loads(line) for line in predict(*args, "--seed", 1).splitlines()] != lines
    likely = predict("--run", run, "--tokens", 20, "--temperature", 0, "--prompt", "the ")
    assert likely.startswith("the ")
    assert likely == predict("--run", run, "--tokens", 20, "--top-k", 1, "--prompt", "the ")


def test_predict_names_bad_files(run, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for name in ("empty.txt", "missing.txt"):
        done = trainer("predict", "--devices", "cpu", "--run", run, tmp_path / name)
        assert done.returncode == 3 and name in done.stderr, done.stderr
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin1"))
    done = trainer("predict", "--devices", "cpu", "--run", run, tmp_path / "latin.txt")
    assert done.returncode == 3 and "latin.txt: expected UTF-8, found the byte 0xE9 at byte 3" in done.stderr, done.stderr
    (tmp_path / "good.txt").write_text("A run ")
    done = trainer("predict", "--devices", "cpu", "--run", run, "--tokens", 3, "--json",
                   *(tmp_path / name for name in ("empty.txt", "good.txt", "missing.txt")))
    assert [json.loads(line)["prompt"] for line in done.stdout.splitlines()] == ["A run "]
    assert done.returncode == 3 and "empty.txt: expected" in done.stderr, done.stderr
    assert "missing.txt: cannot open" in done.stderr
    assert re.search(r"error\[data\]: 2 of 3 files could not be read: \S+/empty.txt, \S+/missing.txt; ", done.stderr)


def refusal(*args):
    done = trainer("--dry-run", "--devices", "cpu", *args)
    assert done.returncode != 0
    return done.returncode, done.stderr


def test_models_refuse_what_they_do_not_take(tmp_path):
    status, text = refusal("--recipe", RECIPE, *sets(model__name="resnet18"))
    assert status == 2
    assert "resnet18 takes images, but [data] kind = \"tokens\" gives token sequences" in text
    digits = SOURCE / "recipes" / "digits.toml"
    status, text = refusal("--recipe", digits, *sets(model__name="gpt"))
    assert status == 2
    assert "gpt takes token sequences, but [data] kind = \"idx\" gives images" in text
    status, text = refusal("--recipe", RECIPE, *sets(train__task="classification"))
    assert status == 2
    assert "train.task = \"classification\" takes images" in text
    status, text = refusal("--recipe", RECIPE, *sets(model__name="gpt2", data__length=2048))
    assert status == 2
    assert "at most 1024 tokens at a time; the data's rows have 2048" in text
    status, text = refusal("--recipe", RECIPE, *sets(model__heads=3))
    assert status == 2 and "divide" in text
    status, text = refusal("--recipe", RECIPE, *sets(train__task="classificaton"))
    assert status == 2 and "classification" in text


def test_a_token_beyond_the_vocabulary_is_named_with_its_place(tmp_path):
    ids = np.arange(2000, dtype=np.uint16) % 50
    ids[700] = 50
    ids.tofile(tmp_path / "ids.bin")
    done = trainer("--recipe", RECIPE, *SMALL, "--devices", "cpu", "--output", tmp_path / "run",
                   *sets(data__train__path=str(tmp_path / "ids.bin"), data__vocabulary=50,
                         train__steps=4, eval__enabled=False))
    assert done.returncode == 3
    assert "ids.bin: expected token ids from 0 to 49" in done.stderr
    assert "found 50 at token 700" in done.stderr


def tokenized(folder, text, *words):
    (folder.parent / f"{folder.name}.txt").write_text(text)
    done = trainer("data", "tokenize", folder.parent / f"{folder.name}.txt", *words, "--eval-fraction", 0.2, "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder


def of(folder, **values):
    return sets(data__train__path=str(folder / "train.bin"), data__eval__path=str(folder / "eval.bin"), **values)


def test_ids_that_the_tokenizer_lacks_are_never_drawn(tmp_path):
    folder = tokenized(tmp_path / "chars", "to be or not to be\n" * 200, "--tokenizer", "chars")
    run = train(tmp_path / "run", *of(folder, data__vocabulary=4000, train__steps=2, train__prompt="to be"))
    assert predict(run, "--prompt", "to be", "--tokens", 40, "--temperature", 100)
    done = trainer("--recipe", RECIPE, *SMALL, *of(folder, train__prompt="to X"), "--output", tmp_path / "other")
    assert done.returncode == 3
    assert 'train.prompt: the character "X" (U+0058) is not in the vocabulary' in done.stderr, done.stderr


def test_token_files_that_contradict_the_recipe_are_refused(tmp_path):
    def refused(*args):
        done = trainer("--recipe", RECIPE, *SMALL, *args, "--dry-run")
        assert done.returncode == 3, done.stderr
        return done.stderr
    text = "to be or not to be\n" * 200
    chars, other = (tokenized(tmp_path / name, text, "--tokenizer", name) for name in ("chars", "bytes"))
    assert "holds uint16 ids, as tokens.json beside it says, and data.type is uint32" in refused(
        *of(chars, data__type="uint32"))
    assert "holds ids of a vocabulary of 9, as tokens.json beside it says, and data.vocabulary is 8" in refused(
        *of(chars, data__vocabulary=8))
    mixed = [*of(chars), *sets(data__eval__path=str(other / "eval.bin"))]
    assert f'expected the tokenizer of {chars}/train.bin, "chars" with 9 ids, found "bytes" with 257' in refused(*mixed)


def test_the_vocabulary_is_the_tokenizers_where_the_recipe_names_none(tmp_path):
    folder = tokenized(tmp_path / "chars", "to be or not to be\n" * 200, "--tokenizer", "chars")
    (tmp_path / "job.toml").write_text("""
[model]
name = "gpt"
layers = 1
width = 32
[data]
kind = "tokens"
length = 32
[batch]
global = 8
[optimizer]
name = "adamw"
learning_rate = 1e-3
[train]
task = "language_modeling"
steps = 2
[schedule]
warmup = 0
""")
    run = tmp_path / "run"
    done = trainer("--recipe", tmp_path / "job.toml", "--devices", "cpu", "--output", run, *of(folder))
    assert done.returncode == 0, done.stderr
    assert len(tensors(latest_checkpoint(run))["model/transformer.wte.weight"]) == 9
    (folder / "train.bin").unlink()
    done = trainer("eval", run)
    assert done.returncode == 0, done.stderr
    assert predict(run, "--prompt", "to be", "--tokens", 4)


def test_files_that_hold_no_such_ids_are_refused(tmp_path):
    ids = np.arange(4000) % 250
    np.save(tmp_path / "ids.npy", ids.astype(np.uint16))
    ids.astype(np.uint32).tofile(tmp_path / "wide.bin")
    for name, words in (("ids.npy", "found a NumPy file"), ("wide.bin", 'set data.type = "uint32"')):
        done = trainer("--recipe", "text_bytes", "--dry-run", *sets(
            data__train__path=str(tmp_path / name), eval__enabled=False))
        assert done.returncode == 3 and words in done.stderr, done.stderr


def test_documents_end_where_the_tokenizer_ended_them(tmp_path):
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"text": "to be"}) + "\n" for _ in range(100)))
    done = trainer("data", "tokenize", tmp_path / "lines.jsonl", "--tokenizer", "bytes", "--eval-fraction", 0.2,
                   "--output", tmp_path / "tokens")
    assert done.returncode == 0, done.stderr
    documents = []
    for vocabulary in (257, 300):
        done = trainer("--recipe", RECIPE, *SMALL, *of(tmp_path / "tokens", data__vocabulary=vocabulary,
                                                       data__packing="padded"), "--dry-run")
        assert done.returncode == 0, done.stderr
        documents.append(re.search(r"([\d,]+) training", done.stderr)[1])
    assert documents[0] == documents[1]


def test_the_gpt2_recipe(tmp_path):
    ids = (np.arange(3000) % 50257).astype(np.uint16)
    ids.tofile(tmp_path / "ids.bin")
    done = trainer("--recipe", SOURCE / "recipes" / "gpt2.toml", "--devices", "cpu", "--output",
                   tmp_path / "run", *sets(
        model__name="gpt", model__layers=1, model__width=32, data__length=32, batch__global=4,
        batch__micro=2, train__steps=2, precision__mode="fp32", telemetry__every_steps=1,
        data__train__path=str(tmp_path / "ids.bin"), data__eval__path=str(tmp_path / "ids.bin"),
        schedule__warmup=0))
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "run")) == 2


def test_a_run_on_made_up_tokens(tmp_path):
    run = train(tmp_path / "run", *sets(data__kind="synthetic_tokens", data__samples=64,
                                        data__documents=True, data__eval_samples=16,
                                        train__steps=30, optimizer__learning_rate=0.01))
    assert losses(run)[-1] < losses(run)[0] - 1


def test_bench_and_proof_make_up_tokens(run, tmp_path):
    done = trainer("bench", "--recipe", RECIPE, *SMALL[:8], "--devices", "cpu", "--repeats", 1,
                   "--steps", 4, "--data", "synthetic", "--out", tmp_path / "F.json")
    assert done.returncode == 0, done.stderr
    variant = json.loads((tmp_path / "F.json").read_text())["variants"][0]
    assert 'kind = "synthetic_tokens"' in variant["recipe"] and "vocabulary = 257" in variant["recipe"]
    done = trainer("doctor", run, "--prove", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["proof"]["ceiling_per_s"] > 0


def test_predict_names_the_likeliest_classes(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    digits = SOURCE / "recipes" / "digits.toml"
    run = tmp_path / "run"
    done = trainer("--recipe", digits, "--devices", "cpu", "--output", run, *sets(
        train__epochs=8, run__seed=1, schedule__warmup=0))
    assert done.returncode == 0, done.stderr
    pixels = np.frombuffer(gzip.decompress(
        (SOURCE / "recipes/data/digits/test-images.idx.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress(
        (SOURCE / "recipes/data/digits/test-labels.idx.gz").read_bytes())[8:], np.uint8)
    files = []
    for number, digit in enumerate(pixels.reshape(-1, 8, 8)[:20]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(digit).save(files[-1])
    lines = [json.loads(line) for line in predict("--run", run, "--json", "--batch", 7,
                                                  *files).splitlines()]
    assert [line["input"] for line in lines] == [str(file) for file in files]
    for line in lines:
        shown = [entry["probability"] for entry in line["classes"]]
        assert len(shown) == 5 and shown == sorted(shown, reverse=True) and sum(shown) <= 1.0001
    hits = sum(int(line["classes"][0]["name"]) == label for line, label in zip(lines, labels))
    assert hits >= 15
    text = predict("--run", run, "--top", 1, files[0])
    assert text.startswith(f"{files[0]}:  ") and text.rstrip().endswith("%")
    (tmp_path / "bad.png").write_bytes(files[0].read_bytes()[:60])
    done = trainer("predict", "--devices", "cpu", "--run", run, files[0], tmp_path / "bad.png")
    assert done.returncode == 3 and "skipped: " + str(tmp_path / "bad.png") in done.stderr, done.stderr
    assert "error[data]: 1 of 2 files could not be read: " + str(tmp_path / "bad.png") in done.stderr
    assert done.stdout.startswith(f"{files[0]}:  ") and len(done.stdout.splitlines()) == 1
    done = trainer("predict", "--devices", "cpu", "--run", run)
    assert done.returncode == 2 and "no image files given" in done.stderr
    done = trainer("predict", "--devices", "cpu", "--recipe", digits, files[0])
    assert done.returncode == 2 and "nothing to predict with" in done.stderr
    done = trainer("predict", "--devices", "cpu", "--run", run, files[0], "--set",
                   "device.memory_gib=0.0001")
    assert done.returncode == 5, done.stderr


def test_what_it_writes_and_tokens_a_second_are_recorded(run):
    lines = metrics(run)
    written = [line["text"] for line in lines if "text" in line]
    assert len(written) >= 2 and all(text.startswith("The trainer ") for text in written)
    step = next(line for line in lines if "tokens_per_s" in line)
    assert step["tokens_per_s"] == pytest.approx(64 * step["samples_per_s"])


def test_an_evaluation_that_is_not_finite_ends_no_run(tmp_path):
    done = trainer("--recipe", RECIPE, *SMALL, "--devices", "cpu", "--output", tmp_path / "run",
                   *sets(train__steps=1, schedule__warmup=0, optimizer__learning_rate=1e30))
    assert done.returncode == 0, done.stderr
    assert not any("eval_loss" in line and line["eval_loss"] for line in metrics(tmp_path / "run"))
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()
    assert not (tmp_path / "run" / "checkpoints" / "best").exists()
    for words in (["--json"], ["--temperature", 0]):
        done = trainer("predict", "--devices", "cpu", tmp_path / "run", "--prompt", "to", *words)
        assert done.returncode == 7 and done.stdout == "", done.stdout
        assert re.search(r"error\[numeric\]: \S+/step-0*1: expected finite logits, found NaN", done.stderr), done.stderr
