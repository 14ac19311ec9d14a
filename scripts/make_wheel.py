"""Makes a Python wheel of a folder that scripts/package made: programs that find LibTorch in the installed torch.

usage: make_wheel.py PACKAGE OUTPUT VERSION GLIBC       (as 0.2.0 2.35; prints the wheel's path)
"""
import base64
import hashlib
import pathlib
import sys
import zipfile

STARTERS = '''"""The wheel's console scripts: each replaces itself by the program of its name."""
import importlib.util
import os
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent
BESIDE = PACKAGE.parent / "torch"  # the programs' run path leads there, before any folder of a variable


def _libtorch():
    """The folder of $BRIM_LIBTORCH, or of this Python's torch, which is not imported; None: there is none."""
    if given := os.environ.get("BRIM_LIBTORCH"):
        return pathlib.Path(given).absolute()
    spec = importlib.util.find_spec("torch")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return pathlib.Path(folders[0]) if folders else None


def _problem(libtorch):
    """Why the programs can't run with it; None where they can."""
    if libtorch is None or not (libtorch / "lib/libtorch_cpu.so").exists():
        return (f"LibTorch 2.11 was not found: {libtorch or 'this Python has no torch'}. Set BRIM_LIBTORCH to its "
                "folder, the one that holds lib/libtorch_cpu.so")
    header = libtorch / "include/torch/headeronly/version.h"
    if not header.exists() or "TORCH_VERSION_MINOR 11\\n" not in header.read_text():
        return f"Brim was built for LibTorch 2.11; {libtorch} is another version"
    return None


def _run(name, needs_libtorch):
    is_beside = (BESIDE / "lib/libtorch_cpu.so").exists()
    libtorch = BESIDE if is_beside else _libtorch()
    problem = _problem(libtorch)
    if problem and needs_libtorch:
        print(f"error[resource]: {problem}", file=sys.stderr)
        sys.exit(5)
    if is_beside and os.environ.get("BRIM_LIBTORCH"):
        print(f"warning: BRIM_LIBTORCH has no effect: the wheel takes {BESIDE}, installed beside it", file=sys.stderr)
    if not problem and not is_beside:
        folders = [libtorch / "lib", *sorted(libtorch.parent.glob("nvidia/*/lib"))]
        former = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *([former] if former else [])])
    program = str(PACKAGE / "bin" / name)
    os.execv(program, [program, *sys.argv[1:]])


def trainer():
    _run("trainer", needs_libtorch=True)


def trainrun():
    _run("trainrun", needs_libtorch=False)  # but the trainer that it starts may
'''
METADATA = """Metadata-Version: 2.4
Name: brim
Version: {version}
Summary: Mixed-precision training in C++ that fills the memory and says where the time goes
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.10
Requires-Dist: torch==2.11.0
Description-Content-Type: text/plain

Programs `trainer` and `trainrun`: `trainer train digits` trains a small network. No Python runs while it trains.
"""
WHEEL = """Wheel-Version: 1.0
Generator: brim
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
ENTRY_POINTS = """[console_scripts]
trainer = brim:trainer
trainrun = brim:trainrun
"""
LEFT_OUT = {"libexec", "bin"}  # where a wrapper starts them; the wheel has the programs themselves in bin


def contents(package, version, platform):
    """(name in the wheel, bytes, is executable), the metadata last."""
    for path in sorted(package.rglob("*")):
        place = path.relative_to(package)
        if path.is_file() and place.parts[0] not in LEFT_OUT and place.name != "LICENSE":
            yield f"brim/{place}", path.read_bytes(), False
    yield "brim/bin/trainer", (package / "libexec/trainer").read_bytes(), True
    yield "brim/bin/trainrun", (package / "bin/trainrun").read_bytes(), True
    yield "brim/__init__.py", STARTERS.encode(), False
    info = f"brim-{version}.dist-info"
    yield f"{info}/licenses/LICENSE", (package / "LICENSE").read_bytes(), False
    yield f"{info}/METADATA", METADATA.format(version=version).encode(), False
    yield f"{info}/WHEEL", WHEEL.format(platform=platform).encode(), False
    yield f"{info}/entry_points.txt", ENTRY_POINTS.encode(), False


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    package, output, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    platform = f"manylinux_{sys.argv[4].replace('.', '_')}_x86_64"
    wheel = output / f"brim-{version}-py3-none-{platform}.whl"
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, content, is_executable=False):
            entry = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))  # the same bytes from the same build
            entry.external_attr = (0o100755 if is_executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)

        for name, content, is_executable in contents(package, version, platform):
            add(name, content, is_executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
        name = f"brim-{version}.dist-info/RECORD"
        add(name, "\n".join([*record, f"{name},,", ""]).encode())
    print(wheel)


main()
