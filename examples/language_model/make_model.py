"""Write a small language model with random weights, as llama.cpp reads it: a LLaMA of two layers, in eight bits.

It generates meaningless sequences of words, with the kernels of large models.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, TokenType
from numpy.typing import NDArray

LAYERS, EMBEDDING, FEED_FORWARD, HEADS, KEY_HEADS, CONTEXT = 2, 256, 512, 4, 2, 256
WORDS = """
a add and block branch compare compiler counts device divides every float for from GPU integer is kernel lane lanes load
loads memory multiplies no of on one queue reads real register registers runs scalar shares source store stores the
thread threads to two value values vector waits wave waves with without writes
"""
SPACE = "\u2581"
"""The character for a space in a token."""


def vocabulary() -> tuple[list[str], list[TokenType]]:
    """Return tokens and their types: what every vocabulary has, each byte, letters, then `WORDS`."""
    tokens = [("<unk>", TokenType.UNKNOWN), ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", TokenType.BYTE) for byte in range(256)]
    tokens += [(letter, TokenType.NORMAL) for letter in (SPACE, *map(chr, range(ord("!"), ord("~") + 1)))]
    tokens += [(SPACE + word, TokenType.NORMAL) for word in WORDS.split()]
    tokens += [(f"[{number}]", TokenType.UNUSED) for number in range(-len(tokens) % 32)]  # rows in whole blocks
    return [token for token, _ in tokens], [kind for _, kind in tokens]


def write_model(path: Path, seed: int = 1) -> None:
    """Write the model.

    Args:
        path: of the GGUF file.
        seed: of its weights.
    """
    random = np.random.default_rng(seed)
    tokens, types = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random words")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(number) for number in range(len(tokens))])
    writer.add_token_types(types)
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    writer.add_unk_token_id(tokens.index("<unk>"))

    def weights(rows: int, columns: int, scale: float | None = None) -> NDArray[np.float32]:
        scale = columns**-0.5 if scale is None else scale
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    def add(name: str, values: NDArray[np.float32]) -> None:
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    keys = EMBEDDING * KEY_HEADS // HEADS
    add("token_embd.weight", weights(len(tokens), EMBEDDING, 1))
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{prefix}{norm}.weight", np.ones(EMBEDDING, np.float32))
        for name, rows in (("q", EMBEDDING), ("k", keys), ("v", keys), ("output", EMBEDDING)):
            add(f"{prefix}attn_{name}.weight", weights(rows, EMBEDDING))
        for name in ("gate", "up"):
            add(f"{prefix}ffn_{name}.weight", weights(FEED_FORWARD, EMBEDDING))
        add(f"{prefix}ffn_down.weight", weights(EMBEDDING, FEED_FORWARD))
    writer.add_tensor("output_norm.weight", np.ones(EMBEDDING, np.float32))
    output = weights(len(tokens), EMBEDDING)
    output[[not token.startswith(SPACE) or len(token) == 1 for token in tokens]] = 0  # only words are generated
    add("output.weight", output)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
