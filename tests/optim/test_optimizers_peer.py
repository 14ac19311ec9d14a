"""Every optimizer against torch.optim, or against its paper, in float64 over 20 steps and more."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch

TOOL = pathlib.Path(os.environ["BRIM_BIN_DIR"]) / "optim_tool"
STEPS = 24
RATE = 0.05
SKIPPED = (0, 5, 6, 23)  # where the scaler finds an infinity; the first step is the delicate one


def job(optimizer, weight_decay, start, gradients, grad_scale=0.0, skipped=()):
    recipe = [f"learning_rate = {RATE}", f"weight_decay = {weight_decay}",
              f"grad_scale = {grad_scale}", "[optimizer]"]
    recipe += [f"{key} = {json.dumps(value)}" for key, value in optimizer.items()]
    return {"task": "step", "recipe": "\n".join(recipe), "start": flat(start).tolist(),
            "gradients": [(flat(pair) * (grad_scale or 1.0)).tolist() for pair in gradients],
            "found_inf": [float(step in skipped) for step in range(len(gradients))]}


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


def problem():
    generator = torch.Generator().manual_seed(3)
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)
    start = (make(4, 3), make(4))
    return start, [(make(4, 3), make(4)) for _ in range(STEPS)]


def reference(make_optimizer, weight_decay, start, gradients, skipped=()):
    weight, bias = [t.clone().requires_grad_() for t in start]
    optimizer = make_optimizer([{"params": [weight], "weight_decay": weight_decay},
                                {"params": [bias], "weight_decay": 0.0}])
    rows = []
    for step, (weight.grad, bias.grad) in enumerate(gradients):
        if step not in skipped:
            optimizer.step()
        rows.append(flat([weight, bias]).numpy())
    return np.stack(rows)


class Lamb:
    """Algorithm 2 of You et al., ICLR 2020, with phi the identity; the trust ratio for groups that
    decay. Written from the paper, one parameter at a time."""

    def __init__(self, groups, beta1=0.9, beta2=0.999, epsilon=1e-6):
        self.groups, self.betas, self.epsilon, self.t, self.state = groups, (beta1, beta2), epsilon, 0, {}

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for group in self.groups:
            for x in group["params"]:
                m, v = self.state.get(x, (torch.zeros_like(x), torch.zeros_like(x)))
                m = b1 * m + (1 - b1) * x.grad
                v = b2 * v + (1 - b2) * x.grad ** 2
                self.state[x] = m, v
                r = (m / (1 - b1 ** self.t)) / ((v / (1 - b2 ** self.t)).sqrt() + self.epsilon)
                ratio = 1.0
                if group["weight_decay"] > 0:
                    r = r + group["weight_decay"] * x
                    ratio = x.norm() / r.norm()
                x -= RATE * ratio * r


class Lars:
    """Algorithm 1 of You et al., 2017; the local rate for groups that decay."""

    def __init__(self, groups, momentum=0.9, eta=0.001):
        self.groups, self.momentum, self.eta, self.state = groups, momentum, eta, {}

    @torch.no_grad()
    def step(self):
        for group in self.groups:
            beta = group["weight_decay"]
            for w in group["params"]:
                local = 1.0
                if beta > 0:
                    local = self.eta * w.norm() / (w.grad.norm() + beta * w.norm())
                v = self.momentum * self.state.get(w, 0.0) + RATE * local * (w.grad + beta * w)
                self.state[w] = v
                w -= v


def sgd(**kwargs):
    return lambda groups: torch.optim.SGD(groups, lr=RATE, **kwargs)


CASES = {
    "sgd plain": ({"name": "sgd", "momentum": 0.0}, sgd()),
    "sgd momentum": ({"name": "sgd", "momentum": 0.9}, sgd(momentum=0.9)),
    "sgd nesterov": ({"name": "sgd", "momentum": 0.8, "nesterov": True},
                     sgd(momentum=0.8, nesterov=True)),
    "adam": ({"name": "adam"}, lambda groups: torch.optim.Adam(groups, lr=RATE)),
    "adam betas": ({"name": "adam", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3},
                   lambda groups: torch.optim.Adam(groups, lr=RATE, betas=(0.8, 0.95), eps=1e-3)),
    "adamw": ({"name": "adamw"}, lambda groups: torch.optim.AdamW(groups, lr=RATE)),
    "lamb": ({"name": "lamb"}, Lamb),
    "lamb betas": ({"name": "lamb", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3},
                   lambda groups: Lamb(groups, 0.8, 0.95, 1e-3)),
    "lars": ({"name": "lars"}, Lars),
    "lars eta": ({"name": "lars", "momentum": 0.5, "eta": 0.1}, lambda g: Lars(g, 0.5, 0.1)),
}


DECAYS = (0.0, 0.1)
MAX_NORMS = (0.5, 3.0, 100.0)


@pytest.fixture(scope="module")
def ours():
    """What Brim computes, by (test, case, ...): all in one process."""
    start, gradients = problem()
    jobs = {}
    for case, (keys, _) in CASES.items():
        for decay in DECAYS:
            jobs["plain", case, decay] = job(keys, decay, start, gradients)
        jobs["scaled", case] = job(keys, 0.1, start, gradients, 1024.0, SKIPPED)
    for max_norm in MAX_NORMS:
        jobs["clip", max_norm] = {"task": "clip", "max_norm": max_norm,
                                  "gradients": flat(gradients[0]).tolist()}
    done = subprocess.run([TOOL], capture_output=True, text=True,
                          input=json.dumps(list(jobs.values())))
    assert done.returncode == 0, done.stderr
    return {key: np.array(result) for key, result in zip(jobs, json.loads(done.stdout))}


@pytest.mark.parametrize("weight_decay", DECAYS)
@pytest.mark.parametrize("case", CASES)
def test_same_steps(ours, case, weight_decay):
    rows = ours["plain", case, weight_decay]
    np.testing.assert_allclose(rows, reference(CASES[case][1], weight_decay, *problem()),
                               rtol=1e-12)
    assert not np.allclose(rows[0], rows[-1])


@pytest.mark.parametrize("case", CASES)
def test_scaled_and_skipped_steps(ours, case):
    """The scaler's tensors: scaled gradients, and steps with infinities that must leave no trace."""
    rows = ours["scaled", case]
    np.testing.assert_allclose(rows, reference(CASES[case][1], 0.1, *problem(), SKIPPED),
                               rtol=1e-12)
    for step in SKIPPED[1:]:
        assert np.array_equal(rows[step], rows[step - 1])


@pytest.mark.parametrize("max_norm", MAX_NORMS)
def test_clip_is_torchs(ours, max_norm):
    tensors = [t.clone().requires_grad_() for t in problem()[0]]
    for tensor, gradient in zip(tensors, problem()[1][0]):
        tensor.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_(tensors, max_norm)
    theirs = torch.cat([norm.reshape(1), flat([t.grad for t in tensors])])
    np.testing.assert_allclose(ours["clip", max_norm], theirs.numpy(), rtol=1e-12)
