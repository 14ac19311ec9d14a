"""scripts/verify_against_python: the table that says whether a model of ours and its twin agree."""
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile

import torch  # noqa: F401
import torchvision  # noqa: F401

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = SOURCE / "scripts/verify_against_python"


def run_script(words):
    sys.argv = [str(SCRIPT), *map(str, words)]
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, str):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    return 1


def verify(*words):
    """The script in a process of its own, a fork of this one: to import its packages takes five seconds."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = os.fork()
        if process == 0:
            sys.stdout, sys.stderr = stdout, stderr
            status = run_script(words)
            stdout.flush(), stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        stdout.seek(0), stderr.seek(0)
        return subprocess.CompletedProcess(words, status, stdout.read(), stderr.read())


def test_it_is_a_program():
    done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--twin FILE.py:FUNCTION" in done.stdout, done.stderr


def errors_of(line):
    return [float(word) for word in line.split() if "e-" in word or word == "0.0e+00"]


def test_a_model_agrees_with_its_package():
    done = verify("--model", "resnet18", "--image", "32", "--classes", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    title, head, *layers, total, verdict = done.stdout.splitlines()
    assert "torchvision" in title and head.split() == ["layer", "values", "output", "gradient", "step"]
    names = [line.split()[0] for line in layers]
    assert {"conv1", "layer4.1.bn2", "fc"} <= set(names)
    block = names.index("layer4.1")  # with its output, before its layers
    assert names[block + 1] == "layer4.1.conv1" and len(errors_of(layers[block])) == 1
    assert total.split()[0] == "all" and max(errors_of(total)) <= 1e-9
    assert verdict.startswith("agrees: ")


def test_a_twin_that_computes_something_else_is_told_apart(tmp_path):
    twin = tmp_path / "twin.py"
    twin.write_text("import torchvision\ndef make(classes):\n"
                    "    model = torchvision.models.resnet18(num_classes=classes)\n"
                    "    model.layer4[1].bn2.eps = 1e-3\n    return model\n")
    done = verify("--model", "resnet18", "--image", "32", "--classes", "10", "--twin", f"{twin}:make")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("DIFFERS: ")
    rows = {line.split()[0]: errors_of(line) for line in done.stdout.splitlines()[2:-1]}
    assert rows["layer4.0"][0] <= 1e-9 < rows["layer4.1"][0]  # where the output begins to differ


def test_what_is_missing_is_said(tmp_path):
    done = verify("--model", "small_cnn")
    assert done.returncode == 1 and "no package has a model small_cnn" in done.stderr
    done = verify("--model", "resnet18", "--twin", "nothing.py:make")
    assert done.returncode == 1 and "expected FILE.py:FUNCTION" in done.stderr
    done = verify("--model", "resnet18", "--image", "32", "--set", "width=3")
    assert done.returncode == 1 and "width" in done.stderr and "Traceback" not in done.stderr
    broken = tmp_path / "broken.safetensors"
    broken.write_text("no weights")
    for weights in (tmp_path / "none.safetensors", broken):
        done = verify("--model", "resnet18", "--weights", weights)
        line, = done.stderr.splitlines()
        assert done.returncode == 1 and f"--weights {weights}: expected a safetensors file" in line
