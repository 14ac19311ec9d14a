"""An installed Brim, and programs and libraries that are built with it."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["BRIM_BIN_DIR"]).parent
LIMIT_S = 1200  # only to catch a hang


def compiler_cache():
    """What has ccache, where there is one, know an example that it has compiled in another temporary folder."""
    if not shutil.which("ccache"):
        return {}
    folder = subprocess.run(["ccache", "--get-config", "cache_dir"], text=True, capture_output=True, check=True)
    return {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_DIR": folder.stdout.strip(),
            "CCACHE_BASEDIR": tempfile.gettempdir()}


CACHE = compiler_cache()


def run(*command, cwd=None, **env):
    """The finished process: returncode, stdout, stderr."""
    return subprocess.run([str(word) for word in command], cwd=cwd, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=LIMIT_S,
                          env=dict(os.environ, OMP_NUM_THREADS="1", TERM="dumb", **CACHE, **env))


def must_run(*command, cwd=None, **env):
    done = run(*command, cwd=cwd, **env)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done


def cmake():
    """The program that configured this build."""
    return re.search(r"^CMAKE_COMMAND:INTERNAL=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]


def install(prefix):
    must_run(cmake(), "--install", BUILD, "--prefix", prefix)


def build(source, folder, prefix, *options):
    must_run(cmake(), "-G", "Ninja", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", *options)
    must_run(cmake(), "--build", folder)


def commands_of(page):
    """The lines of a page's shell blocks, without their remarks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]


def run_as_written(line, cwd, home):
    """A document's command, where Brim is installed in ~/brim."""
    path = f"{pathlib.Path(cmake()).parent}:{os.environ['PATH']}"
    return must_run("sh", "-c", line, cwd=cwd, HOME=str(home), PATH=path, CMAKE_GENERATOR="Ninja")


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def dynamic(path):
    return must_run("readelf", "--wide", "--dynamic", path, LC_ALL="C").stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic(path))


def run_path(path):
    found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic(path))
    return [entry for text in found for entry in text.split(":")]


def binaries(*folders):
    files = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    found = [path for path in files if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    assert found, folders
    return found


def is_safe(entry):
    if entry.startswith("$ORIGIN/") or entry == "$ORIGIN":
        return True
    return entry.startswith("/") and not (os.path.isdir(entry) and os.stat(entry).st_mode & 0o002)


def check_run_paths(files):
    """Each entry is beside the file itself or an absolute folder that not everyone can write to."""
    unsafe = {str(path): entries for path in files if not all(map(is_safe, entries := run_path(path)))}
    assert not unsafe, unsafe
