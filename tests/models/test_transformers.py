"""Our GPT-2 against transformers': same weights, same batches, same numbers."""
import json
import pathlib
import sys

import pytest

for module in [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]:
    del sys.modules[module]  # conftest.py's in their place: transformers imports the compiler itself
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

from parity import run_tool, shapes_of  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from trainer import sets, trainer  # noqa: E402

VOCABULARY = 97
LENGTH = 24
SMALL = {"name": "gpt", "layers": 3, "heads": 4, "width": 32}
SIZES = {"gpt2": (12, 12, 768), "gpt2_medium": (24, 16, 1024), "gpt2_large": (36, 20, 1280),
         "gpt2_xl": (48, 25, 1600)}


def config(layers, heads, width, vocabulary, context):
    return GPT2Config(n_layer=layers, n_head=heads, n_embd=width, vocab_size=vocabulary,
                      n_positions=context, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)


def small(dtype=torch.float32):
    """A small GPT-2 whose biases and norms are as after some training."""
    torch.manual_seed(5)
    model = GPT2LMHeadModel(config(3, 4, 32, VOCABULARY, LENGTH))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 1.0 if ".ln_" in name and "weight" in name else 0, 0.2)
    return model.to(dtype).eval()


def batches(count, vocabulary=VOCABULARY, length=LENGTH):
    generator = torch.Generator().manual_seed(9)
    rows = torch.randint(vocabulary, (count, 3, length + 1), generator=generator)
    tokens, labels = rows[:, :, :-1].contiguous(), rows[:, :, 1:].contiguous()
    labels[:, 1, 5:] = -100  # what is left of a row has nothing to predict
    return tokens, labels


def save_weights(folder, model, prefix=True, head=False, masks=False):
    """As transformers writes them: GPT2LMHeadModel's names, or those of older files."""
    weights = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and not head:
            continue
        weights[name if prefix else name.removeprefix("transformer.")] = tensor.clone()
    if masks:
        start = "transformer." if prefix else ""
        for layer in range(3):
            weights[f"{start}h.{layer}.attn.bias"] = torch.ones(LENGTH, LENGTH).tril()[None, None]
            weights[f"{start}h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(weights, folder / "weights.safetensors")


def run(folder, tokens, labels=None, model=None, **job):
    return run_tool(folder, tokens, labels, model=model or SMALL, optimizer={"name": "sgd", "momentum": 0.0},
                    pretrained=str(folder / "weights.safetensors"), **{"vocabulary": VOCABULARY} | job)


def loss_of(model, tokens, labels):
    logits = model(tokens).logits
    return cross_entropy(logits.flatten(0, 1), labels.flatten())


@pytest.mark.parametrize("how", [{}, {"prefix": False, "masks": True},
                                 {"head": True, "masks": True}])
def test_logits(tmp_path, how):
    model = small()
    tokens, _ = batches(2)
    save_weights(tmp_path, model, **how)
    ours = run(tmp_path, tokens, task="logits")["logits"]
    with torch.no_grad():
        theirs = torch.stack([model(batch).logits for batch in tokens])
    assert (ours - theirs).abs().max().item() <= 1e-4
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


def test_the_first_positions_of_a_longer_context(tmp_path):
    model = small()
    tokens, _ = batches(2, length=LENGTH // 2)
    save_weights(tmp_path, model)
    logits = run(tmp_path, tokens, task="logits")["logits"]
    with torch.no_grad():
        assert (logits[0] - model(tokens[0]).logits).abs().max().item() <= 1e-4


def test_what_config_json_says_of_the_model_holds_here(tmp_path):
    save_weights(tmp_path, small())
    recipe = ["--recipe", "text_bytes", "--dry-run", *sets(
        model__layers=3, model__width=32, model__heads=4, model__pretrained=str(tmp_path / "weights.safetensors"),
        data__kind="synthetic_tokens", data__vocabulary=VOCABULARY, data__length=LENGTH)]
    for change, words in (({}, None), ({"n_head": 8}, "n_head = 4, found 8"),
                          ({"activation_function": "relu"}, 'activation_function = "gelu_new", found "relu"'),
                          ({"n_head": "x"}, None)):
        saved = {**config(3, 4, 32, VOCABULARY, LENGTH).to_dict(), **change}
        (tmp_path / "config.json").write_text(json.dumps(saved))
        done = trainer(*recipe)
        assert (done.returncode, words or "") == (4 if words else 0, words or ""), done.stderr
        assert (words or "") in done.stderr


def test_another_width_is_no_other_number_of_classes(tmp_path):
    save_weights(tmp_path, small())
    done = trainer("--recipe", "text_bytes", "--dry-run", *sets(
        model__layers=3, model__width=64, model__heads=4, data__kind="synthetic_tokens",
        data__vocabulary=VOCABULARY, data__length=LENGTH, model__pretrained=str(tmp_path / "weights.safetensors")))
    assert done.returncode == 4 and "classes" not in done.stderr, done.stderr
    assert "transformer.h.0.ln_1.weight: expected shape [64], found [32]" in done.stderr, done.stderr


def test_the_line_that_converts_a_pickle_takes_tied_weights(tmp_path):
    torch.save(small().state_dict(), tmp_path / "model.bin")
    recipe = ["--recipe", "text_bytes", "--dry-run", *sets(
        model__layers=3, model__width=32, model__heads=4, data__kind="synthetic_tokens",
        data__vocabulary=VOCABULARY, data__length=LENGTH)]
    done = trainer(*recipe, *sets(model__pretrained=str(tmp_path / "model.bin")))
    assert done.returncode == 4, done.stderr
    exec(done.stderr.split('python3 -c "')[1].rsplit('"', 1)[0])
    done = trainer(*recipe, *sets(model__pretrained=str(tmp_path / "model.safetensors")))
    assert done.returncode == 0, done.stderr


def test_a_padded_vocabulary_says_the_same(tmp_path):
    model = small()
    tokens, _ = batches(1)
    save_weights(tmp_path, model)
    ours = run(tmp_path, tokens, model=SMALL | {"pad_vocabulary_to": 64}, task="logits")["logits"]
    with torch.no_grad():
        theirs = model(tokens[0]).logits
    assert ours.shape[-1] == VOCABULARY
    assert (ours[0] - theirs).abs().max().item() <= 1e-4


def test_first_gradients(tmp_path):
    model = small()
    tokens, labels = batches(1)
    save_weights(tmp_path, model)
    ours = run(tmp_path, tokens, labels, task="gradients")
    loss_of(model, tokens[0], labels[0]).backward()
    theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        error = torch.linalg.vector_norm(ours[name] - gradient)
        assert error <= 1e-4 * torch.linalg.vector_norm(gradient), name


def test_twenty_steps_in_float64(tmp_path):
    model = small()
    tokens, labels = batches(3)
    save_weights(tmp_path, model)
    ours = run(tmp_path, tokens, labels, task="train", steps=20, learning_rate=0.1, float64=True)
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        optimizer.zero_grad()
        loss_of(model, tokens[step % 3], labels[step % 3]).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        assert ours[name].dtype == torch.float64
        assert (ours[name] - parameter).abs().max().item() <= 1e-9, name


@pytest.mark.parametrize("name", SIZES)
def test_names_and_shapes(tmp_path, name):
    theirs = shapes_of(lambda: GPT2LMHeadModel(config(*SIZES[name], 50257, 1024)))
    del theirs["lm_head.weight"]  # the embedding's
    assert run_tool(tmp_path, torch.zeros(1, 1, 1024, dtype=torch.int64), model=name, task="shapes") == theirs


def test_the_124m_one(tmp_path):
    torch.manual_seed(2)
    model = GPT2LMHeadModel(config(*SIZES["gpt2"], 50257, 1024)).eval()
    tokens, _ = batches(1, vocabulary=50257, length=16)
    save_weights(tmp_path, model)
    ours = run(tmp_path, tokens, model={"name": "gpt2"}, task="logits", vocabulary=50257)["logits"][0]
    with torch.no_grad():
        theirs = model(tokens[0]).logits
    assert (ours - theirs).abs().max().item() <= 1e-4
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("pad", [1, 64])
def test_an_export_of_a_run_is_what_transformers_loads(tmp_path, pad):
    run, file = tmp_path / "run", tmp_path / "model.safetensors"
    for words in (["--recipe", "text_bytes", "--output", run, *sets(
                      model__layers=2, model__width=64, data__length=64, batch__global=16, run__seed=3,
                      schedule__warmup=0, train__steps=30, eval__enabled=False, model__pad_vocabulary_to=pad)],
                  ["export", run, "--format", "hf", "--output", file]):
        done = trainer(*words)
        assert done.returncode == 0, done.stderr
    config(2, 4, 64, 257, 64).save_pretrained(tmp_path)
    model = GPT2LMHeadModel.from_pretrained(tmp_path, local_files_only=True).eval()
    done = trainer("predict", "--devices", "cpu", "--run", run, "--tokens", 8, "--temperature", 0, "--json",
                   "--prompt", "The ")
    assert done.returncode == 0, done.stderr
    ids = list(b"The ")
    with torch.no_grad():
        for token in json.loads(done.stdout)["tokens"]:
            assert model(torch.tensor([ids])).logits[0, -1].argmax().item() == token
            ids.append(token)
