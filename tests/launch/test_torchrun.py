"""Under the real torchrun: it shows the cause that trainrun or a Brim program found."""
import json
import pathlib
import sys

import pytest
from launches import TRAINRUN, Launch, sh, trainrun

TORCHRUN = pathlib.Path(sys.executable).parent / "torchrun"


def torchrun(*args):
    return Launch("--no-python", "--nproc-per-node=1", "--standalone", *args,
                  program=TORCHRUN).finish()


def test_torchrun_shows_which_rank_failed():
    status, _, err = torchrun(TRAINRUN, "--nproc-per-node=2",
                              *sh("[ $RANK = 1 ] && echo 'error[data]: no such file' >&2 && exit 3; "
                                  "sleep 1000"))
    assert status == 1
    shown = err[err.index("Root Cause"):]
    assert "error[data]: rank 1 (pid " in shown
    assert "exited with status 3; its error: error[data]: no such file" in shown
    assert '"errorCode": 3' in shown or "'errorCode': 3" in shown or "exitcode  : 3" in shown


def test_torchrun_shows_an_error_of_a_brim_program():
    _, _, err = torchrun(TRAINRUN, "--nproc-per-node=none", "true")
    assert "error[usage]: --nproc-per-node: expected auto" in err[err.index("Root Cause"):]


def test_a_signal_and_text_that_is_not_utf8():
    # torchrun makes $$ a $.
    _, _, err = torchrun(TRAINRUN, *sh("printf 'caf\\351 \\001\\n' >&2; kill -SEGV $$$$"))
    shown = err[err.index("Root Cause"):]
    assert "was killed by signal 11 (SIGSEGV); the last line of its stderr: caf" in shown


def test_trainrun_shows_the_message_of_a_python_worker():
    script = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("the data set is empty")
main()
"""
    status, _, err = trainrun(sys.executable, "-c", script)
    assert status == 1
    assert "exited with status 1; its error: ValueError: the data set is empty" in err.splitlines()[-1]


def test_trainrun_shows_the_message_of_a_brim_worker():
    status, _, err = trainrun(TRAINRUN, "--bind=x", "true")
    assert status == 2
    assert err.splitlines()[-1].endswith(
        "its error: error[usage]: --bind: expected none, cores or numa, found 'x'")


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"message": 3}', '{"message": {"message": []}}',
                                     '{"message": "\\ud800"}', "[" * 100000])
def test_a_damaged_error_file_is_left_aside(content, tmp_path):
    (tmp_path / "file").write_text(content)
    status, _, err = trainrun(*sh(f"cp {tmp_path}/file $TORCHELASTIC_ERROR_FILE; echo why >&2; exit 1"))
    assert status == 1
    assert err.splitlines()[-1].endswith("exited with status 1; the last line of its stderr: why")


def test_the_file_has_torchrun_s_form(tmp_path):
    path = tmp_path / "error.json"
    trainrun("--tee=9", "true", env={"TORCHELASTIC_ERROR_FILE": str(path)})
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "error[usage]: --tee: expected a number from 0 to 3, found '9'"
    assert message["errorCode"] == 2 and int(message["extraInfo"]["timestamp"]) > 1_600_000_000
