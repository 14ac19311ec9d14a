"""How benchmarks/run starts Brim and its peers, with what its options have changed."""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import types

SOURCE = pathlib.Path(__file__).resolve().parents[1]
# In a folder of scripts/package, bin/ holds the programs and there is no commit to describe.
IS_PACKAGE = (SOURCE / "gpu_check").exists()
TRAINER = SOURCE / ("bin" if IS_PACKAGE else "build/release/bin") / "trainer"
RESULTS = pathlib.Path.cwd() if IS_PACKAGE else SOURCE / "benchmarks" / "results"
PEERS = SOURCE / "benchmarks" / "peers"

options = types.SimpleNamespace(steps=6, warmup=2,  # of ResNet-50's
                                device="cpu",       # that steps are taken on
                                modes=["tuned", "compile"],  # of the tuned peer
                                peers=None)         # a Python that has Lightning


def commit():
    """As a table names it."""
    if IS_PACKAGE:
        said = subprocess.run([TRAINER, "--version"], check=True, capture_output=True, text=True).stdout
        return next(line.split()[1] for line in said.splitlines() if line.startswith("commit"))
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=SOURCE, check=True, capture_output=True,
                          text=True).stdout.strip()


def output_of(command, environment=None):
    """What a program prints; where it fails, what it said of that is shown."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return done.stdout


def training_lines(run):
    """Those of metrics.jsonl."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def brim(*args, environment=None):
    """The training lines of a run of the trainer."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        output_of([TRAINER, *map(str, args), "--output", run], environment)
        return training_lines(run)


def peer(script, *args, environment=None, python=sys.executable):
    printed = output_of([python, PEERS / script, *map(str, args)], environment)
    return json.loads(printed.splitlines()[-1])


def tcmalloc():
    """The library of Debian's package, which need not be installed."""
    folder = SOURCE / "build" / "benchmarks" / "tcmalloc"
    if not folder.exists():
        folder.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "libtcmalloc-minimal4"], check=True, cwd=folder, stdout=sys.stderr)
        subprocess.run(["dpkg", "-x", *folder.glob("*.deb"), folder], check=True)
    return next(folder.glob("usr/lib/*/libtcmalloc_minimal.so.4"))


TICKS_PER_S = os.sysconf("SC_CLK_TCK")
OTHERS_ALLOWED = 0.03  # of all cores' time
ATTEMPTS = 5


def busy_s():
    """Seconds that this machine's cores have worked for anyone, and those that its host has kept from it."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def own_s():
    """Of that what this process and its ended children took."""
    return sum(time for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
               for time in resource.getrusage(who)[:2])


def others_share(work):
    """The value of work(), and the share of all cores' time that others took meanwhile."""
    start, busy, own = time.monotonic(), busy_s(), own_s()
    value = work()
    cores_s = (time.monotonic() - start) * os.cpu_count()
    return value, max(0.0, busy_s() - busy - (own_s() - own)) / cores_s


def without_others(work):
    """The value of work() from a run beside which the machine did little else, and the share that others took all
    the same. Waits for quiet cores first; the best of some attempts where they never are. On a GPU, once."""
    if options.device == "cuda":
        return others_share(work)
    best = None
    for attempt in range(ATTEMPTS):
        for _ in range(60):
            if others_share(lambda: time.sleep(1))[1] <= OTHERS_ALLOWED:
                break
        value, share = others_share(work)
        if best is None or share < best[1]:
            best = value, share
        if share <= OTHERS_ALLOWED:
            break
        print(f"other work took {100 * share:.0f} % of the cores beside this run: measuring again "
              f"({attempt + 1} of {ATTEMPTS})", file=sys.stderr)
    return best
