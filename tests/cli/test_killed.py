"""What a process leaves that SIGKILL ends is removed by the next that starts in the same place."""
import os
import signal
import time

from trainer import DIGITS, LIMIT_S, sets, start, trainer

GONE = 4194304  # more than any process's number


def killed_once(process, find):
    """What find() finds first while the process lives; then it is killed."""
    end = time.monotonic() + LIMIT_S
    while not (found := find()):
        assert process.poll() is None and time.monotonic() < end, process.stderr.read()
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return found


def put(path, content="torn", age_s=3600):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_a_token_folder(tmp_path):
    text = tmp_path / "text"
    text.write_text("all work and no play\n" * 2_000_000)
    tokenize = ["data", "tokenize", text, "--output", tmp_path / "out", "--tokenizer", "chars"]
    left = killed_once(start(*tokenize), lambda: list(tmp_path.glob("out.tmp.*/train.bin.tmp.*")))
    assert left[0].exists()
    text.write_text("all work and no play\n" * 100)
    done = trainer(*tokenize)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"text", "out"}
    assert "lock" not in os.listdir(tmp_path / "out")


def test_an_export(tmp_path):
    run = tmp_path / "run"
    assert trainer("--recipe", DIGITS, "--output", run, *sets(train__steps=1)).returncode == 0
    put(tmp_path / f"w.safetensors.tmp.{GONE}")
    others = {put(tmp_path / name).name for name in (f"v.safetensors.tmp.{GONE}", "w.safetensors.tmp.old")}
    for output in "w.safetensors", tmp_path / "w2.safetensors":
        done = trainer("export", run, "--output", output, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"run", "w.safetensors", "w2.safetensors", *others}


def test_the_tuning_cache(tmp_path):
    cache = tmp_path / "brim" / "batch"
    left = put(cache / f"{'0' * 32}.json.tmp.{GONE}")
    new = put(cache / f"{'1' * 32}.json.tmp.{GONE}", age_s=0)
    other = put(cache / f"notes.tmp.{GONE}")
    done = trainer("--recipe", DIGITS, "--output", tmp_path / "run", *sets(train__steps=1, batch__micro="auto"),
                   XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert len(list(cache.glob("*.json"))) == 1
    assert not left.exists() and new.exists() and other.exists()


def test_a_bench(tmp_path):
    bench = ["bench", "--recipe", DIGITS, "--repeats", 1]
    for name in "brim-bench-output", "brim-bench-mine":  # a user's own; six letters, as ours have
        (tmp_path / name).mkdir()
    others = {put(tmp_path / "brim-bench-folder").name, "brim-bench-output", "brim-bench-mine"}

    def ours():
        return [path for path in tmp_path.glob("brim-bench-??????/*") if path.name != "lock"]

    running = start(*bench, "--steps", 100_000, TMPDIR=str(tmp_path))
    folder = killed_once(running, ours)[0].parent
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert folder.name not in others
    done = trainer(*bench, "--steps", 4, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == others
