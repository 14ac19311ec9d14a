"""scripts/gpu_check: its stages on the CPU, and what it says of programs that fail, hang or are missing."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = SOURCE / "scripts" / "gpu_check"
PASSES = "echo '[  PASSED  ] 7 tests.'"


def check(script, tmp_path, *options, **more):
    """The table's rows by their stage, each as [state, result], and the process."""
    out = tmp_path / "results"
    done = subprocess.run([script, "--output", out, *options], capture_output=True, text=True, timeout=120, **more)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    if done.stdout:
        assert (out / "summary.md").read_text() == done.stdout
    return {stage: [state, shown] for stage, state, _, shown in rows}, done


@pytest.fixture
def package(tmp_path):
    """A function that makes a package whose programs are shell scripts."""
    def make(**programs):
        (tmp_path / "bin").mkdir()
        for name, text in {"trainer": "echo '3 pass, 0 warn, 0 fail'", **programs}.items():
            program = tmp_path / "bin" / name
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        return shutil.copy(SCRIPT, tmp_path)
    return make


def is_alive(process):
    status = pathlib.Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().split()[2] != "Z"


def wait_for_end(process):
    """It has been killed; on a busy machine it takes a moment to go."""
    end_s = time.monotonic() + 60
    while is_alive(process):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_real_programs_pass_on_a_cpu(tmp_path):
    rows, done = check(SCRIPT, tmp_path, "--device", "cpu", "--only", "doctor,resume,precisions,two_ranks,profile")
    assert done.returncode == 0 and len(rows) == 5, done.stdout + done.stderr
    assert all(state == "passed" and shown for state, shown in rows.values()), done.stdout


def test_a_stage_that_fails_hinders_no_other(package, tmp_path):
    script = package(trainer="[ $1 = doctor ] && echo '3 pass, 0 warn, 0 fail' || exit 3", test_cuda="kill -SEGV $$",
                     test_train_gpu="echo '[  SKIPPED ] 5 tests.'")
    rows, done = check(script, tmp_path, "--only", "doctor,test_cuda,test_train_gpu,digits,fused_ops")
    assert done.returncode == 1
    assert rows == {"doctor": ["passed", "3 pass, 0 warn, 0 fail"],
                    "test_cuda": ["FAILED", "killed by SIGSEGV"],
                    "test_train_gpu": ["FAILED", "tests were skipped"],
                    "digits": ["FAILED", "exit status 3"],
                    "fused_ops": ["not run", f"{tmp_path / 'bin' / 'fused_ops'} is not installed"]}


def test_a_tool_that_is_missing_is_no_failure(package, tmp_path):
    rows, done = check(package(test_cuda=PASSES), tmp_path, "--only", "test_cuda,memcheck",
                       env={**os.environ, "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert rows == {"test_cuda": ["passed", "[  PASSED  ] 7 tests."],
                    "memcheck": ["not run", "compute-sanitizer is not installed"]}


def test_what_hangs_is_ended_with_what_it_started(package, tmp_path):
    script = package(test_cuda=f"sleep 1000 & echo $! >{tmp_path}/child; wait", test_train_gpu=PASSES)
    rows, done = check(script, tmp_path, "--only", "test_cuda,test_train_gpu", "--minutes", "0.02")
    assert done.returncode == 1
    assert rows == {"test_cuda": ["FAILED", "not finished after 1 s"],
                    "test_train_gpu": ["FAILED", "not begun after 0.02 minutes"]}
    wait_for_end(int((tmp_path / "child").read_text()))


def test_a_signal_ends_it_and_what_runs(package, tmp_path):
    script = package(test_cuda=f"echo $$ >{tmp_path}/child; exec sleep 1000")
    words = [script, "--output", tmp_path / "results", "--only", "doctor,test_cuda"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert "Traceback" not in process.stderr.read()
    assert "| doctor | passed |" in (tmp_path / "results" / "summary.md").read_text()
    wait_for_end(int((tmp_path / "child").read_text()))


def test_losses_that_are_not_finite_are_told(package, tmp_path):
    script = package(trainer="""while [ $# -gt 1 ]; do [ "$1" = --output ] && out=$2; shift; done
mkdir -p "$out"; echo '{"step": 1, "loss": NaN}' >"$out/metrics.jsonl" """)
    rows, done = check(script, tmp_path, "--only", "precisions")
    assert done.returncode == 1
    state, shown = rows["precisions"]
    assert state == "FAILED" and shown.startswith("expected finite losses in ")


@pytest.mark.parametrize("options, words", [
    (["--only", "doctor,speed"], "found speed"),
    (["--output", os.curdir], "is no empty folder; name another one"),
    (["--output", "gpu_check"], "is no empty folder; name another one"),
    (["--device", "gpu"], "invalid choice: 'gpu' (choose from"),
])
def test_a_wrong_option_is_refused(package, tmp_path, options, words):
    done = subprocess.run([package(), *options], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr


def test_without_programs_it_says_what_to_do(tmp_path):
    (tmp_path / "scripts").mkdir()
    done = subprocess.run([shutil.copy(SCRIPT, tmp_path / "scripts")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "build first, or run this from the folder" in done.stderr
