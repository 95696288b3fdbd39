"""A tokenizer and a random model that are made here, and need no download."""

from __future__ import annotations

import json

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

__all__ = ["chat_tokenizer", "tiny_model", "tool_call"]

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_tokenizer(template=CHAT):
    """Each byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tags = ["tool_call", "think", "tool_response"]
    fast.add_tokens([f"<{slash}{tag}>" for tag in tags for slash in ("", "/")])
    fast.chat_template = template
    return fast


class Scripted(Qwen2ForCausalLM):
    """A model with random weights, which are trained; a function writes its replies."""

    def generate(self, input_ids, **_):
        tokenizer = self.tokenizer
        replies = [
            tokenizer(self.reply(tokenizer.decode(ids)))["input_ids"]
            + [tokenizer.eos_token_id]
            for ids in input_ids
        ]
        width = max(map(len, replies))
        padding = tokenizer.pad_token_id
        padded = [ids + [padding] * (width - len(ids)) for ids in replies]
        return torch.cat([input_ids, torch.tensor(padded)], dim=1)


def tiny_model(tokenizer, reply):
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    model = Scripted(config)
    model.tokenizer, model.reply = tokenizer, reply
    return model


def tool_call(name, **arguments):
    """A call as Qwen writes it."""
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"
