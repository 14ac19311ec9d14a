#!/usr/bin/env python3
"""Lets Python import PyTorch's CUDA wheel on a machine without CUDA's libraries.

    stub_cuda.py TORCH_FOLDER

libtorch_python.so is linked to libtorch_cuda.so, and that to 4 GB of libraries of which a CPU calls
nothing. One small library with the names of their functions takes the place of those that are
missing; each returns 35, cudaErrorInsufficientDriver. It lies in TORCH_FOLDER/lib, which the
wheel's run path names last: the real ones win as soon as they are installed.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

STUB = "libbrim_no_cuda.so"
C_FUNCTION = re.compile(r"(cu|nccl|nvshmem)[A-Za-z0-9_]+")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(torch):
    folder = torch / "lib"
    libraries = sorted(folder.glob("lib*torch*.so")) + sorted(folder.glob("lib*c10*.so"))
    needed = {name for library in libraries
              for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", library))}
    present = {path.name for where in (folder, *torch.parent.glob("nvidia/*/lib"))
               for path in where.iterdir() if not path.is_symlink() or path.exists()}
    missing = [name for name in needed - present if re.match(r"lib(cu|nccl|nvshmem)", name)]
    if not missing:
        return
    functions = {}  # of each symbol version; the loader insists on those that it was linked with
    for library in libraries:
        for line in output_of("nm", "-D", "-u", library).splitlines():
            name, _, version = line.split()[1].partition("@")
            if C_FUNCTION.fullmatch(name):
                functions.setdefault(version or "UNVERSIONED", set()).add(name)
    with tempfile.TemporaryDirectory() as scratch:
        source, versions = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "versions")
        source.write_text("".join(f"int {name}(void) {{ return 35; }}\n"
                                  for name in sorted(set().union(*functions.values()))))
        versions.write_text("".join(f"{version} {{ {'; '.join(sorted(names))}; }};\n"
                                    for version, names in sorted(functions.items())))
        subprocess.run(["g++", "-x", "c", "-w", "-fno-builtin", "-shared", "-fPIC",
                        f"-Wl,--version-script={versions}", "-o", folder / STUB, source], check=True)
    for name in missing:
        (folder / name).symlink_to(STUB)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
