"""Makes a Python wheel of a folder that scripts/package made: programs that find LibTorch in the installed torch.

usage: make_wheel.py PACKAGE OUTPUT VERSION GLIBC       (as 0.2.0 2.35; prints the wheel's path)
"""
import base64
import hashlib
import pathlib
import sys
import zipfile

STARTERS = '''"""The wheel's console scripts: each replaces itself by the program of its name."""
import os
import pathlib
import sys


def _run(name):
    program = pathlib.Path(__file__).parent / "bin" / name
    os.execv(program, [str(program), *sys.argv[1:]])


def trainer():
    _run("trainer")


def trainrun():
    _run("trainrun")
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
