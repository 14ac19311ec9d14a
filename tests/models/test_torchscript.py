"""Models scripted in Python: the trainer's steps are Python's, on one rank and on two, saved and resumed,
and the weights come back under the same names."""
import json
import pathlib
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from trainer import assert_same_tensors, latest_checkpoint, metrics, sets, trainer  # noqa: E402
from test_torchvision import batches, run_tool  # noqa: E402

RECIPE = """
[model]
torchscript = "net.pt"
[data]
kind = "synthetic"
samples = 512
eval_samples = 64
height = 16
width = 16
[batch]
global = 32
[precision]
mode = "fp32"
[optimizer]
name = "adamw"
learning_rate = 1e-2
[train]
steps = 20
[telemetry]
every_steps = 1
"""


class Net(torch.nn.Module):
    """With a buffer of integers, which must stay one, and a branch on the mode."""

    def __init__(self, norm=True, dropout=0.0):
        super().__init__()
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.gain = torch.nn.Parameter(torch.ones(1))
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4),
                                        torch.nn.BatchNorm2d(8) if norm else torch.nn.Identity(), torch.nn.ReLU())
        self.dropout = dropout
        self.head = torch.nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.body(images[:, self.order]) * self.gain
        if self.training and self.dropout > 0:
            x = torch.nn.functional.dropout(x, self.dropout, True)
        return self.head(x.flatten(1))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 10, 16)
        self.again = torch.nn.Linear(10, 10)
        self.head = torch.nn.Linear(10, 10)
        self.head.weight = self.again.weight

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.again(self.first(images).flatten(1))))


def scripted(folder, model):
    torch.jit.script(model).save(folder / "net.pt")
    (folder / "net.toml").write_text(RECIPE)
    return folder / "net.toml"


@pytest.fixture
def net(tmp_path):
    torch.manual_seed(1)
    model = Net()
    return scripted(tmp_path, model), model


def train(recipe, output, *args, **values):
    done = trainer("--recipe", recipe, "--output", output, *args, *sets(**values))
    assert done.returncode == 0, done.stderr
    return latest_checkpoint(output)


def losses(run):
    return [line["loss"] for line in metrics(run) if "loss" in line]


@pytest.mark.parametrize("make", [Net, Tied])
def test_five_steps_in_float64(tmp_path, make):
    torch.manual_seed(1)
    model = make().double()
    scripted(tmp_path, model)
    images, labels = batches(5, torch.float64, size=16)
    found = run_tool(tmp_path, images, labels, task="train", steps=5, precision="fp64",
                     model={"name": "torchscript", "torchscript": str(tmp_path / "net.pt")},
                     optimizer={"name": "sgd", "momentum": 0.9})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[step]), labels[step])
        loss.backward()
        optimizer.step()
        assert abs(found["losses"][step] - loss) < 1e-9
    expected = dict(model.named_parameters()) | dict(model.named_buffers())  # a shared one once
    assert found.keys() - {"losses"} == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.allclose(found[name], tensor, rtol=0, atol=1e-9), name


def test_it_learns_and_comes_back(net, tmp_path):
    recipe, model = net
    train(recipe, tmp_path / "run")
    falling = losses(tmp_path / "run")
    assert falling[-1] < 0.7 * falling[0]
    done = trainer("export", latest_checkpoint(tmp_path / "run"), "--output", tmp_path / "net.safetensors")
    assert done.returncode == 0, done.stderr
    model.load_state_dict(load_file(tmp_path / "net.safetensors"), strict=True)
    assert model.body[1].num_batches_tracked == 20 and torch.equal(model.order, torch.tensor([2, 0, 1]))
    script = tmp_path / "trained.pt"
    done = trainer("export", latest_checkpoint(tmp_path / "run"), "--output", script, "--format", "torchscript")
    assert done.returncode == 0, done.stderr
    images = torch.randn(4, 3, 16, 16)
    assert torch.equal(torch.jit.load(script).eval()(images), model.eval()(images))
    done = trainer("eval", tmp_path / "run", "--json")
    assert done.returncode == 0 and '"samples":64' in done.stdout, done.stderr


def test_weights_of_float64_stay_so_in_a_script(net, tmp_path):
    recipe, _ = net
    run = train(recipe, tmp_path / "run", precision__mode="fp64", train__steps=2)
    script = tmp_path / "trained.pt"
    done = trainer("export", run, "--output", script, "--format", "torchscript")
    assert done.returncode == 0, done.stderr
    ours, kept = torch.jit.load(script).state_dict(), load_file(run / "model.safetensors")
    assert kept["head.weight"].dtype == torch.float64
    for name, tensor in kept.items():
        assert ours[name].dtype == tensor.dtype and torch.equal(ours[name], tensor), name
    assert torch.jit.load(script)(torch.randn(4, 3, 16, 16, dtype=torch.float64)).dtype == torch.float64


def test_bf16_and_the_recipes_other_means(net, tmp_path):
    recipe, _ = net
    train(recipe, tmp_path / "run", precision__mode="bf16", train__ema=0.9, batch__micro=12, train__clip_norm=1.0,
          model__freeze=["body.*"])
    kept, start = load_file(latest_checkpoint(tmp_path / "run") / "model.safetensors"), net[1].state_dict()
    for name in "body.0.weight", "body.1.weight", "body.1.running_mean":  # a frozen norm stays in evaluation mode
        assert torch.equal(kept[name], start[name]), name
    assert not torch.equal(kept["head.weight"], start["head.weight"])


@pytest.mark.parametrize("model, strategy", [(lambda: Net(norm=False), "ddp"), (lambda: Net(norm=False), "fsdp"), (Tied, "fsdp")])
def test_two_ranks_are_one(tmp_path, model, strategy):
    torch.manual_seed(1)
    recipe = scripted(tmp_path, model())
    values = {"precision__mode": "fp64", "train__steps": 5, "data__samples": 67, "batch__global": 33}
    one = train(recipe, tmp_path / "one", **values)  # the third step has one sample: a rank has none
    two = train(recipe, tmp_path / "two", "--devices", "cpu,cpu", **values, distributed__strategy=strategy)
    one, two = (load_file(run / "model.safetensors") for run in (one, two))
    for name in one:
        assert torch.allclose(one[name], two[name], rtol=0, atol=1e-9), name


def test_a_resumed_run_is_the_whole_one(tmp_path):
    torch.manual_seed(1)
    recipe = scripted(tmp_path, Net(dropout=0.3))
    whole = train(recipe, tmp_path / "whole", checkpoint__every_steps=10)
    resumed = train(recipe, tmp_path / "resumed", "--resume", whole.parent / "step-00000010")
    assert_same_tensors(whole, resumed)


def test_memory_that_runs_out_is_known_as_such(net, tmp_path):
    """The interpreter hands the shortage on: the tuner and the retried step depend on it."""
    large = sets(batch__global=40000, data__samples=40000, device__memory_gib=0.3)
    done = trainer("--recipe", net[0], "--output", tmp_path / "run", *large, *sets(train__steps=1))
    assert done.returncode == 0 and "retrying the step with micro-batch 20000" in done.stderr, done.stderr
    done = trainer("tune", "--recipe", net[0], "--json", *large, *sets(batch__micro="auto"))
    assert done.returncode == 0 and 8 <= json.loads(done.stdout)["micro"] < 40000, done.stderr


def refused(recipe, **values):
    done = trainer("--recipe", recipe, *sets(**values))
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_data_of_another_shape(net):
    recipe, _ = net
    assert "gives float [1, 10] for one image: expected floating-point [1, 7]" in refused(recipe, data__classes=7)
    assert "fails on an image of 1 channels, 16x16" in refused(recipe, data__channels=1)


class Rounded(Net):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).flatten(1)).long()


def test_logits_of_integers(tmp_path):
    expected = "gives long [1, 10] for one image: expected floating-point [1, 10]"
    assert expected in refused(scripted(tmp_path, Rounded()))


def test_a_base_recipes_model_gives_way(net, tmp_path):
    recipe, _ = net
    base = tmp_path / "base.toml"
    base.write_text(RECIPE.replace('torchscript = "net.pt"', 'name = "resnet18"'))
    train(base, tmp_path / "run", model__torchscript=str(tmp_path / "net.pt"), train__steps=1)


def test_files_that_are_no_scripted_modules(net, tmp_path):
    recipe, model = net
    assert "there is no such file" in refused(recipe, model__torchscript="absent.pt")
    torch.save(model.state_dict(), tmp_path / "pickle.pt")
    save_file(model.state_dict(), tmp_path / "weights.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "net.pt").read_bytes()[:1000])
    for name in "pickle.pt", "weights.pt", "cut.pt":
        assert "expected a scripted module" in refused(recipe, model__torchscript=str(tmp_path / name))
    torch.jit.freeze(torch.jit.script(model.eval())).save(tmp_path / "frozen.pt")
    assert "no parameters to train" in refused(recipe, model__torchscript=str(tmp_path / "frozen.pt"))
