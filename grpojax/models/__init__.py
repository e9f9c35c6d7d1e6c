"""The policy: token ids -> hidden states, with and without a KV cache; one decoder, many families."""

from grpojax.models.attention import left_padded
from grpojax.models.decoder import Cache, Decoder, Model, build, from_spec, head_precision, logits
from grpojax.models.moe import Routed, by_layers, by_rows, expert_cost, load_balance_loss, unrouted
from grpojax.models.parts import REMAT
from grpojax.models.spec import Moe, Spec, from_folder, scores_from_folder

__all__ = [
  "REMAT", "Cache", "Decoder", "Model", "Moe", "Routed", "Spec", "build", "by_layers", "by_rows",
  "expert_cost", "from_folder", "from_spec", "head_precision", "left_padded", "load_balance_loss", "logits",
  "scores_from_folder", "unrouted",
]  # fmt: skip
