"""Seconds in which transformers' GPT-2 of generate_text.cpp's size writes as many tokens, with its cache.

usage: generate.py [TOKENS [VOCABULARY [ROUNDS]]]
"""
import json
import statistics
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 512
vocabulary = int(sys.argv[2]) if len(sys.argv) > 2 else 257
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=8, n_embd=256, n_positions=2 * tokens, vocab_size=vocabulary,
                                   bos_token_id=0, eos_token_id=0)).eval()
prompt = torch.tensor([[1]])


def seconds_for(count):
    start = time.perf_counter()
    with torch.no_grad():
        written = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, use_cache=True,
                                 min_new_tokens=count, max_new_tokens=count, pad_token_id=0)
    assert written.shape[1] == 1 + count
    return time.perf_counter() - start


seconds_for(16)
print(json.dumps({"seconds": statistics.median(seconds_for(tokens) for _ in range(rounds))}))
