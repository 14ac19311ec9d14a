"""distributed.stages: ranks that compute a model's parts one after the other learn what one rank learns,
through faults, shortages and changes of their number."""
import json
import re

import pytest

from runs import SHORT_TIMEOUT_S, TRAINER, job, run, with_fault  # noqa: F401
from test_fsdp import GPT, alone  # noqa: F401
from test_same_maths import MLP, difference, image_recipe, train, without_distributed
from trainer import assert_same_tensors, latest_checkpoint, metrics, sets, trainer


def stages(count, **more):
    return sets(distributed__stages=count, **{f"distributed__{name}": value for name, value in more.items()})


GPT1 = [*GPT, *sets(batch__micro=1)]


@pytest.mark.parametrize("ranks, args", [
    (2, stages(2)),
    (3, [*stages(3, schedule="gpipe"), *sets(train__clip_norm=0.1, train__ema=0.9)]),
    (4, [*stages(2), *sets(train__recompute=["*"], train__clip_norm=0.1, batch__global=8)]),
    (5, stages(5)),  # a part each
    (2, [*stages(2), *sets(model__freeze=["transformer.h.1.*", "transformer.wpe.*"], optimizer__name="sgd")]),
])
def test_a_gpt_whose_output_layer_is_its_embedding(alone, tmp_path, ranks, args):  # noqa: F811
    one = alone(*GPT1, *without_distributed(args))
    together = train(tmp_path / "run", *GPT1, *args, ranks=ranks)
    assert difference(one, together) < 1e-9
