"""Writes small files for the fuzzers to start from: seeds.py FOLDER makes FOLDER/fuzz_NAME/…"""
import gzip
import io
import json
import pathlib
import struct
import sys
import tarfile

from PIL import Image


def safetensors():
    def file(header, values=b""):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + values

    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    yield file({})
    yield file({"a": entry("F32", [2], 0, 8)}, b"12345678")
    yield file({"__metadata__": {"k": "v"}, "a": entry("BF16", [], 0, 2)}, b"12")
    yield file({"b": entry("U8", [0, 4], 0, 0), "a": entry("I64", [1], 0, 8)}, b"12345678")


def manifest():
    for names in [], ["model.safetensors", "state.json"]:
        files = [{"name": name, "size": 7, "xxh3_128": "0123456789abcdef" * 2} for name in names]
        yield json.dumps({"format": 1, "step": 9, "sequence": 2, "files": files}).encode()


def metrics_line():
    yield b'{"step":10,"loss":0.5,"scale":null,"phases_s":{"forward":1e-3},"a":[1,"x"],"b":true}'
    yield b'{"step":-0,"loss":1.5E+10,"text":"a\\"b"}'


def bench():
    run = {"samples_per_s": 1.5e3, "step_s": [0.1, 0.2]}
    variant = {"name": "a", "recipe": "[run]\n", "steps": 2, "runs": [run, run]}
    file = {"format": "brim bench 1", "started": "now", "repeats": 2, "environment": {"x": [1, {}]},
            "variants": [variant, {**variant, "name": "b"}]}
    yield json.dumps(file).encode()
    yield json.dumps({**file, "variants": [variant]}).encode()


def step_profile():
    phases = dict.fromkeys(["data_wait", "copy", "transform", "forward", "backward", "communication", "optimizer",
                            "checkpoint", "evaluation", "other"], 0.01)
    calls = {"module": "fc", "phase": "forward", "calls": 2, "self_s": 0.1, "flops": 1e9, "bytes": 1e6}
    operators = [
        {**calls, "operator": "aten::addmm", "inputs": [["bf16", [9]], ["bf16", [8, 9]], ["bf16", [9, 9]]]},
        {**calls, "operator": "aten::convolution", "inputs": [["bf16", [8, 9, 4, 4]], ["bf16", [9, 1, 3, 3]]]},
        {**calls, "operator": "aten::copy_", "inputs": [["fp32", [8]], ["bf16", [8]]]},
        {**calls, "operator": "aten::embedding", "inputs": [["fp32", [97, 8]], ["int64", [2, 2]]]},
        {**calls, "operator": "aten::embedding_dense_backward", "phase": "backward", "inputs": []},
        {**calls, "operator": "aten::_log_softmax", "module": "loss", "inputs": [["fp32", [8, 97]]]}]
    for device in "cpu", "cuda:0":
        yield json.dumps({
            "recipe": "a", "device": device, "precision": "bf16", "fused": "auto", "steps": 2, "micro_batch": 8,
            "global_batch": 8, "wall_s": 1, "phases_s": phases, "profiler_s": phases, "operators": operators,
            "peaks": {"flops_per_s": {"bf16": 1e12, "fp32": 1e11}, "bytes_per_s": 1e10, "call_s": 1e-6},
            "forms": [{"operation": "layer norm", "fused_s": 1, "plain_s": 2, "is_fused": True}]}).encode()


def site():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/how-to/site-rules.md").read_text()
    yield page.split('```toml title="site.toml"\n')[1].split("```")[0].encode()


def recipe():
    root = pathlib.Path(__file__).resolve().parents[2]
    for path in sorted(root.glob("recipes/*.toml")):
        yield path.read_bytes()
    yield b'[a]\nb = 1\nc = [1.5, "x"]\n[a.d]\ne = true\n'


def vary():
    yield b"a.real=1e-3..1e-1:log\na.whole=16,32,64"
    yield b"a.real=-1..0.5:5\na.word=\"x,y\",[1,2]\nb.c=1..9:log:3"
    yield b"a.whole=-5..999999999999999\na.real=1e-300..1.7e308:log"


def idx():
    images = bytes([0, 0, 8, 3]) + struct.pack(">III", 2, 2, 3) + bytes(12)
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 5) + bytes(5)
    for plain in images, labels:
        yield plain
        yield gzip.compress(plain)


def image():
    for mode, kind, options in [
            ("RGB", "JPEG", {}), ("L", "JPEG", {}), ("CMYK", "JPEG", {}),
            ("RGB", "JPEG", {"progressive": True, "subsampling": 0}),
            ("RGB", "JPEG", {"restart_marker_blocks": 1}), ("RGB", "PNG", {}), ("L", "PNG", {}),
            ("RGBA", "PNG", {}), ("P", "PNG", {}), ("1", "PNG", {}), ("I;16", "PNG", {})]:
        buffer = io.BytesIO()
        Image.linear_gradient("L").resize((20, 12)).convert(mode).save(buffer, kind, **options)
        yield buffer.getvalue()


def tar():
    for form in tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
            for name, content in [("a.jpg", b"A"), ("a.cls", b"3"), ("d/" * 60 + "b.png", b"B"),
                                  ("d/" * 60 + "b.cls", b"12\n"), ("e/" + "n" * 90, b"")]:
                info = tarfile.TarInfo(name)
                info.size, info.mtime = len(content), 1.5
                archive.addfile(info, io.BytesIO(content))
            for kind in tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE:
                info = tarfile.TarInfo("x")
                info.type, info.linkname = kind, "y" * (90 if form == tarfile.USTAR_FORMAT else 200)
                archive.addfile(info)
        used = buffer.getvalue().rstrip(b"\0")
        yield used + bytes(-len(used) % 512 + 1024)


def shard_index():
    for samples in [], [(512, 10, 3)], [(512, 10, 3), (2048, 100, 0)]:
        head = struct.pack("<qqQQ", 9999, 7, len(samples), 5 * len(samples))
        body = b"".join(struct.pack("<QII", *sample) for sample in samples)
        ends = b"".join(struct.pack("<I", 5 * (i + 1)) for i in range(len(samples)))
        yield head + body + ends + b"x.jpg" * len(samples)


def cifar():
    for version, labels in enumerate([b"\3", b"\3\0", b"\3\x63"]):
        yield bytes([version]) + 2 * (labels + bytes(3072))


def tokens():
    ids = [1, 2, 3, 50, 4, 5, 50, 50, 6, 7, 8, 9, 10, 11, 12]  # 50 ends a document
    for kind, code in enumerate(["<15H", "<15I"]):
        for packing in range(3):
            yield bytes([kind, packing, 3, 1, 0, 50]) + struct.pack(code, *ids)


def http_request():
    for head in ["GET /metrics HTTP/1.1\r\nHost: x:9400\r\nAccept: */*\r\n\r\n", "HEAD / HTTP/1.0\n\n",
                 "GET /metrics?name[]=x HTTP/1.1\r\n\r\nbody", "GET /?a HTTP/1.1\nhost:\t[::1]:8000 \n\n", "GET /metrics", "GET  HTTP/1.1\r\n\r\n",
                 "POST /metrics HTTP/2\r\na: b\r\n\r\n"]:
        yield head.encode()


def vocabulary():
    hidden = iter(range(256, 512))
    tokens = [chr(byte) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174 else chr(next(hidden))
              for byte in range(256)] + ["he", "Ġhe", "<|endoftext|>"]
    merges = "#version: 0.2\nh e\nĠ he\n"
    ids = {token: number for number, token in enumerate(tokens)}
    yield json.dumps(ids, ensure_ascii=False).encode() + b"\0" + merges.encode()
    yield json.dumps({"a": 1, "é": 0, "<|endoftext|>": 2}).encode()
    yield json.dumps({"added_tokens": [{"id": len(ids), "content": "<pad>", "special": True}], "normalizer": None,
                      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                      "model": {"type": "BPE", "vocab": ids, "merges": [["h", "e"], "Ġ he"]}}).encode()


def encode():
    yield "Hello world's  12 dogs, 'tis!\n\n é中\u3000 aaaa😀".encode() + b"\xff\xe4\xb8"


def weight_index():
    files = {"a.weight": "m-00001-of-00002.safetensors", "b.bias": "m-00002-of-00002.safetensors"}
    yield json.dumps({"metadata": {"total_size": 12}, "weight_map": files}).encode()
    yield json.dumps({"weight_map": {"a": "../m.safetensors"}}).encode()


def main():
    for kind in (bench, safetensors, manifest, metrics_line, recipe, site, idx, image, cifar, shard_index, tar,
                 tokens, vocabulary, encode, http_request, weight_index, step_profile, vary):
        folder = pathlib.Path(sys.argv[1]) / f"fuzz_{kind.__name__}"
        folder.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(kind()):
            (folder / f"seed-{number}").write_bytes(content)


if __name__ == "__main__":
    main()
