"""GPT-2's tokenizer against the package tokenizers: the same ids for the same vocabulary files, which
the package trains here, on thousands of texts."""
import functools
import json
import os
import pathlib
import random
import struct
import subprocess
import unicodedata

import pytest
import regex
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "text_tool"
LIMIT_S = 600  # only to catch a hang
# The pattern of GPT-2's encoder.py, for what the package can't be given: bytes that aren't UTF-8.
PATTERN = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

CHUNKS = [
    "hello", " world", "the ", "It's", "we'll've", "'d'm't're", "''s", "'", "'S", " '", "n't",
    " ", "  ", "   \t", "\n", "\n\n\n", " \n ", "\r\n", "\u00a0", "\u3000", "\u2003\u2009", "\u0085",
    "\u200b", "\u200d", "\ufeff", "0", "12345", "\u00bd", "\u2167", "\u0663\u0664", "\U0001d7d8",
    "é", "e\u0301", "ñandú", "Ångström", "ß", "ﬁ", "中文字符", "日本語テキスト", "한국어", "ไทย", "العربية",
    "हिन्दी", "\u0301\u0302", "😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "…", "—", "<|endoftext|>", "!?", "{}[]()",
    "http://a.b/c?d=e", "\x00", "\x7f", "\u0378", "\ue000", "\U0010ffff", "aaaaaaaaaaaa", "ababab",
]


def texts(seed, count):
    source = random.Random(seed)
    for number in range(count):
        parts = []
        for _ in range(source.randrange(0, 30)):
            kind = source.random()
            if kind < 0.6:
                parts.append(source.choice(CHUNKS))
            elif kind < 0.7:
                parts.append(source.choice(" \n\t\u3000x1.") * source.randrange(1, 200))
            elif kind < 0.85:
                parts.append("".join(chr(source.randrange(0x20, 0x250)) for _ in range(8)))
            else:
                points = (source.randrange(0x110000) for _ in range(5))
                parts.append("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
        yield "".join(parts)


def corpus():
    """What the vocabulary is trained on: our own text, and the texts that are compared."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        yield path.read_text()
    yield from texts(0, 300)


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """The package's tokenizer, and the files it wrote."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=3000, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder = tmp_path_factory.mktemp("vocabulary")
    tokenizer.model.save(str(folder))
    # Without the special token, which our encoder takes as text like any other.
    plain = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    plain.pre_tokenizer = tokenizer.pre_tokenizer
    assert plain.get_vocab_size() == 3000
    return plain, folder


def answers(command, inputs=()):
    framed = b"".join(struct.pack("<I", len(text)) + text for text in inputs)
    done = subprocess.run([TOOL, *command], input=framed, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr.decode()
    result, at = [], 0
    while at < len(done.stdout):
        count, = struct.unpack_from("<I", done.stdout, at)
        result.append(list(struct.unpack_from(f"<{count}i", done.stdout, at + 4)))
        at += 4 + 4 * count
    return result


def encode(folder, inputs):
    return answers(["encode", folder / "vocab.json", folder / "merges.txt"], inputs)


def assert_same(folder, inputs, expected):
    found = encode(folder, inputs)
    assert len(found) == len(inputs)
    for text, ours, theirs in zip(inputs, found, expected):
        assert ours == theirs, text


def test_same_ids(peer):
    package, folder = peer
    inputs = [*texts(1, 6000), *corpus()]
    expected = [encoding.ids for encoding in package.encode_batch(inputs)]
    assert max(max(ids, default=0) for ids in expected) > 2900  # merges of all ranks are used
    assert_same(folder, [text.encode() for text in inputs], expected)


def test_each_code_point_has_its_class():
    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    found, = answers(["classes"])
    for point in range(0x110000):
        if 0xD800 <= point < 0xE000:
            continue
        text = chr(point)
        if len(split(f".{text}.")) == 1:  # as most are
            expected = 0
        elif len(split(f"a{text}a")) == 1:
            expected = 1
        else:
            expected = 2 if len(split(f"1{text}1")) == 1 else 3
        assert found[point] == expected, hex(point)


def merged(word, ids, ranks):
    """Byte-level BPE by its definition: always the pair of the lowest rank, the leftmost first."""
    names = {byte: name for byte, name in enumerate(byte_names())}
    parts = [names[byte] for byte in word]
    while len(parts) > 1:
        rank, at = min((ranks.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:])))
        if rank == 1 << 30:
            break
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return [ids[part] for part in parts]


def byte_names():
    hidden = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            yield chr(byte)
        else:
            yield chr(256 + hidden)
            hidden += 1


def test_bytes_that_are_not_utf8(peer):
    _, folder = peer
    source = random.Random(2)
    inputs = []
    for text in texts(3, 1500):
        data = bytearray("".join(c for c in text if unicodedata.category(c) != "Cn").encode())
        for _ in range(source.randrange(1, 6)):
            if data and source.random() < 0.5:
                del data[source.randrange(len(data))]
            else:
                data.insert(source.randrange(len(data) + 1), source.randrange(256))
        # Deleting bytes makes other characters, which `regex`, of a later Unicode, may know better.
        if "Cn" not in {unicodedata.category(c) for c in data.decode(errors="surrogateescape")}:
            inputs.append(bytes(data))
    assert len(inputs) > 1000
    ids = json.loads((folder / "vocab.json").read_text())
    lines = (folder / "merges.txt").read_text().splitlines()[1:]
    ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(lines)}
    ids_of = functools.cache(lambda word: merged(word, ids, ranks))
    expected = []
    for data in inputs:
        words = PATTERN.findall(data.decode(errors="surrogateescape"))
        expected.append([i for word in words for i in ids_of(word.encode(errors="surrogateescape"))])
    assert_same(folder, inputs, expected)
