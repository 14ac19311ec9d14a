"""trainer plan and distributed.strategy = "auto": memory as runs find it, words where nothing fits, and a choice
that a run keeps."""
import json
import re

import pytest

from trainer import SOURCE, assert_same_tensors, latest_checkpoint, sets, train_in_ranks, trainer

TEXT = SOURCE / "recipes" / "text_bytes.toml"
TWO = ["--devices", "cpu,cpu"]
# Which forms of operations are faster differs from run to run, and with it what they keep.
GPT = ["--recipe", TEXT, *sets(train__steps=2, train__prompt='""', schedule__warmup=0, precision__fused=True,
                               precision__mode="fp32", eval__enabled=False)]
SMALL = [*GPT, *sets(model__layers=2, model__width=64, data__length=64, batch__global=16)]
# 26 MB of state a rank where it is split, 52 where it is not.
LARGE = [*GPT, *sets(model__layers=4, model__width=256, data__length=32, batch__global=4)]
GIB = 1 << 30


def plan(*args):
    done = trainer("plan", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def find(found, strategy, micro, recompute=()):
    return next(row for row in found["candidates"] if row["strategy"] == strategy and row["micro"] == micro
                and row["recompute"] == list(recompute) and row["shards"] == 0)


def train(output, *args):
    done = trainer("train", *args, "--output", output)
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads((output / "run.json").read_text())


@pytest.fixture(scope="module")
def small():
    return plan(*SMALL, *TWO)


def test_the_plan_ranks_every_way(small):
    rows = small["candidates"]
    assert {row["strategy"] for row in rows} == {"ddp", "zero1", "fsdp", "stages"}
    assert {row["micro"] for row in rows} == {1, 2, 4, 8}
    assert {tuple(row["recompute"]) for row in rows} == {(), ("*",)}
    # Of a pipeline of two, whose micro-batches are as many as stages at least.
    assert len(rows) == 4 * 4 * 2 and all(row["fits"] for row in rows)
    assert rows[0]["samples_per_s"] >= 0.98 * max(row["samples_per_s"] for row in rows)
    for row in rows:
        assert row["step_s"] == pytest.approx(row["compute_s"] + row["update_s"] + row["exposed_s"])
    assert find(small, "fsdp", 8)["peak_bytes"] < find(small, "ddp", 8)["peak_bytes"]
    assert find(small, "ddp", 8, ["*"])["peak_bytes"] < find(small, "ddp", 8)["peak_bytes"]
    assert find(small, "ddp", 4)["peak_bytes"] < find(small, "ddp", 8)["peak_bytes"]


@pytest.mark.parametrize("strategy, keys", [("ddp", {}), ("zero1", {"distributed__zero": True}),
                                            ("fsdp", {"distributed__strategy": "fsdp"}),
                                            ("stages", {"distributed__stages": 2})])
@pytest.mark.parametrize("micro, recompute", [(8, []), (2, ["*"])])
def test_memory_is_as_a_run_finds_it(small, tmp_path, strategy, keys, micro, recompute):
    run = train_in_ranks(2, tmp_path / "run", *SMALL, *sets(batch__micro=micro, train__recompute=recompute, **keys))
    predicted = find(small, strategy, micro, recompute)["peak_bytes"]
    memory = json.loads((run / "run.json").read_text())["memory"]
    assert ("stage_peak_bytes" in memory) == (strategy == "stages")
    assert predicted == pytest.approx(max([memory["peak_bytes"], *memory.get("stage_peak_bytes", [])]), rel=0.1)


def test_the_recipes_own_micro_batch_is_among_the_ways():
    rows = plan(*SMALL, *sets(batch__micro=3), *TWO)["candidates"]
    assert {row["micro"] for row in rows if row["strategy"] == "ddp"} == {1, 2, 3, 4, 8}


def test_images_with_evaluation_and_checkpoints(tmp_path):
    args = ["--recipe", SOURCE / "recipes" / "digits.toml", *TWO, *sets(train__steps=23, precision__fused=True,
                                                                      precision__mode="fp32")]
    _, record = train(tmp_path / "run", *args)
    # What kernels lay their factors out in is not counted, up to a sixth of so small a model's 2 MiB.
    assert find(plan(*args), "ddp", 32)["peak_bytes"] == pytest.approx(record["memory"]["peak_bytes"], rel=0.2)


def test_the_table_says_why_and_what_to_copy():
    done = trainer("plan", *SMALL, *TWO)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["strategy", "micro", "recompute", "memory", "full", "step", "samples/s"]
    why = next(line for line in lines if " fits: " in line)
    assert lines[1].split()[0] in why and "measured on these devices" in done.stdout
    assert "[distributed]\nstrategy = " in done.stdout and "[batch]\nglobal = " in done.stdout


def test_devices_that_are_not_here_are_assumed():
    found = plan(*SMALL, "--assume", "16xA100-40GB,nvlink,hdr")
    assert {(row["strategy"], row["shards"]) for row in found["candidates"]} == {
        ("ddp", 0), ("zero1", 0), ("fsdp", 0), ("fsdp", 2), ("fsdp", 4), ("fsdp", 8), ("stages", 0)}
    assert "data sheets" in found["basis"] and "16 × A100-40GB" in found["basis"]
    assert 35 * GIB < found["candidates"][0]["cap_bytes"] < 40 * GIB
    done = trainer("plan", *SMALL, "--assume", "2xl4")
    assert "predicted from data sheets for 2 × L4-24GB, pcie4, not measured" in done.stdout
    assert re.findall(r"counting the memory of (.*) \((\d) of 4\)", done.stderr) == [
        ("ddp", "1"), ("zero1", "2"), ("fsdp", "3"), ("stages = 2", "4")], done.stderr


def test_a_small_models_step_takes_its_launches():
    best = plan("text_bytes", "--assume", "8xH100-80GB,nvlink")["candidates"][0]
    assert best["strategy"] != "stages" and best["step_s"] > 1e-3


def test_rows_of_tokens_can_be_assumed_too():
    """Their shape is in the recipe."""
    nowhere = ["--set", "data.train.path=nowhere.bin"]
    here, assumed = [plan(*SMALL, *more, "--assume", "4xA100-40GB")["candidates"] for more in ([], nowhere)]
    assert here == assumed
    done = trainer("plan", *SMALL, *nowhere, "--assume", "4xA100-40GB")
    assert "the data are not here: " in done.stderr and "nowhere.bin" in done.stderr
    done = trainer("plan", "digits", "--set", "data.train.images=nowhere.gz", "--assume", "4xA100-40GB")
    assert done.returncode == 3 and "nowhere.gz" in done.stderr


@pytest.mark.parametrize("assumed, words", [("8xH1000", '"H1000" is not among A100-80GB'), ("H100", "as in 8xH100-80GB"),
                                            ("8xH100,usb", '"usb" is no link'), ("0xH100", "number of devices")])
def test_what_can_not_be_assumed_is_refused(assumed, words):
    done = trainer("plan", *SMALL, "--assume", assumed)
    assert done.returncode == 2 and done.stderr.startswith("error[usage]: --assume ") and words in done.stderr


def test_devices_are_here_or_assumed():
    done = trainer("plan", *SMALL, *TWO, "--assume", "8xH100")
    assert done.returncode == 2 and "leave out --devices" in done.stderr


@pytest.fixture(scope="module")
def capped():
    """What memory leaves the large model no whole copy on a rank."""
    found = plan(*LARGE, *TWO, *sets(device__memory_gib=1))
    least = {name: min(row["peak_bytes"] for row in found["candidates"] if row["strategy"] == name)
             for name in ("ddp", "zero1", "fsdp")}
    assert least["fsdp"] < least["zero1"] < least["ddp"]
    most = max(row["peak_bytes"] for row in found["candidates"] if row["strategy"] == "fsdp")
    assert most < least["zero1"]
    beside = GIB / 2 - found["candidates"][0]["cap_bytes"]  # a rank's, of what two may take
    return sets(device__memory_gib=2 * ((most + least["zero1"]) / 2 / 0.96 + beside) / GIB)


def test_what_ddp_can_not_hold_is_sharded(capped, tmp_path):
    found = plan(*LARGE, *TWO, *capped)
    assert {row["strategy"] for row in found["candidates"] if row["fits"]} == {"fsdp", "stages"}
    assert re.match(r"(fsdp|stages = 2) fits: .*; ddp takes .* at least; zero1 takes .* at least", found["why"])

    run = tmp_path / "run"
    auto = [*LARGE, *TWO, *capped, *sets(distributed__strategy="auto", telemetry__every_steps=1)]
    said, record = train(run, *auto)
    chosen = record["plan"]
    name, line = {"fsdp": ("fsdp", 'strategy = "fsdp"'), "stages": ("stages = 2", "stages = 2")}[chosen["strategy"]]
    assert f"strategy: {name} fits: " in said and "out of memory" not in said, said
    assert "the plan predicted " in said, said
    assert line in (run / "recipe.toml").read_text()
    assert chosen["measured"]["step_s"] > 0
    assert chosen["peak_bytes"] == pytest.approx(chosen["measured"]["peak_bytes"], rel=0.1)

    # With all the memory of the machine it would now be another one.
    said, record = train(run, *LARGE, *TWO, *sets(distributed__strategy="auto", train__steps=3), "--resume", "auto")
    assert "as this run chose" in said and record["plan"]["strategy"] == chosen["strategy"]
    assert line in (run / "recipe.toml").read_text()


def test_what_fits_nowhere_is_refused_with_what_would_help():
    little = sets(device__memory_gib=0.11)
    for done in (trainer("plan", *LARGE, *TWO, *little),
                 trainer("train", *LARGE, *TWO, *little, *sets(distributed__strategy="auto"), "--dry-run")):
        assert done.returncode == 5
        assert re.search(r"error\[resource\]: no strategy fits in memory: .* on each of 2 devices .*, found .* with "
                         r"batch\.micro = \d+.*The cheapest change: train on \d+ devices", done.stderr), done.stderr


def test_a_small_model_is_planned_under_a_small_cap():
    """The measurements of the devices fit into it too."""
    digits = ["--recipe", SOURCE / "recipes" / "digits.toml", *TWO]
    for gib in (0.09, 0.08):
        found = plan(*digits, *sets(device__memory_gib=gib))
        assert found["candidates"][0]["fits"] and found["candidates"][0]["cap_bytes"] < GIB / 20
    done = trainer("plan", *digits, *sets(device__memory_gib=0.06))
    assert done.returncode == 5 and re.search(
        r"of the 30.7 MiB that each may take 32.0 MiB are for batches being loaded and the process itself", done.stderr), done.stderr


def test_an_error_is_printed_once():
    done = trainer("plan", *SMALL, *TWO, "--set", "data.train.path=nowhere.bin")
    by_ranks = [line for line in done.stderr.splitlines() if line.startswith("error[") and "exited with" not in line]
    assert done.returncode == 3 and len(by_ranks) == 1, done.stderr


def test_auto_trains_as_the_strategy_that_it_names(tmp_path):
    said, record = train(tmp_path / "auto", *SMALL, *TWO, *sets(distributed__strategy="auto"))
    chosen = record["plan"]
    keys = {"distributed__strategy": "fsdp" if chosen["strategy"] == "fsdp" else "ddp",
            "distributed__zero": chosen["strategy"] == "zero1", "distributed__stages": chosen["stages"],
            "batch__micro": chosen["micro"]}
    train(tmp_path / "named", *SMALL, *TWO, *sets(**keys))
    assert_same_tensors(latest_checkpoint(tmp_path / "auto"), latest_checkpoint(tmp_path / "named"))


def test_auto_with_one_rank_and_with_a_tuned_batch(tmp_path):
    _, record = train(tmp_path / "one", *SMALL, "--devices", "cpu", *sets(distributed__strategy="auto"))
    assert record["plan"]["strategy"] == "ddp"
    digits = ["--recipe", SOURCE / "recipes" / "digits.toml", *sets(train__steps=2, eval__enabled=False)]
    said, record = train(tmp_path / "tuned", *digits, *TWO, *sets(distributed__strategy="auto", batch__micro="auto"))
    assert "strategy: " in said and record["tuning"]["micro"] == 32


def test_auto_chooses_what_it_is_given_nothing_of():
    for key in ("zero=true", "shards=2"):
        done = trainer("train", *SMALL, "--set", "distributed.strategy=auto", "--set", f"distributed.{key}", "--dry-run")
        assert done.returncode == 2 and f"chooses {key.split('=')[0]} too: leave it out" in done.stderr


def test_what_can_not_be_taken_is_left_out(tmp_path):
    """Batch norms of one value a channel, and more devices than a step has samples."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nname = "resnet18"\n[data]\nkind = "synthetic"\nheight = 32\nwidth = 32\nsamples = 64\n'
                      '[batch]\nglobal = 6\n[optimizer]\nname = "sgd"\nlearning_rate = 0.01\n[train]\nsteps = 2\n'
                      '[eval]\nenabled = false\n')
    found = plan("--recipe", recipe, *TWO)
    assert {row["micro"] for row in found["candidates"]} == {2, 3}
    synchronized = plan("--recipe", recipe, *TWO, *sets(distributed__sync_batch_norm=True))  # of two ranks' values
    assert {row["micro"] for row in synchronized["candidates"]} == {1, 2, 3}
    many = plan(*SMALL, "--assume", "64xA100-40GB,nvlink,hdr")["candidates"][0]
    assert many["samples_per_s"] == pytest.approx(16 / many["step_s"])


def test_a_strategy_of_which_a_probe_does_not_fit_is_not_chosen(tmp_path):
    """Libraries take memory that the plan does not count, for gradients of convolutions over a pixel most."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nname = "resnet18"\n[data]\nkind = "synthetic"\nheight = 32\nwidth = 32\nsamples = 64\n'
                      '[batch]\nglobal = 8\nmicro = 4\n[optimizer]\nname = "adamw"\n[train]\nsteps = 2\n[eval]\nenabled = false\n'
                      '[precision]\nmode = "fp32"\nfused = false\n')
    args = ["--recipe", recipe, *TWO]
    found = plan(*args)
    beside = json.loads(trainer("plan", *args, *sets(device__memory_gib=1), "--json").stdout)["candidates"][0]["cap_bytes"]
    enough = find(found, "fsdp", 4)["peak_bytes"] / 0.955 + GIB / 2 - beside
    little = sets(device__memory_gib=2 * enough / GIB)
    for done in (trainer("plan", *args, *little),
                 trainer("train", *args, *little, *sets(distributed__strategy="auto"), "--output", tmp_path / "run")):
        assert done.returncode in (0, 5) and "out of memory" not in done.stderr, done.stderr
        assert done.returncode == 0 or "no strategy fits in memory: " in done.stderr, done.stderr
