"""The policy: token ids -> hidden states, with and without a KV cache."""

from grpojax.models.decoder import Cache, Decoder, Model, build

__all__ = ["Cache", "Decoder", "Model", "build"]
