"""Our vision models against torchvision's and timm's: weights that these packages saved, loaded here
as a run loads them, give their numbers; and go back to the bit."""
import functools

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from parity import as_used, run_tool, shapes_of, worst

CLASSES = 10
SMALL_VIT = {"torchvision": functools.partial(torchvision.models.VisionTransformer, image_size=32, patch_size=4,
                                              num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=256),
             "timm": functools.partial(timm.models.VisionTransformer, img_size=32, patch_size=4, embed_dim=64,
                                       depth=4, num_heads=4)}

INCEPTION = functools.partial(torchvision.models.inception_v3, init_weights=True)


def of_timm(name):
    return functools.partial(timm.create_model, name)


# Each kind of block and each package's names once, in numbers: our name, the package's model, and the side of
# its images.
MODELS = [("small_vit", "torchvision", SMALL_VIT["torchvision"], 32),
          ("small_vit", "timm", SMALL_VIT["timm"], 32),
          ("resnet34", "torchvision", torchvision.models.resnet34, 64),
          ("resnext50_32x4d", "torchvision", torchvision.models.resnext50_32x4d, 64),
          ("convnext_tiny", "torchvision", torchvision.models.convnext_tiny, 64),
          ("resnet50", "timm", of_timm("resnet50"), 64),
          ("convnext_tiny", "timm", of_timm("convnext_tiny"), 64),
          ("vit_s16", "timm", of_timm("vit_small_patch16_224"), 224),
          ({"name": "inception_v3"}, "torchvision", functools.partial(INCEPTION, aux_logits=True), 299),
          ({"name": "inception_v3", "auxiliary": False}, "timm", of_timm("inception_v3"), 299)]
# Models that differ from those by constants: names, dtypes and shapes.
VARIANTS = [*((name, "torchvision", getattr(torchvision.models, name)) for name in (
                "resnet18", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "wide_resnet101_2",
                "resnext101_32x8d", "resnext101_64x4d", "convnext_small", "convnext_base")),
            ("vit_b16", "torchvision", torchvision.models.vit_b_16),
            ("vit_l16", "torchvision", torchvision.models.vit_l_16),
            ("resnext50_32x4d", "timm", of_timm("resnext50_32x4d")),
            ("vit_b16", "timm", of_timm("vit_base_patch16_224"))]


def name_of(model):
    return model["name"] if isinstance(model, dict) else model


def inputs(count, batch, size, dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(count, batch, 3, size, size, generator=generator).to(dtype)
    return images, torch.randint(CLASSES, (count, batch), generator=generator)


@pytest.mark.parametrize("ours, package, make, size", MODELS,
                         ids=[f"{package}-{name_of(ours)}" for ours, package, _, _ in MODELS])
def test_logits_and_the_way_back(tmp_path, ours, package, make, size):
    torch.manual_seed(3)
    model = as_used(make(num_classes=CLASSES)).eval()
    file = tmp_path / "weights.safetensors"
    save_file(model.state_dict(), file)
    images, _ = inputs(1, 2, size)
    given = {"model": ours, "pretrained": str(file)}
    found = run_tool(tmp_path, images, task="logits", **given)["logits"][0]
    with torch.no_grad():
        expected = model(images[0])
    assert ((found - expected).abs().max() / expected.abs().max()).item() <= 1e-4
    assert torch.equal(found.argmax(1), expected.argmax(1))
    back = run_tool(tmp_path, images, task="weights", format=package, **given)
    state = model.state_dict()
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert back[name].dtype == tensor.dtype and torch.equal(back[name], tensor), name


@pytest.mark.parametrize("ours, package, make", VARIANTS,
                         ids=[f"{package}-{ours}" for ours, package, _ in VARIANTS])
def test_names_and_shapes(tmp_path, ours, package, make):
    found = run_tool(tmp_path, torch.zeros(1, 1, 3, 224, 224), task="shapes", format=package, model=ours)
    assert found == shapes_of(make, num_classes=CLASSES)


SEEDED = [("small_vit", SMALL_VIT["torchvision"], 32),
          ("convnext_tiny", torchvision.models.convnext_tiny, 64), ("inception_v3", INCEPTION, 299)]


@pytest.mark.parametrize("ours, make, size", SEEDED, ids=[name for name, _, _ in SEEDED])
def test_equal_seeds_give_equal_weights(tmp_path, ours, make, size):
    torch.manual_seed(11)
    theirs = make(num_classes=CLASSES).state_dict()
    found = run_tool(tmp_path, inputs(1, 1, size)[0], task="weights", seed=11, model=ours)
    assert found.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


# Dropout and stochastic depth off. Inception's auxiliary head needs images of full size.
TRAINED = {
    "small_vit": ("small_vit", SMALL_VIT["torchvision"], 32),
    "convnext": ({"name": "convnext_tiny", "stochastic_depth": 0.0},
                 functools.partial(torchvision.models.convnext_tiny, stochastic_depth_prob=0.0), 64),
    "inception": ({"name": "inception_v3", "dropout": 0.0},
                  functools.partial(INCEPTION, aux_logits=True, dropout=0.0), 299),
    "small_inception": ({"name": "inception_v3", "auxiliary": False, "dropout": 0.0},
                        # Its own initialisation gives gradients of norm 5,000, this one 1,000: roundings blow up
                        # unless steps are small.
                        functools.partial(torchvision.models.inception_v3, init_weights=False, aux_logits=False,
                                          dropout=0.0), 96),
}


def loss_of(model, images, labels):
    found = model(images)
    if isinstance(found, torch.Tensor):
        return cross_entropy(found, labels)
    return cross_entropy(found.logits, labels) + 0.4 * cross_entropy(found.aux_logits, labels)


@pytest.mark.parametrize("name, count", [("small_vit", 4), ("convnext", 4), ("inception", 2)])
def test_first_gradients(tmp_path, name, count):
    ours, make, size = TRAINED[name]
    torch.manual_seed(3)
    model = as_used(make(num_classes=CLASSES))
    images, labels = inputs(1, count, size)
    found = run_tool(tmp_path, images, labels, model.state_dict(), ours, task="gradients")
    loss_of(model, images[0], labels[0]).backward()
    error, tensor = worst(found, {key: parameter.grad for key, parameter in model.named_parameters()})
    assert error <= 1e-4, tensor


@pytest.mark.parametrize("name, size, learning_rate, count", [
    ("small_vit", 32, 0.01, 20), ("convnext", 32, 0.01, 2), ("small_inception", 128, 1e-6, 2)])
def test_steps_in_float64(tmp_path, name, size, learning_rate, count):
    """Running means and variances are compared too, and how often they were updated. Images are large
    enough that no batch norm divides by the deviation of a handful of values, which would blow up roundings."""
    ours, make, _ = TRAINED[name]
    torch.manual_seed(3)
    model = as_used(make(num_classes=CLASSES)).double()
    images, labels = inputs(2, 4, size, torch.float64)
    found = run_tool(tmp_path, images, labels, model.state_dict(), ours, {"name": "sgd", "momentum": 0.9},
                     task="train", steps=count, learning_rate=learning_rate, weight_decay=1e-4)
    steps = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(count):
        steps.zero_grad()
        loss = loss_of(model, images[step % 2], labels[step % 2])
        loss.backward()
        steps.step()
        losses.append(loss.detach())
    error, tensor = worst(found, model.state_dict() | {"losses": torch.stack(losses)})
    assert error <= 1e-9, tensor
    assert losses[-1] != losses[0]


def test_stochastic_depth_drops_what_torchvisions_drops(tmp_path):
    """From equal random numbers, in training."""
    torch.manual_seed(3)
    model = as_used(torchvision.models.convnext_tiny(stochastic_depth_prob=0.5, num_classes=CLASSES))
    images, labels = inputs(1, 4, 32)
    found = run_tool(tmp_path, images, labels, model.state_dict(), {"name": "convnext_tiny", "stochastic_depth": 0.5},
                     task="gradients", seed=5)
    torch.manual_seed(5)
    torchvision.models.convnext_tiny(num_classes=CLASSES)  # the tool draws as many for weights it doesn't keep
    loss_of(model, images[0], labels[0]).backward()
    error, tensor = worst(found, {key: parameter.grad for key, parameter in model.named_parameters()})
    assert error <= 1e-4, tensor
