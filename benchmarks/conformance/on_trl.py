"""Replays the cases through TRL's GRPOTrainer.  Written for trl 1.16.0 on torch, without a model to speak of.

    python on_trl.py CASES_FOLDER          # prints a line of JSON for each case

The trainer is TRL's own, constructed by its GRPOConfig; `_generate_and_score_completions` makes advantages
and weights, `_compute_loss` the loss.  Of what feeds them three things are the case's: the rewards, which
tokens are the policy's, and the log-probs that a model would give.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= dict(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRL_EXPERIMENTAL_SILENCE="1")

import asked
import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

torch.set_default_dtype(torch.float64)
OF_THE_TRAINER = ("beta", "use_vllm")  # set once it is made, which would load a reference, or an engine


def array(values) -> torch.Tensor:
  """Returns numbers in float64."""
  return torch.tensor(values, dtype=torch.get_default_dtype())


def given(trainer_class):
  """Returns the trainer that reads the case where others would ask a model."""

  class Given(trainer_class):
    case: dict

    def _generate(self, prompts):
      T = len(self.case["mask"][0])
      ids = [[2] * T for _ in prompts]
      mask = on(self.case).long().tolist()
      sampler = self.case["logp_rollout"] if self.use_vllm else None
      return [[1]] * len(prompts), ids, mask, ["x"] * len(prompts), sampler, {}, None, None

    def _calculate_rewards(self, inputs, prompts, completions, ids):
      return rewards(self.case)

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
      if torch.is_grad_enabled():
        logp = self.logp
      else:
        logp = torch.tensor(self.case["logp_ref" if model is self.ref_model else "logp_old"])
      return logp, torch.zeros_like(logp), None

  return Given


def on(case: dict) -> torch.Tensor:
  """Returns the mask [B, T] of valid rows."""
  valid = torch.tensor(case.get("valid") or [True] * len(case["mask"]))
  return array(case["mask"]) * valid[:, None]


def rewards(case: dict) -> torch.Tensor:
  """Returns rewards [B, K], NaN where there is none."""
  if case["hyper"]["adv"]["kind"] == "gdpo":
    found = array(case["extra"]["rewards_k"])
    known = torch.tensor(case["extra"].get("reward_valid") or [[True] * found.shape[1]] * len(found)).bool()
  else:
    found = array(case["rewards"] or [0.0] * len(case["mask"]))[:, None]
    known = torch.ones_like(found).bool()
  valid = torch.tensor(case.get("valid") or [True] * len(found)).bool()
  return torch.where(known & valid[:, None], found, torch.nan)


def trainer_of(case: dict, config: dict, folder: str):
  """Returns TRL's trainer for the case, ready for one update."""
  gmpo = case["hyper"]["clip"]["kind"] == "gmpo"
  kind, config_class = (GMPOTrainer, GMPOConfig) if gmpo else (trl.GRPOTrainer, trl.GRPOConfig)
  later = {key: config[key] for key in OF_THE_TRAINER if key in config}
  arguments = config_class(
    output_dir=folder, report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
    num_iterations=2,  # so that log pi_old is kept
    **{key: value for key, value in config.items() if key not in OF_THE_TRAINER},
  )  # fmt: skip
  vocabulary = models.WordLevel({"<pad>": 0, "</s>": 1, "x": 2}, unk_token="x")
  tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(vocabulary), pad_token="<pad>", eos_token="</s>"
  )
  sizes = dict(vocab_size=3, hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1)
  model = LlamaForCausalLM(LlamaConfig(**sizes))
  parts = rewards(case).shape[1]
  functions = [lambda completions, **_: [0.0] * len(completions) for _ in range(parts)]
  for number, function in enumerate(functions):
    function.__name__ = f"reward_{number}"
  trainer = given(kind)(
    model=model, args=arguments, processing_class=tokenizer, reward_funcs=functions,
    train_dataset=Dataset.from_dict({"prompt": ["x"]}),
  )  # fmt: skip
  trainer.case = case
  for key, value in later.items():
    setattr(trainer, key, value)
  trainer.ref_model = object() if "beta" in later else None
  trainer.current_gradient_accumulation_steps = 1
  trainer.model.train()
  return trainer


def solve(trainer, inputs: dict) -> dict:
  """Returns the loss and its gradient by logp."""
  trainer.logp = torch.tensor(trainer.case["logp"], requires_grad=True)
  loss = trainer._compute_loss(trainer.model, inputs)
  (gradient,) = torch.autograd.grad(loss, trainer.logp, allow_unused=True)
  return dict(loss=loss.item(), gradient=gradient.tolist())


def one(case: dict, folder: str) -> dict:
  """Returns what TRL computes: from the case's rewards (`own`), and with the case's advantages (`given`)."""
  try:
    config = asked.trl(case)
  except asked.Lacks as why:
    return dict(none=str(why), **advantages_alone(case, folder))
  own, why = {}, ""
  try:
    own = asked.trl_advantage(case)
  except asked.Lacks as lacks:
    why = str(lacks)
  trainer = trainer_of(case, config | own, folder)
  inputs = trainer._generate_and_score_completions([{"prompt": "x"}] * len(case["mask"]))
  found = dict(asked=config | own, no_advantage=why)
  if own:
    found["advantages"] = (inputs["advantages"][:, None] * on(case)).tolist()
    found["own"] = solve(trainer, dict(inputs))
  stored = array(case.get("advantages") or case["expected_advantages"])
  if case["hyper"]["clip"]["kind"] == "gmpo":
    stored = stored.sum(1) / on(case).sum(1).clamp(min=1)  # it takes one of a completion
  return found | dict(given=solve(trainer, inputs | dict(advantages=stored)))


def advantages_alone(case: dict, folder: str) -> dict:
  """Returns TRL's advantages for a case whose loss it has not."""
  try:
    config = asked.trl_advantage(case) | dict(
      num_generations=case["group_size"], per_device_train_batch_size=len(case["mask"])
    )
    asked.policy_term(case)
  except asked.Lacks as why:
    return dict(no_advantage=str(why))
  trainer = trainer_of(case, config, folder)
  inputs = trainer._generate_and_score_completions([{"prompt": "x"}] * len(case["mask"]))
  return dict(advantages=(inputs["advantages"][:, None] * on(case)).tolist())


def main(cases: str) -> None:
  """Prints the versions, and then what TRL computes of each case."""
  versions = {module.__name__: module.__version__ for module in (trl, torch, transformers)}
  out, sys.stdout = sys.stdout, sys.stderr  # what libraries say is no answer
  print(json.dumps(dict(versions=versions)), file=out, flush=True)
  with tempfile.TemporaryDirectory() as folder:
    for path in sorted(Path(cases).glob("*.json")):
      for case in json.loads(path.read_text()):
        print(json.dumps({case["name"]: one(case, folder)}), file=out, flush=True)


if __name__ == "__main__":
  main(sys.argv[1])
