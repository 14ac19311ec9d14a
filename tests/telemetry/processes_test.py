"""What a person sees on a terminal, what a log file gets, and what a full disk does."""
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios

import pytest

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "telemetry_tool"


def on_terminal(columns, *args):
    """Runs the tool with stderr on a terminal of so many columns; returns all it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([TOOL, *map(str, args)], stderr=theirs,
                               env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        seen += block
    os.close(ours)
    assert process.wait() == 0
    return seen.decode()


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_the_live_line_stays_one_line_and_goes_away(columns):
    seen = on_terminal(columns, "progress", 40, 20)
    frames = [frame for frame in re.split(r"\r\n|\r\x1b\[K", seen) if frame]
    live = [frame for frame in frames if not frame.startswith("brim: ")]
    assert len(live) > 3
    assert all(len(frame) < columns for frame in live), max(live, key=len)
    assert any("step 40/40" in frame for frame in live)
    assert ("[=" in live[-1]) == (columns > 30)
    assert frames.count("brim: evaluation: top-1 97.2 %") == 1
    assert seen.endswith("\r\x1b[K"), "the live line must not stay behind"


def test_a_log_file_gets_plain_lines(tmp_path):
    result = subprocess.run([TOOL, "progress", "20", "5"], capture_output=True, text=True, check=True)
    lines = result.stderr.splitlines()
    assert lines[0].startswith("brim: epoch 1/1  step 1/20  ")
    assert lines[1] == "brim: evaluation: top-1 97.2 %"
    assert lines[-1].startswith("brim: epoch 1/1  step 20/20  ")
    assert len(lines) == 3 and "\x1b" not in result.stderr


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setitem(os.environ, "TERM", "dumb")
    result = subprocess.run([TOOL, "progress", "4", "1"], capture_output=True, text=True, check=True)
    assert "\x1b" not in result.stderr and "step 1/4" in result.stderr


def test_a_full_disk_in_mid_run_is_exit_5_and_names_the_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    limit = 8 * 1024 * 1024  # more than the buffer, less than the lines

    def limit_file_size():
        import resource
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    result = subprocess.run([TOOL, "metrics", path, "1000000"], capture_output=True, text=True,
                            preexec_fn=limit_file_size)
    assert result.returncode == 5
    assert result.stderr == f"error[resource]: {path}: cannot write: File too large\n"
    content = path.read_text()
    assert content.startswith('{"loss":1.0,"step":1}\n') and len(content) == limit
