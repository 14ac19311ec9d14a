"""How benchmarks/run starts Brim and its peers, with what its options have changed."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

SOURCE = pathlib.Path(__file__).resolve().parents[1]
TRAINER = SOURCE / "build" / "release" / "bin" / "trainer"
PEERS = SOURCE / "benchmarks" / "peers"

options = types.SimpleNamespace(steps=6, warmup=2,  # of ResNet-50's
                                device="cpu",       # that steps are taken on
                                peers=None)         # a Python that has Lightning


def commit():
    """As a table names it."""
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=SOURCE, check=True, capture_output=True,
                          text=True).stdout.strip()


def brim(*args):
    """The lines of metrics.jsonl of a run of the trainer."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        subprocess.run([TRAINER, *map(str, args), "--output", run], check=True,
                       capture_output=True, text=True)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def peer(script, *args, environment=None, python=sys.executable):
    result = subprocess.run([python, PEERS / script, *map(str, args)], check=True,
                            capture_output=True, text=True, env={**os.environ, **(environment or {})})
    return json.loads(result.stdout.splitlines()[-1])


def tcmalloc():
    """The library of Debian's package, which need not be installed."""
    folder = SOURCE / "build" / "benchmarks" / "tcmalloc"
    if not folder.exists():
        folder.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "libtcmalloc-minimal4"], check=True, cwd=folder, stdout=sys.stderr)
        subprocess.run(["dpkg", "-x", *folder.glob("*.deb"), folder], check=True)
    return next(folder.glob("usr/lib/*/libtcmalloc_minimal.so.4"))
