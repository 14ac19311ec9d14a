"""trainer data tokenize: text becomes token files that numpy and Brim's dataset read."""
import gzip
import json
import os
import pathlib
import random
import subprocess
import tomllib

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from trainer import LIMIT_S, SOURCE, trainer

DATA_TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "data_tool"
END = "<|endoftext|>"


def tokenized(output, *words):
    done = trainer("data", "tokenize", *words, "--output", output, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    description = json.loads((output / "tokens.json").read_text())
    ids = {}
    for name in "train", "eval":
        assert (name in report) == (name in description) == (output / f"{name}.bin").exists()
        if name in report:
            dtype = np.dtype(report["type"]).newbyteorder("<")
            ids[name] = np.fromfile(output / f"{name}.bin", dtype=dtype)
            assert len(ids[name]) == report[name]["tokens"] == description[name]["tokens"]
            assert (ids[name] == description["end_of_document"]).sum() == report[name]["documents"]
            assert ids[name].max() < description["vocabulary"] == report["vocabulary"]
    return ids, description


def refused(status, *words, cwd=None):
    done = trainer("data", "tokenize", *words, cwd=cwd)
    assert done.returncode == status, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Files as GPT-2's, and the package's tokenizer for them."""
    package = Tokenizer(models.BPE())
    package.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    package.train_from_iterator([(SOURCE / "README.md").read_text()], trainers.BpeTrainer(
        vocab_size=1000, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder = tmp_path_factory.mktemp("vocabulary")
    package.model.save(str(folder))
    return package, ["--tokenizer", "gpt2", "--vocab", folder / "vocab.json", "--merges", folder / "merges.txt"]


def long_text():
    """A few MB: several pieces."""
    source = random.Random(0)
    words = "the model's  loss\n\n\n falls to 12.5 — 中文 😀 é\t\t".split(" ")
    return "".join(source.choice(words) + source.choice([" ", "\n", "  "]) for _ in range(400_000))


def test_bytes_and_the_dataset(tmp_path):
    text = (SOURCE / "README.md").read_bytes()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("zwei\n".encode()))
    ids, description = tokenized(tmp_path / "out", tmp_path / "a.txt", tmp_path / "b.txt.gz",
                                 "--tokenizer", "bytes")
    assert ids["train"].tolist() == [*text, 256, *b"zwei\n", 256]
    assert (description["type"], description["vocabulary"]) == ("uint16", 257)
    rows = tmp_path / "rows"
    subprocess.run([DATA_TOOL, "tokens", tmp_path / "out" / "train.bin", "uint16", "257", "64", "stream", rows],
                   check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
    found = np.fromfile(rows, dtype="<i4").reshape(-1, 65)
    assert (found[:, :64].ravel() == ids["train"][:len(found) * 64]).all() and len(found) > 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt.gz", "out", "rows"]


def test_gpt2_as_the_package(tmp_path, vocabulary):
    package, words = vocabulary
    text = long_text()
    (tmp_path / "long.txt").write_text(text)
    documents = [json.dumps({"id": 1, "text": part}) for part in ["one\n", "", "It's < two " + END]]
    (tmp_path / "lines.jsonl").write_text("\n".join(documents) + "\n\n")
    plain = Tokenizer(package.model)
    plain.pre_tokenizer = package.pre_tokenizer
    expected = []
    for part in text, "one\n", "It's < two " + END:
        expected += plain.encode(part).ids + [0]
    outputs = []
    for threads in 1, 3:
        ids, description = tokenized(tmp_path / f"out{threads}", tmp_path / "long.txt", tmp_path / "lines.jsonl",
                                     *words, "--threads", threads)
        outputs.append((tmp_path / f"out{threads}" / "train.bin").read_bytes())
        assert ids["train"].tolist() == expected
        assert description["end_of_document"] == 0 and description["train"]["documents"] == 3
    assert outputs[0] == outputs[1]
    for option, name in zip(words[3::2], ["vocab.json", "merges.txt"]):
        assert (tmp_path / "out1" / name).read_bytes() == option.read_bytes()


@pytest.mark.parametrize("writes", ["the package", "transformers", "an older package"])
def test_a_tokenizer_json_is_both_files(tmp_path, vocabulary, writes):
    package = Tokenizer.from_str(vocabulary[0].to_str())
    package.add_special_tokens(["<pad>"])  # has no id in vocab.json
    package.save(str(tmp_path / "tokenizer.json"))
    if writes == "transformers":
        transformers.GPT2TokenizerFast(tokenizer_object=package).save_pretrained(tmp_path)
    if writes == "an older package":  # before 0.20
        content = json.loads((tmp_path / "tokenizer.json").read_text())
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        del content["model"]["type"], content["model"]["ignore_merges"], content["pre_tokenizer"]["use_regex"]
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "t.txt").write_text(long_text()[:100_000])
    ids, description = tokenized(tmp_path / "out", tmp_path / "t.txt", "--tokenizer", "gpt2", "--vocab",
                                 tmp_path / "tokenizer.json")
    assert ids["train"].tolist() == [*package.encode((tmp_path / "t.txt").read_text()).ids, 0]
    assert description["vocabulary"] == package.get_vocab_size()
    # The folder has them in two.
    again, _ = tokenized(tmp_path / "again", tmp_path / "t.txt", "--tokenizer", "gpt2", "--vocab",
                         tmp_path / "out/vocab.json", "--merges", tmp_path / "out/merges.txt")
    assert again["train"].tolist() == ids["train"].tolist()


def test_other_kinds_of_tokenizer_json_are_refused(tmp_path, vocabulary):
    (tmp_path / "t.txt").write_text("text")
    content = json.loads(vocabulary[0].to_str())

    def message(**changes):
        (tmp_path / "t.json").write_text(json.dumps({**content, **changes}))
        return refused(3, tmp_path / "t.txt", "--tokenizer", "gpt2", "--vocab", tmp_path / "t.json", "--output",
                       tmp_path / "out")

    assert '/normalizer is null, found an object' in message(normalizer={"type": "NFC"})
    assert '/pre_tokenizer/type is "ByteLevel", found "Whitespace"' in message(pre_tokenizer={"type": "Whitespace"})
    assert "/pre_tokenizer/add_prefix_space is false, found true" in message(
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True})
    model = content["model"]
    assert "expected pairs of tokens without spaces, found" in message(model={**model, "merges": ["ab"]})
    assert "expected pairs of tokens without spaces, found" in message(model={**model, "merges": [["a", "b\n"]]})
    assert "with no end_of_word_suffix" in message(model={**model, "end_of_word_suffix": "</w>"})
    assert "expected a tokenizer.json" in message(model={**model, "vocab": [1]})
    assert "/added_tokens: expected each token's content and its id" in message(added_tokens=[{"content": "a", "id": 0}])
    assert "expected the ids 0 to" in message(added_tokens=[{"content": "new", "id": 7, "special": True}])
    assert 'found the added token "new", which is looked for in the text first' in message(
        added_tokens=[{"content": "new", "id": 1000, "special": False}])


def test_characters_and_the_evaluation_part(tmp_path):
    text = "".join(f"Zeile {i} — é中😀\n" for i in range(1000))
    (tmp_path / "t.txt").write_text(text)
    ids, description = tokenized(tmp_path / "out", tmp_path / "t.txt", "--tokenizer", "chars",
                                 "--eval-fraction", "0.1")
    symbols = json.loads((tmp_path / "out" / "vocab.json").read_text())
    assert list(symbols) == sorted(set(text)) + [END] and list(symbols.values()) == list(range(len(symbols)))
    by_id = {number: symbol for symbol, number in symbols.items()}
    train, evaluation = ("".join(by_id[i] for i in ids[name].tolist()) for name in ("train", "eval"))
    assert train.endswith("\n" + END) and train.count(END) == evaluation.count(END) == 1
    assert (train + evaluation).replace(END, "") == text
    assert 0.09 < len(evaluation.encode()) / len(text.encode()) < 0.11
    # The same characters for another text, and one that they lack.
    words = ["--tokenizer", "chars", "--vocab", tmp_path / "out" / "vocab.json"]
    (tmp_path / "u.txt").write_text("é1")
    again, _ = tokenized(tmp_path / "again", tmp_path / "u.txt", *words)
    assert again["train"].tolist() == [symbols["é"], symbols["1"], symbols[END]]
    (tmp_path / "u.txt").write_text("x?")
    assert "is not in the vocabulary" in refused(3, tmp_path / "u.txt", *words, "--output", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["d.jsonl", "D.JSONL"])
def test_documents_are_whole_in_one_part(tmp_path, name):
    lines = [json.dumps({"text": str(i) * 50}) for i in range(200)]
    (tmp_path / name).write_text("\n".join(lines))
    ids, _ = tokenized(tmp_path / "out", tmp_path / name, "--tokenizer", "bytes", "--eval-fraction", "0.25")
    parts = [bytes(part) for name in ("train", "eval")
             for part in "".join(chr(i) if i < 256 else "\0" for i in ids[name]).encode().split(b"\0")[:-1]]
    assert parts == [str(i).encode() * 50 for i in range(200)]
    assert 140 < (ids["train"] == 256).sum() < 160


@pytest.mark.parametrize("which", ["bytes", "gpt2"])
def test_the_section_that_is_printed_reads_the_tokens(tmp_path, vocabulary, which):
    (tmp_path / "text.txt").write_text("To be, or not to be. " * 200)
    words = ["--tokenizer", "bytes"] if which == "bytes" else vocabulary[1]
    done = trainer("data", "tokenize", tmp_path / "text.txt", *words, "--output", tmp_path / "tokens")
    assert done.returncode == 0, done.stderr
    section = done.stdout[done.stdout.index("[data]"):]
    description = json.loads((tmp_path / "tokens/tokens.json").read_text())
    found = tomllib.loads(section)["data"]
    assert found["vocabulary"] == description["vocabulary"] and found["train"]["path"] == f"{tmp_path}/tokens/train.bin"
    assert "end_of_document" not in found  # tokens.json says it


def test_wrong_inputs(tmp_path, vocabulary):
    _, gpt2 = vocabulary
    good = tmp_path / "good.txt"
    good.write_text("hello\n")
    to = ["--output", tmp_path / "out"]
    plain = ["--tokenizer", "bytes", *to]

    def message(name, content, words=plain):
        (tmp_path / name).write_bytes(content)
        return refused(3, tmp_path / name, *words)

    assert "cannot open: No such file" in refused(3, tmp_path / "none.txt", *plain)
    assert "found a folder" in refused(3, tmp_path, *plain)
    assert "found none; are the inputs empty?" in message("empty.txt", b"")
    assert "bad.txt: expected UTF-8, found the byte 0xFF at byte 300003" in message("bad.txt", b"x" * 300003 + b"\xffx")
    assert "cut.txt: expected UTF-8, found the byte 0xE4 at byte 2" in message("cut.txt", b"ab\xe4\xb8")
    assert "the file is cut" in message("g.txt.gz", gzip.compress(os.urandom(4000).hex().encode())[:-500])
    assert "a.jsonl:2: expected a JSON object with a string" in message("a.jsonl", b'{"text": "a"}\n{"t": 1}\n')
    assert "b.jsonl:3: not valid JSON" in message("b.jsonl", b'{"text": "a"}\n\n{"text": \n')
    long_line = message("long.jsonl", b'{"text": "' + b"x" * (65 << 20))
    assert "long.jsonl:1: expected lines of at most 67108864 bytes, found a longer one" in long_line
    assert "expected text for evaluation, found none" in message("one.txt", b"no line", [*plain, "--eval-fraction", "0.5"])
    vocabulary_bytes = gpt2[3].read_bytes()
    (tmp_path / "half.json").write_bytes(vocabulary_bytes[: len(vocabulary_bytes) // 2])
    assert "half.json: not valid JSON" in refused(3, good, *gpt2[:3], tmp_path / "half.json", *gpt2[4:], *to)
    (tmp_path / "deep.json").write_bytes(b'{"a":' * 100_000)
    assert "deep.json: expected the id of the token" in refused(3, good, *gpt2[:3], tmp_path / "deep.json", *gpt2[4:], *to)
    assert "cannot open" in refused(3, good, *gpt2[:3], tmp_path / "none.json", *gpt2[4:], *to)
    assert not list(tmp_path.glob("out*"))

    assert "no text files given" in refused(2, *plain)
    assert "--tokenizer is missing" in refused(2, good, *to)
    assert "--output is missing" in refused(2, good, "--tokenizer", "bytes")
    assert "expected the tokenizer bytes, chars or gpt2, found 'gpt3'" in refused(2, good, "--tokenizer", "gpt3", *to)
    assert "needs a vocabulary file" in refused(2, good, "--tokenizer", "gpt2", *to)
    without_merges = refused(3, good, *gpt2[:4], *to)
    assert "vocab.json: expected a tokenizer.json, with a vocabulary and merges; for a vocab.json, give" in without_merges
    assert "takes no vocabulary file" in refused(2, good, *plain, "--vocab", good)
    assert "--eval-fraction: expected a number from 0" in refused(2, good, *plain, "--eval-fraction", "1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    assert "out: is already there" in refused(2, good, *plain)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_bytes_of_a_text_that_is_cut_within_a_character(tmp_path):
    (tmp_path / "t.txt").write_text("中" * 400_000)  # 1 MiB is no multiple of its 3 bytes
    ids, _ = tokenized(tmp_path / "o", tmp_path / "t.txt", "--tokenizer", "bytes")
    assert bytes(ids["train"][:-1].astype(np.uint8)).decode() == "中" * 400_000


def test_an_empty_folder_is_written_to_unless_it_is_the_current_one(tmp_path):
    (tmp_path / "t.txt").write_text("text")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    tokenized(tmp_path / "link", tmp_path / "t.txt", "--tokenizer", "bytes")
    assert (tmp_path / "real" / "train.bin").exists() and (tmp_path / "link").is_symlink()
    (tmp_path / "here").mkdir()
    words = refused(2, tmp_path / "t.txt", "--tokenizer", "bytes", "--output", ".", cwd=tmp_path / "here")
    assert "can't be replaced (it is the current folder)" in words
