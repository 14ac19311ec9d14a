"""What scripts/package makes runs and builds elsewhere, and no program of ours loads a library from the
folder it is called in: run paths of all that is built and packaged."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from safetensors.numpy import load_file

from installed import (BUILD, SOURCE, binaries, check_run_paths, cmake, commands_of, must_run, needed, run, run_path,
                       run_as_written)

EPOCH = "1700000000"
LOADER = {"libc.so.6", "ld-linux-x86-64.so.2"}


def starts_beside_other_libraries(program, folder, libraries, **env):
    """In a folder that holds files of the names of all libraries the program needs."""
    folder.mkdir()
    for name in set(libraries) - LOADER:
        (folder / name).write_text("not a library")
    done = must_run(program, "--help", cwd=folder, **env)
    assert "usage" in (done.stdout + done.stderr).lower()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """scripts/package of this build, as it is."""
    root = tmp_path_factory.mktemp("package")
    for name in ("scripts", "CMakeLists.txt", "LICENSE"):
        (root / name).symlink_to(SOURCE / name)
    for name in ("recipes", "configs", "examples"):
        shutil.copytree(SOURCE / name, root / name)
    (root / "examples/own_loop/build").mkdir(exist_ok=True)  # of who packs it, no part of a release
    (root / "build").mkdir()
    (root / "build/release").symlink_to(BUILD)
    tools = root / "tools"
    tools.mkdir()
    (tools / "cmake").write_text(f'#!/bin/sh\n[ "$1" = --preset ] || exec "{cmake()}" "$@"\n')
    (tools / "ninja").write_text("#!/bin/sh\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    done = must_run(root / "scripts/package", "--wheel", "--tarball", root / "brim",
                    PATH=f"{tools}:{os.environ['PATH']}", SOURCE_DATE_EPOCH=EPOCH)
    (root / "said").write_text(done.stderr)
    return root / "brim"


@pytest.fixture(scope="module")
def libtorch():
    include = re.search(r"^BRIM_TORCH_INCLUDE:PATH=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]
    return os.path.dirname(include)


def test_what_is_built():
    check_run_paths(binaries(BUILD / "bin", BUILD / "lib"))


@pytest.mark.parametrize("name", ["trainer", "trainrun"])
def test_a_built_program_ignores_libraries_of_the_current_folder(name, tmp_path):
    starts_beside_other_libraries(BUILD / "bin" / name, tmp_path / "cwd", needed(BUILD / "bin" / name))


def test_what_is_packaged(package):
    files = binaries(package / "bin", package / "lib", package / "libexec")
    ours = [path for path in files if path.name in ("trainer", "trainrun", "libbrim_cuda.so")]
    assert len(ours) >= 2
    assert {str(path): run_path(path) for path in ours} == {str(path): ["$ORIGIN/../lib"] for path in ours}


def resolved(program, **env):
    """The path of each library that the loader would load for the program, by name."""
    traced = must_run(program, LD_TRACE_LOADED_OBJECTS="1", **env).stdout
    return dict(re.findall(r"^\t(\S+) => (/.*) \(0x", traced, re.M))


def check_bundled_libraries(folder, program, **env):
    """Also what only other libraries of the folder need: the next machine may have none of them."""
    bundled = {path.name for path in folder.iterdir() if ".so." in path.name}
    found = {name: os.path.realpath(path) for name, path in resolved(program, **env).items() if name in bundled}
    assert found == {name: str((folder / name).resolve()) for name in found}
    return bundled, set(found)


def test_packaged_programs_take_all_bundled_libraries(package, libtorch):
    bundled, found = check_bundled_libraries(package / "lib", package / "libexec/trainer",
                                             LD_LIBRARY_PATH=f"{libtorch}/lib")
    check_bundled_libraries(package / "lib", package / "bin/trainrun")
    assert found == bundled and "libcurl.so.4" in found  # which needs two dozen others


def test_a_packaged_program_ignores_the_current_folder(package, libtorch, tmp_path):
    libraries = needed(package / "libexec/trainer")
    starts_beside_other_libraries(package / "bin/trainer", tmp_path / "cwd", libraries, BRIM_LIBTORCH=libtorch)

    # The search for python3's torch does not find a folder of that name here either.
    decoy = tmp_path / "decoy"
    (decoy / "torch/lib").mkdir(parents=True)
    (decoy / "torch/__init__.py").write_text("")
    (decoy / "torch/lib/libtorch_cpu.so").write_text("not a library")
    done = subprocess.run([package / "bin/trainer", "--help"], cwd=decoy, text=True, capture_output=True,
                          env={k: v for k, v in os.environ.items() if k != "BRIM_LIBTORCH"})
    assert str(decoy) not in done.stderr, done.stderr

    # A relative folder is taken from here, not from wherever a library is asked for.
    here = tmp_path / "here"
    here.mkdir()
    (here / "libtorch").symlink_to(libtorch)
    must_run(package / "bin/trainer", "--help", cwd=here, BRIM_LIBTORCH="libtorch")


def test_a_link_of_another_name_starts_a_packaged_program(package, libtorch, tmp_path):
    (tmp_path / "brim-0.2").symlink_to(package / "bin/trainer")
    assert "usage" in must_run(tmp_path / "brim-0.2", "--help", BRIM_LIBTORCH=libtorch).stdout


def test_programs_that_a_packaged_one_starts_get_no_bundled_libraries(package, libtorch, tmp_path):
    """Their own libcurl or libsqlite3 may be newer than those of the package."""
    command = json.dumps(["sh", "-c", 'echo "$LD_LIBRARY_PATH" >"$BRIM_RUN_FOLDER/path"'])
    must_run(package / "bin/trainer", "--recipe", "digits", "--set", "train.steps=1", "--set", f"telemetry.exec={command}",
             "--output", tmp_path / "run", cwd=tmp_path, BRIM_LIBTORCH=libtorch, LD_LIBRARY_PATH="/mine")
    folders = (tmp_path / "run/path").read_text().strip().split(":")
    assert folders[0] == f"{libtorch}/lib" and folders[-1] == "/mine" and str(package / "lib") not in folders


def test_what_a_packaged_program_writes_starts_its_wrapper(package, libtorch, tmp_path):
    """libexec/trainer finds no LibTorch by itself."""
    env = {"BRIM_LIBTORCH": libtorch, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    must_run(package / "bin/trainer", "sweep", "--recipe", "digits", "--vary", "run.seed=1,2", "--devices", "cpu",
             "--output", tmp_path / "sweep", "--slurm", cwd=tmp_path, **env)
    assert f"\n{package}/bin/trainer sweep --resume " in (tmp_path / "sweep/slurm.sbatch").read_text()
    must_run(package / "bin/trainer", "--recipe", "digits", "--set", "train.steps=1", "--output", tmp_path / "run",
             cwd=tmp_path, **env)
    assert json.loads((tmp_path / "run/run.json").read_text())["command"][0] == str(package / "bin/trainer")


def test_the_wheels_name_keeps_it_from_an_older_libstdcxx(package):
    """pip looks at glibc alone: with RHEL 9's, 2.34, comes a libstdc++ without GLIBCXX_3.4.30."""
    symbols = "".join(must_run("objdump", "-T", path).stdout
                      for path in binaries(package / "bin", package / "lib", package / "libexec"))
    newest = max(map(int, re.findall(r"GLIBCXX_3\.4\.(\d+)", symbols)))
    [wheel] = package.parent.glob("brim-*.whl")
    glibc = int(re.search(r"manylinux_2_(\d+)_x86_64", wheel.name)[1])
    assert glibc >= max(map(int, re.findall(r"GLIBC_2\.(\d+)", symbols)))
    assert newest < 30 or glibc >= 35, (newest, wheel.name)
    assert f"glibc is 2.{glibc} or newer, libstdc++ has GLIBCXX_3.4.{newest} " in (package.parent / "said").read_text()


def test_the_wheel_trains_where_pip_put_it(package, tmp_path):
    site = installed(package, tmp_path / "site")
    # torch and its libraries stand beside it, as in an environment where pip has installed them.
    torch = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    for name in ("torch", "nvidia"):
        if (torch.parent / name).exists():
            (site / name).symlink_to(torch.parent / name)
    check_bundled_libraries(site / "brim/lib", site / "brim/bin/trainer")
    env = {"PYTHONPATH": str(site), "HOME": str(tmp_path)}
    done = must_run(site / "bin/trainer", "train", "digits", "--set", "train.steps=3", cwd=tmp_path, **env)
    assert "done: 3 steps" in done.stderr
    assert "usage: trainrun" in must_run(site / "bin/trainrun", "--help", cwd=tmp_path, **env).stdout
    [wheel] = package.parent.glob("brim-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        assert b"Requires-Dist: torch==2.11.0" in archive.read(metadata)


def installed(package, site):
    """The wheel in a folder of its own, as pip installs it there without torch."""
    [wheel] = package.parent.glob("brim-*.whl")
    must_run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    return site


def start_script(site, name, *args, torch="", **env):
    """A console script of the wheel, in a Python whose packages are those of the two folders only."""
    words = [f"import sys; sys.path += [{str(site)!r}, {str(torch)!r}]; import brim; brim.{name}()", *args]
    return run(sys.executable, "-S", "-c", *words, **env)


def other_libtorch(folder):
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/libtorch_cpu.so").write_text("")
    (folder / "include/torch/headeronly").mkdir(parents=True)
    (folder / "include/torch/headeronly/version.h").write_text("#define TORCH_VERSION_MINOR 12\n")
    return folder


def test_the_wheel_finds_a_torch_elsewhere(package, libtorch, tmp_path):
    """That of a user's folder, of --system-site-packages or of a .pth file; or a LibTorch without Python."""
    site = installed(package, tmp_path / "site")
    for place in ({"torch": os.path.dirname(libtorch)}, {"BRIM_LIBTORCH": libtorch}):
        for name, *args in (("trainer", "version"), ("trainrun", "--nproc-per-node=1", site / "brim/bin/trainer", "version")):
            done = start_script(site, name, *args, **place)
            assert done.returncode == 0 and "libtorch" in done.stdout, done.stderr
    assert "usage: trainrun" in start_script(site, "trainrun", "--help").stdout

    program = site / "brim/bin/trainer"
    program.write_text('#!/bin/sh\necho "[$LD_LIBRARY_PATH]"\n')
    assert start_script(site, "trainer", BRIM_LIBTORCH=libtorch, LD_LIBRARY_PATH="/mine").stdout.startswith(
        f"[{libtorch}/lib:")
    # Beside it, the programs find it alone: what they start gets no folders of libraries.
    (site / "torch").symlink_to(libtorch)
    done = start_script(site, "trainer", LD_LIBRARY_PATH="/mine")
    assert (done.stdout, done.stderr) == ("[/mine]\n", "")
    assert "BRIM_LIBTORCH has no effect" in start_script(site, "trainer", BRIM_LIBTORCH="/other").stderr


def test_the_wheel_says_which_torch_it_needs(package, tmp_path):
    site = installed(package, tmp_path / "site")
    other = other_libtorch(tmp_path / "other")
    for env, words in (({}, "LibTorch 2.11 was not found: this Python has no torch. Set BRIM_LIBTORCH"),
                       ({"BRIM_LIBTORCH": str(tmp_path)}, f"LibTorch 2.11 was not found: {tmp_path}. Set"),
                       ({"BRIM_LIBTORCH": str(other)}, f"Brim was built for LibTorch 2.11; {other} is another")):
        done = start_script(site, "trainer", "version", **env)
        assert done.returncode == 5 and f"error[resource]: {words}" in done.stderr, done.stderr
    other_libtorch(site / "torch")
    done = start_script(site, "trainer", "version")
    assert done.returncode == 5 and f"2.11; {site}/torch is another version" in done.stderr, done.stderr


def test_the_tarball_trains_and_builds_where_it_is_unpacked(package, libtorch, tmp_path):
    [tarball] = package.parent.glob("brim-*-linux-x86_64.tar.gz")
    with tarfile.open(tarball) as archive:
        entries = archive.getmembers()
        archive.extractall(tmp_path, filter="data")
    # The same build gives the same bytes: nothing in it depends on who packs it, when, and where.
    names = [entry.name for entry in entries]
    assert names == sorted(names, key=lambda name: name.split("/"))
    assert not [name for name in names if "examples" in name and "/build" in name]
    assert {(entry.uid, entry.gid, entry.mtime) for entry in entries} == {(0, 0, int(EPOCH))}
    prefix = tmp_path / tarball.name.removesuffix(".tar.gz")
    settings = [path.read_text() for path in (prefix / "lib/cmake/brim").iterdir()]
    assert not any(str(libtorch) in text or str(SOURCE) in text for text in settings)

    done = must_run(prefix / "bin/trainer", "--recipe", "digits", "--set", "train.steps=1", cwd=tmp_path,
                    BRIM_LIBTORCH=libtorch)
    assert "done: 1 step" in done.stderr

    # The page's commands build an example where the tarball is unpacked.
    lines = [line for line in commands_of(SOURCE / "docs/how-to/install.md") if line.startswith("cmake") and "loop" in line]
    assert len(lines) == 2
    for line in lines:
        run_as_written(f"export BRIM_LIBTORCH={libtorch}; {line}", prefix, tmp_path)
    check_run_paths([prefix / "own_loop/own_loop"])
    configure, command = commands_of(prefix / "examples/own_loop/README.md")
    assert configure == commands_of(prefix / "examples/own_model/README.md")[0]  # runs there
    work = tmp_path / "work"
    work.mkdir()
    (work / "build").symlink_to(prefix / "own_loop")
    said = run_as_written(command, work, tmp_path).stdout.split()
    assert float(said[3]) < 0.5 * float(said[1]), said
    assert sorted(load_file(work / "weights.safetensors")) == ["first.bias", "first.weight", "last.bias", "last.weight"]
    assert not (work / "runs").exists()
