"""scripts/trainer's first calls on machines where something is wrong: each ends in words or continues.

apt, pip, cmake and ninja are stand-ins here: they record that they were called, and do what a test says."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 60  # only to catch a hang

TOOLS = {
    "dpkg-query": 'shift 3; for name; do printf "installed=%s " "$name"; done',
    "apt-get": "exit 100",
    "df": "echo; echo / 0 0 99999 0% /",
    "ccache": 'echo "$HOME/.cache/ccache"',
    "cmake": '[ "$1" != --version ] || exec echo cmake version 3.25.1\n'
             "mkdir -p build/release/bin; touch build/release/CMakeCache.txt build/release/build.ninja",
    "ninja": r"""printf '#!/bin/sh\necho program $*\n' >"$2/bin/trainer"; chmod +x "$2/bin/trainer" """,
}
PYTHON = """case $* in
  *unmet.py*) [ -e "$ROOT/installed" ] || echo torch==2.11.0 ;;
  "-m pip --version") ;;
  "-m pip install"*) touch "$ROOT/installed" ;;
esac"""


class Machine:
    """A clone of the scripts, whose tools are stand-ins."""

    def __init__(self, root):
        self.root = root
        shutil.copytree(SOURCE / "scripts", root / "scripts")
        (root / "tools").mkdir()
        for name, does in TOOLS.items():
            self.tool(name, does)
        self.python(PYTHON)
        self.environment = dict(os.environ, PATH=f"{root}/tools:{os.environ['PATH']}", HOME=str(root / "home"),
                                ROOT=str(root))

    def write(self, path, does):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>"$ROOT/calls"\n{does}\n')
        path.chmod(0o755)

    def tool(self, name, does):
        self.write(self.root / "tools" / name, does)

    def python(self, does):
        self.write(self.root / ".venv/bin/python", does)

    def start(self, *words, script="scripts/trainer", **env):
        return subprocess.Popen([self.root / script, *words], env=dict(self.environment, **env), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                start_new_session=True)

    def call(self, *words, **env):
        process = self.start(*words, **env)
        process.out, process.err = process.communicate(timeout=LIMIT_S)
        return process

    def calls(self, name):
        lines = (self.root / "calls").read_text().splitlines() if (self.root / "calls").exists() else []
        return [line for line in lines if line.split()[0] == name]

    def must_train(self):
        done = self.call("train", "digits")
        assert done.returncode == 0 and done.out == "program train digits\n", done.err
        return done

    def wait_for(self, name):
        started = time.monotonic()
        while not (self.root / name).exists():
            assert time.monotonic() - started < LIMIT_S
            time.sleep(0.01)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_later_call_needs_no_tool_and_no_network(machine):
    machine.must_train()
    assert machine.calls("ninja") and (machine.root / "installed").exists()
    (machine.root / "calls").unlink()
    done = machine.must_train()
    assert done.err == "" and not (machine.root / "calls").exists()


def test_new_requirements_are_installed(machine):
    machine.must_train()
    (machine.root / "installed").unlink()
    later = time.time() + 5
    os.utime(machine.root / "scripts/requirements/torch-cpu.txt", (later, later))
    machine.must_train()
    assert (machine.root / "installed").exists()


def test_the_second_of_two_first_calls_says_for_whom_it_waits(machine):
    machine.tool("ninja", 'touch "$ROOT/started"; for i in $(seq 6000); do '
                          '[ -e "$ROOT/go" ] && break; sleep 0.01; done\n' + TOOLS["ninja"])
    first = machine.start("train", "digits")
    machine.wait_for("started")
    second = machine.start("train", "second")
    said = second.stderr.readline()
    assert f"waiting for process {first.pid} (" in said and "scripts/trainer train digits)" in said, said
    (machine.root / "go").touch()
    assert first.communicate(timeout=LIMIT_S)[0] == "program train digits\n"
    assert second.communicate(timeout=LIMIT_S)[0] == "program train second\n"
    assert len(machine.calls("ninja")) == 1


@pytest.mark.parametrize("ninja", ["exec sleep 60", "trap 'exit 2' INT; while :; do sleep 0.05; done"])
def test_a_build_that_was_broken_off_is_continued(ninja, machine):
    machine.tool("ninja", f'touch "$ROOT/started"; {ninja}')
    first = machine.start("train", "digits")
    machine.wait_for("started")
    os.killpg(first.pid, signal.SIGINT)
    out, err = first.communicate(timeout=LIMIT_S)
    assert first.returncode in (-signal.SIGINT, 128 + signal.SIGINT) and out == "", (first.returncode, err)
    assert "stopped; the same call continues the build" in err and "failed" not in err, err
    machine.tool("ninja", TOOLS["ninja"])
    done = machine.must_train()
    assert "waiting" not in done.err


def test_settings_of_an_older_build_do_not_stop_a_new_one(machine):
    machine.must_train()
    fails = 'case $* in *--fresh*) ;; --preset*) echo "the compiler is gone"; exit 1 ;; esac\n'
    machine.tool("cmake", fails + TOOLS["cmake"])
    (machine.root / "build/release/built_by_trainer").unlink()
    assert "again without them" in machine.must_train().err

    machine.tool("cmake", 'case $* in *--preset*) echo "the compiler is gone"; exit 1 ;; esac\n' + TOOLS["cmake"])
    (machine.root / "build/release/built_by_trainer").unlink()
    done = machine.call("train", "digits")
    assert done.returncode == 1 and "the compiler is gone" in done.err and "again without them" in done.err
    assert "configuring build/release failed" in done.err.splitlines()[-1]
    assert (machine.root / "build/release/CMakeCache.txt").exists()  # with what its user has set


def test_a_first_configuration_that_fails_is_not_blamed_on_an_earlier_one(machine):
    machine.tool("cmake", TOOLS["cmake"] + '; case $* in *--preset*) echo "no compiler"; exit 1 ;; esac')
    done = machine.call("train", "digits")
    assert done.returncode == 1 and "no compiler" in done.err and "earlier build" not in done.err, done.err
    assert len([call for call in machine.calls("cmake") if "--preset" in call]) == 1


def test_a_clone_that_was_moved_is_built_again(machine):
    machine.must_train()
    moved = machine.root.with_name("moved")
    machine.root.rename(moved)
    machine.root = moved
    machine.environment |= {"PATH": f"{moved}/tools:{os.environ['PATH']}", "ROOT": str(moved)}
    machine.must_train()
    assert len(machine.calls("ninja")) == 2
    machine.must_train()
    assert len(machine.calls("ninja")) == 2


def test_a_link_to_the_script_or_its_folder_works(machine):
    (machine.root / "elsewhere").mkdir()
    (machine.root / "elsewhere/link").symlink_to(machine.root / "scripts/trainer")
    (machine.root / "elsewhere/folder").symlink_to(machine.root / "scripts")
    for script in ("elsewhere/link", "elsewhere/folder/trainer"):
        done = machine.call("version", script=script)
        assert done.returncode == 0 and done.out == "program version\n", done.err
    assert sorted(path.name for path in (machine.root / "elsewhere").iterdir()) == ["folder", "link"]


def test_what_the_environment_says_of_cd_python_and_pip_is_for_other_programs(machine):
    names = ["PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"]
    machine.python("env >>$ROOT/environment\n" + PYTHON)
    (machine.root / "other/scripts").mkdir(parents=True)
    done = subprocess.run(["scripts/trainer", "version"], cwd=machine.root, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=machine.environment | {name: "/none" for name in names} | {"CDPATH": f"{machine.root}/other:"})
    assert done.returncode == 0 and done.stdout == "program version\n", done.stderr
    assert not [line for line in (machine.root / "environment").read_text().splitlines() if line.split("=")[0] in names]


def test_a_machine_without_a_network_is_told_so(machine):
    retry = "WARNING: Retrying (Retry(total=0)): Failed to establish a new connection: Temporary failure in name resolution"
    machine.python(f'case $* in *"pip install"*) echo "{retry}"; exit 1 ;; esac\n' + PYTHON)
    done = machine.call("train", "digits")
    assert done.returncode == 5 and "it reaches no package index: is there a network" in done.err, done.err
    assert "scripts/setup --libtorch FOLDER" in done.err


def test_a_libtorch_that_is_there_is_all_that_is_taken(machine):
    libtorch = machine.root / "libtorch"
    (libtorch / "lib").mkdir(parents=True)
    (libtorch / "lib/libtorch_cpu.so").touch()
    header = libtorch / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n#define TORCH_VERSION_PATCH 0\n")
    process = machine.start("--libtorch", libtorch, script="scripts/setup")
    _, words = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and "setup: ready" in words, words
    machine.must_train()
    assert not [line for line in machine.calls("python") if "pip install" in line]


def test_a_disk_that_is_too_small_is_named_before_anything_is_installed(machine):
    machine.tool("df", "echo; echo / 0 0 12 0% /")
    done = machine.call("train", "digits")
    assert done.returncode == 5, done.err
    assert f"MB of free disk in {machine.root}; 12 MB are free" in done.err.splitlines()[-1]
    assert not machine.calls("ninja") and not (machine.root / "installed").exists()


def test_a_disk_that_fills_up_ends_in_words_and_later_calls_continue(machine):
    full = "[Errno 28] No space left on device"
    half = machine.root / ".venv/lib/python3.11/site-packages/torch"
    machine.python('case $* in *"pip install"*) touch "$TMPDIR/half"\n'
                   f'mkdir -p {half}\n'
                   f'echo "ERROR: Could not install packages: {full}"; exit 1 ;; esac\n' + PYTHON)
    done = machine.call("train", "digits")
    assert done.returncode == 5 and full in done.err.splitlines()[-1], done.err
    assert half.exists()
    machine.python(PYTHON)
    machine.tool("ninja", "echo '[1/2] Building'; echo 'fatal error: No space left on device'; exit 1")
    done = machine.call("train", "digits")
    assert done.returncode == 5 and "No space left on device" in done.err, done.err
    assert "building build/release failed: no space left on the disk" in done.err.splitlines()[-1]
    assert not (machine.root / ".venv/tmp").exists() and not half.exists()
    machine.tool("ninja", TOOLS["ninja"])
    machine.must_train()


def test_a_home_folder_that_cannot_be_written_does_not_stop_the_build(machine):
    machine.tool("ninja", 'echo "$CCACHE_DIR" >"$ROOT/cache"\n' + TOOLS["ninja"])
    done = machine.call("train", "digits", HOME="/proc/none")
    assert done.returncode == 0, done.err
    assert (machine.root / "cache").read_text() == f"{machine.root}/build/ccache\n"


def test_a_folder_that_cannot_be_written_is_named(machine):
    (machine.root / "build").write_text("in the way")
    done = machine.call("train", "digits")
    assert done.returncode == 5 and done.err.startswith("error[resource]: "), done.err
    assert f"{machine.root}/build can't be made" in done.err


def test_what_git_leaves_out_of_the_clone_is_left_out_of_the_container():
    folders = [line.strip("/") for line in (SOURCE / ".gitignore").read_text().splitlines() if line.startswith("/")]
    assert len(folders) > 3 and set(folders) <= set((SOURCE / ".dockerignore").read_text().splitlines())
