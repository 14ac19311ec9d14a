"""Weights with other packages' names and in several files, trainer export --format, and layers that
learn at rates of their own; with files that the safetensors package writes and reads."""
import json

import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file

from trainer import latest_checkpoint, sets, trainer

CLASSES = 10
RECIPE = """
[model]
name = "{model}"
[data]
kind = "synthetic"
samples = 8
eval_samples = 8
classes = 10
height = 32
width = 32
[batch]
global = 4
[precision]
mode = "fp32"
[optimizer]
name = "sgd"
learning_rate = 0.0
[train]
steps = 1
"""


def timm_vit():
    return timm.models.VisionTransformer(img_size=32, patch_size=4, embed_dim=64, depth=4, num_heads=4,
                                         num_classes=CLASSES)


def torchvision_vit():
    return torchvision.models.VisionTransformer(image_size=32, patch_size=4, num_layers=4, num_heads=4,
                                                hidden_dim=64, mlp_dim=256, num_classes=CLASSES)


PACKAGES = {
    ("small_vit", "timm"): timm_vit,
    ("small_vit", "torchvision"): torchvision_vit,
    ("convnext_tiny", "timm"): lambda: timm.create_model("convnext_tiny", num_classes=CLASSES),
    ("convnext_tiny", "torchvision"): lambda: torchvision.models.convnext_tiny(num_classes=CLASSES),
    ("resnet18", "timm"): lambda: timm.create_model("resnet18", num_classes=CLASSES),
}


def recipe_of(folder, model):
    path = folder / "job.toml"
    path.write_text(RECIPE.format(model=model))
    return path


@pytest.mark.parametrize("size", [(48, 48), (24, 64)])
def test_positions_of_another_image_size_are_resized_as_torchvision_does(tmp_path, size):
    recipe, file = recipe_of(tmp_path, "small_vit"), tmp_path / "theirs.safetensors"
    torch.manual_seed(3)
    state = torchvision_vit().state_dict()
    save_file(state, file)
    run = trainer("--recipe", recipe, "--output", tmp_path / "run",
                  *sets(model__pretrained=str(file), data__height=size[0], data__width=size[1]))
    assert run.returncode == 0, run.stderr
    rows, columns = size[0] // 4, size[1] // 4
    assert f"positions of 8x8 patches are resized to {rows}x{columns}" in run.stderr
    found = weights(tmp_path / "run")["encoder.pos_embedding"]
    stored = state["encoder.pos_embedding"]
    grid = stored[:, 1:].transpose(1, 2).reshape(1, 64, 8, 8)
    expected = torch.nn.functional.interpolate(grid, (rows, columns), mode="bicubic", align_corners=True)
    expected = torch.cat([stored[:, :1], expected.flatten(2).transpose(1, 2)], 1)
    assert torch.allclose(found, expected, atol=1e-6)
    if size == (48, 48):
        theirs = torchvision.models.vision_transformer.interpolate_embeddings(48, 4, state.copy())
        assert torch.allclose(found, theirs["encoder.pos_embedding"], atol=1e-6)


def weights(run):
    return load_file(latest_checkpoint(run) / "model.safetensors")


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("model, package", PACKAGES)
def test_weights_come_and_go_with_a_packages_names(tmp_path, model, package):
    """Import, a run that changes nothing, export: to the bit; and another package loads it too."""
    recipe, file = recipe_of(tmp_path, model), tmp_path / "theirs.safetensors"
    torch.manual_seed(3)
    theirs = PACKAGES[model, package]()
    save_file(theirs.state_dict(), file)
    frozen = {"model__freeze": ["conv1.*", "bn1.*", "layer*"]} if model == "resnet18" else {}
    run = trainer("--recipe", recipe, "--output", tmp_path / "run", *sets(model__pretrained=str(file), **frozen))
    assert run.returncode == 0, run.stderr
    assert ("names are timm's" in run.stderr) == (package == "timm" and model != "resnet18")
    for other in ("timm", "torchvision"):
        if (model, other) not in PACKAGES:
            continue
        exported = tmp_path / f"{other}.safetensors"
        done = trainer("export", tmp_path / "run", "--output", exported, "--format", other)
        assert done.returncode == 0, done.stderr
        PACKAGES[model, other]().load_state_dict(load_file(exported), strict=True)
        if other == package:
            assert_same(load_file(exported), theirs.state_dict())


def test_formats_that_a_model_lacks_are_refused(tmp_path):
    recipe = recipe_of(tmp_path, "small_cnn")
    assert trainer("--recipe", recipe, "--output", tmp_path / "run").returncode == 0
    for name, words in (("timm", "that package has no small_cnn"), ("onnx", "expected torchvision, timm, hf or torchscript")):
        done = trainer("export", tmp_path / "run", "--output", tmp_path / "w", "--format", name)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "w").exists()


class Sharded:
    """The weights of a small ViT in two files and an index, as the transformers package splits them."""

    def __init__(self, folder):
        self.recipe = recipe_of(folder, "small_vit")
        torch.manual_seed(3)
        self.state = torchvision_vit().state_dict()
        torch.nn.init.normal_(self.state["heads.head.weight"])
        names = sorted(self.state)
        self.shards = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
        self.map = {name: file for file, names in self.shards.items() for name in names}
        self.index = folder / "model.safetensors.index.json"
        self.folder = folder
        self.write()

    def write(self):
        for file, names in self.shards.items():
            save_file({name: self.state[name] for name in names}, self.folder / file)
        self.write_index(self.map)

    def write_index(self, weight_map):
        self.index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))

    def evaluate(self, file=None):
        return trainer("eval", "--recipe", self.recipe, "--json", *sets(model__pretrained=str(file or self.index)))

    def refused(self, *words):
        done = self.evaluate()
        assert done.returncode == 4, done.stderr
        for word in words:
            assert word in done.stderr, done.stderr


@pytest.fixture
def sharded(tmp_path):
    return Sharded(tmp_path)


def test_several_files_are_as_one(sharded, tmp_path):
    save_file(sharded.state, tmp_path / "whole.safetensors")
    apart, whole = sharded.evaluate(), sharded.evaluate(tmp_path / "whole.safetensors")
    assert apart.returncode == 0, apart.stderr
    assert apart.stdout == whole.stdout


def test_several_files_that_do_not_fit_their_index_are_refused(sharded):
    one, two = sharded.shards
    name = "class_token"
    sharded.write_index(sharded.map | {name: "../" + one})
    sharded.refused('weight_map: "class_token"', "in the same folder", "../" + one)
    sharded.write_index({key: file for key, file in sharded.map.items() if key != name})
    sharded.refused(f'"{one}" holds "class_token"', "the index doesn't know")
    sharded.write()
    save_file({key: sharded.state[key] for key in [*sharded.shards[two], name]}, sharded.folder / two)
    sharded.refused(f'"{two}" holds "class_token"', f'has in "{one}"')
    sharded.write()
    whole = (sharded.folder / two).read_bytes()
    (sharded.folder / two).write_bytes(whole[:-5])
    sharded.refused(str(sharded.folder / two))
    (sharded.folder / two).unlink()
    sharded.refused(f'the file "{two}" is missing')
    sharded.index.write_text("{")
    sharded.refused("not valid JSON")


def test_half_precision_is_converted_with_one_warning(tmp_path):
    recipe, file = recipe_of(tmp_path, "small_vit"), tmp_path / "half.safetensors"
    torch.manual_seed(3)
    state = timm_vit().half().state_dict()
    save_file(state, file)
    run = trainer("--recipe", recipe, "--output", tmp_path / "run", *sets(model__pretrained=str(file)))
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("are converted") == 1 and "Half weights are converted" in run.stderr
    assert torch.equal(weights(tmp_path / "run")["class_token"], state["cls_token"].float())


def test_differences_from_a_packages_names_are_listed(tmp_path):
    recipe, file = recipe_of(tmp_path, "small_vit"), tmp_path / "w.safetensors"
    state = timm_vit().state_dict()
    state["pos_embed"] = torch.zeros(1, 6, 64)  # five patches: of no square image
    state["blocks.9.norm1.weight"] = torch.zeros(64)
    del state["norm.bias"]
    save_file(state, file)
    done = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(file)))
    assert done.returncode == 4
    for words in ("encoder.pos_embedding: expected shape [1, 65, 64], found [1, 6, 64]",
                  'holds "blocks.9.norm1.weight" [64], for which this run has no place', "lacks encoder.ln.bias"):
        assert words in done.stderr, done.stderr
    state = timm_vit().state_dict()
    save_file({**state, "class_token": torch.zeros(1, 1, 64)}, file)
    done = trainer("eval", "--recipe", recipe, *sets(model__pretrained=str(file)))
    assert done.returncode == 4 and "class_token" in done.stderr, done.stderr


def test_both_of_inceptions_heads_start_anew_for_other_classes(tmp_path):
    recipe, file = recipe_of(tmp_path, "inception_v3"), tmp_path / "w.safetensors"
    save_file(torchvision.models.inception_v3(init_weights=False, num_classes=7).state_dict(), file)
    done = trainer("eval", "--recipe", recipe, "--json", *sets(
        model__pretrained=str(file), data__height=299, data__width=299, data__eval_samples=1))
    assert done.returncode == 0, done.stderr
    for head in ("fc", "AuxLogits.fc"):
        assert f"model.pretrained: {head} has 7 classes in the file and 10 in the model; it is re-initialised" in done.stderr


LAYERED = {"optimizer__learning_rate": 0.1, "train__steps": 1}


def test_layers_learn_slower_the_nearer_they_are_to_the_input(tmp_path):
    """After one step of plain SGD a layer has moved in proportion to its rate."""
    recipe, file = recipe_of(tmp_path, "small_vit"), tmp_path / "w.safetensors"
    torch.manual_seed(3)
    state = torchvision_vit().state_dict()
    torch.nn.init.normal_(state["heads.head.weight"], std=0.1)  # with zeros nothing below it learns
    save_file(state, file)
    moved = {}
    for decay in (1.0, 0.5):
        run = tmp_path / f"run{decay}"
        done = trainer("--recipe", recipe, "--output", run, *sets(
            model__pretrained=str(file), precision__mode="fp64", optimizer__layer_decay=decay, **LAYERED))
        assert done.returncode == 0, done.stderr
        moved[decay] = {name: tensor - state[name].double() for name, tensor in weights(run).items()}
    for name, full in moved[1.0].items():
        block = name.split("encoder_layer_")[1][0] if "encoder_layer_" in name else None
        depth = int(block) + 1 if block else 5 if name.startswith(("encoder.ln", "heads")) else 0
        # Attention's bias of keys has no effect on its result, and moves by roundings only.
        torch.testing.assert_close(moved[0.5][name], full * 0.5 ** (5 - depth), rtol=1e-5, atol=1e-12)
        assert full.abs().max() > 1e-9, name


def test_layer_decay_of_a_model_without_layers_is_refused(tmp_path):
    done = trainer("--recipe", recipe_of(tmp_path, "small_cnn"), "--dry-run", *sets(optimizer__layer_decay=0.5))
    assert done.returncode == 2 and "layer_decay = 0.5 needs a model made of blocks" in done.stderr
    done = trainer("--recipe", recipe_of(tmp_path, "small_vit"), "--dry-run", *sets(optimizer__layer_decay=0))
    assert done.returncode == 2 and "layer_decay" in done.stderr
