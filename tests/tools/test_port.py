"""grpojax port: what it prints is a command that a run takes, and no key of the file is passed over."""

import builtins
import json
import shlex
import sys

import pytest

from grpojax.__main__ import main
from grpojax.config import commandline
from grpojax.tools.port import command, table
from grpojax.tools.port.read import literal, read
from grpojax.tools.port.translate import translate

PEERS = {name: command.table(name) for name in command.PEERS}
LEAST = dict(  # what a file of each peer has at least
  trl={},
  verl={"algorithm.adv_estimator": "grpo", "rollout.n": 8},
  slime={"rollout_batch_size": 32, "n_samples_per_prompt": 8, "rollout_max_response_len": 1024},
  tunix={"batch_size": 8},
)


def ported(peer: str, **keys):
  """The answer for a file that sets `keys`; a dot is written as two underscores."""
  given = LEAST[peer] | {key.replace("__", "."): value for key, value in keys.items()}
  return translate(PEERS[peer], given, {})


def flags(peer: str, **keys) -> dict:
  answer = ported(peer, **keys)
  assert command.refusal(command.flags(answer)) == ""
  return answer.flags


@pytest.mark.parametrize("name", PEERS)
def test_formulas_read_keys_of_the_table_and_every_row_can_be_worked_out(name):
  peer = PEERS[name]
  roots = {key.split(".")[0] for key in peer.keys} | {*peer.derived, "given"}
  whens = [row.when for row in (*peer.flags, *peer.words, *peer.gaps)]
  inside = [formula for flag in peer.flags for formula in table.formulas(flag.value)]
  for formula in [*whens, *inside, *peer.derived.values()]:
    for read_name in table.names(formula):
      root = read_name.split(".")[0]
      assert root in roots or root in table.HELPERS or hasattr(builtins, root), formula
      if root in roots and root not in peer.derived and "." in read_name:
        assert any(read_name == key or read_name.startswith(f"{key}.") for key in peer.keys), read_name
  for row in (*peer.words, *peer.gaps):
    for key in (row.keys if isinstance(row, table.Word) else row.key).split():
      assert key in peer.keys, key


@pytest.mark.parametrize("name", PEERS)
def test_a_peers_own_defaults_are_a_command_that_is_taken(name):
  assert flags(name)["rollout.temperature" if name == "tunix" else "objective.aggregate"]


def test_trl_by_default_is_a_token_mean_over_one_prompt():
  found = flags("trl")
  assert found["objective.advantage"] == {"fn": "zscore", "eps": 1e-4, "ddof": 1}
  assert found["objective.aggregate"] == {"fn": "token_mean"}
  assert (found["rollout.prompts"], found["rollout.group_size"], found["updates_per_rollout"]) == (1, 8, 1)
  assert (found["optimizer.b2"], found["rollout.max_tokens"], found["seed"]) == (0.999, 512, 42)
  assert "objective.surrogate" not in found and "objective.correct.mis" not in found


@pytest.mark.parametrize(
  "peer, keys, wanted",
  [
    ("trl", dict(loss_type="cispo", epsilon_high=5.0), {"surrogate": dict(fn="cispo", w_max=5.0, w_min=0.0)}),
    ("trl", dict(epsilon_high=0.28), {"surrogate": dict(fn="ppo_clip", low=0.2, high=0.28)}),
    ("trl", dict(delta=4.0), {"surrogate": dict(fn="dual_clip", low=0.2, high=0.2, floor=4.0)}),
    ("trl", dict(loss_type="grpo", importance_sampling_level="sequence"), {"ratio": dict(fn="sequence")}),
    ("trl", dict(loss_type="grpo"), {"aggregate": dict(fn="sequence_mean", rows="all")}),
    ("trl", dict(loss_type="dr_grpo"), {"aggregate": dict(fn="constant", budget=512)}),
    ("trl", dict(loss_type="luspo"), {"aggregate": dict(fn="sequence_sum", rows="all")}),
    ("trl", dict(loss_type="vespo"), {"ratio": dict(fn="sequence_product")}),
    ("trl", dict(scale_rewards="none"), {"advantage": dict(fn="center")}),
    ("trl", dict(scale_rewards=False), {"advantage": dict(fn="center")}),
    ("trl", dict(scale_rewards="batch"), {"rescale": dict(fn="batch_std", eps=1e-4, ddof=1)}),
    ("trl", dict(beta=0.04), {"penalty.kl": dict(fn="kl_k3_corrected", beta=0.04)}),
    ("trl", dict(beta=0.04, use_bias_correction_kl=False), {"penalty.kl": dict(fn="kl_k3", beta=0.04)}),
    ("trl", dict(use_vllm=True), {"correct.mis": dict(fn="masked_is", low=0.0, high=3.0)}),
    ("trl", dict(mask_truncated_completions=True), {"select.overlong": dict(fn="finished")}),
    ("verl", {}, {"surrogate": dict(fn="dual_clip", low=0.2, high=0.2, floor=3.0)}),
    ("verl", dict(actor__policy_loss__loss_mode="gspo"), {"ratio": dict(fn="sequence_token")}),
    (
      "verl",
      dict(actor__policy_loss__loss_mode="cispo", actor__clip_ratio_low=10, actor__clip_ratio_high=4.0),
      {"surrogate": dict(fn="cispo", w_max=5.0, w_min=0.0)},
    ),
    ("verl", dict(algorithm__norm_adv_by_std_in_grpo=False), {"advantage": dict(fn="center")}),
    ("verl", dict(algorithm__adv_estimator="gdpo"), {"rescale": dict(fn="whiten", ddof=1, eps=1e-8)}),
    (
      "verl",
      dict(actor__use_kl_loss=True, actor__kl_loss_type="k3+"),
      {"penalty.kl": dict(fn="kl_k3_plus", beta=0.001)},
    ),
    (
      "verl",
      dict(algorithm__rollout_correction__rollout_rs="seq_mean_k1",
           algorithm__rollout_correction__rollout_rs_threshold="0.5_4.0"),
      {"correct.reject": dict(fn="geometric_rejection", low=0.25, high=2.0, renormalize=True)},
    ),
    (
      "verl",
      dict(actor__loss_agg_mode="seq-mean-token-sum-norm", data__max_response_length=2048),
      {"aggregate": dict(fn="constant", budget=2048)},
    ),
    ("slime", dict(eps_clip_high=0.28, calculate_per_token_loss=True), {"aggregate": dict(fn="token_mean")}),
    ("slime", dict(advantage_estimator="gspo"), {"ratio": dict(fn="sequence")}),
    ("slime", dict(use_tis=True), {"correct.tis": dict(fn="truncated_is", high=2.0)}),
    ("slime", dict(use_opsm=True), {"veto.opsm": dict(fn="stale_failures", delta=1e-4, anchor="old")}),
    ("tunix", dict(), {"penalty.kl": dict(fn="kl_k1", beta=0.04)}),
    ("tunix", dict(loss_algo="gspo-token"), {"ratio": dict(fn="sequence_token")}),
  ],
)  # fmt: skip
def test_a_setting_becomes_its_slot(peer, keys, wanted):
  found = flags(peer, **keys)
  for slot, choice in wanted.items():
    assert found[f"objective.{slot}"] == choice


def test_a_word_that_remains_different_is_told_from_one_that_the_flags_say():
  said = {word.keys: word.remains for word in ported("trl", loss_type="cispo", epsilon_high=5.0).words}
  assert said["epsilon_high"] is False
  words = ported("trl", top_entropy_quantile=0.2).words
  assert any(word.keys == "top_entropy_quantile" and word.remains for word in words)


def test_what_has_no_counterpart_is_a_gap():
  gaps = lambda *args, **keys: {gap.key for gap in ported(*args, **keys).gaps}
  assert {"num_iterations", "top_p"} <= gaps("trl", num_iterations=4, top_p=0.9)
  assert "top_p" not in gaps("trl", top_p=0.9, top_k=50) and "top_k" in gaps("trl", top_k=1000)
  assert "algorithm.adv_estimator" in gaps("verl", algorithm__adv_estimator="gae")
  assert "dynamic_sampling" in gaps("tunix", dynamic_sampling=True)
  assert "rollout_top_p" in gaps("slime", rollout_top_p=0.9)


TRL = """
import os
config = GRPOConfig(output_dir="out", loss_type="dr_grpo", scale_rewards=False, num_generations=16,
                    per_device_train_batch_size=16, gradient_accumulation_steps=8, learning_rate=args.lr,
                    logging_steps=1, sapo_temperature_pos=2.0, **extra)
os.system("this never runs")
"""
VERL = """
max_response_length=$((1024 * 8))
clip_high=0.28
WORK=${HOME}/work
DATA=(
    data.train_files="${WORK}/dapo.parquet"
    data.train_batch_size=512
)
# algorithm.adv_estimator=gae
python3 -m verl.trainer.main_ppo "${DATA[@]}" algorithm.adv_estimator=grpo \\
    data.max_response_length=$max_response_length actor_rollout_ref.rollout.n=16 \\
    actor_rollout_ref.actor.clip_ratio_high=${clip_high} \\
    +actor_rollout_ref.actor.ppo_mini_batch_size=${MINI:-32} \\
    actor_rollout_ref.actor.optim.lr=1e-6 critic.ppo_epochs=1 trainer.logger='["console","wandb"]' \\
    $@ other.yaml \\
    2>&1 | tee trainer.seed=3
"""
SLIME = """
ray start --head --num-gpus 8
ROLLOUT_ARGS=(
   --prompt-data /data/dapo.jsonl
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   # --rollout-top-p 0.9
   --global-batch-size 128
)
GRPO_ARGS=(
   --use-kl-loss
   --kl-loss-coef 0.001
   --kl-loss-type low_var_kl
   --eps-clip-high 0.28
   --made-by-megatron 3
)
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py --colocate \\
   ${MODEL_ARGS[@]} \\
   ${ROLLOUT_ARGS[@]} \\
   ${GRPO_ARGS[@]}
"""
TUNIX = """
cluster = rl_cluster_lib.ClusterConfig(
  rollout_engine="vanilla",
  training_config=rl_cluster_lib.RLTrainingConfig(mini_batch_size=4, max_steps=100, eval_every_n_steps=10),
  rollout_config=rollout.RolloutConfig(max_tokens_to_generate=768, max_prompt_length=256, temperature=1.0),
)
algo = DAPOConfig(num_generations=8, dynamic_sampling=True)
"""


def keys_of(path, peer: str) -> tuple[dict, dict]:
  return read(str(path), PEERS[peer])


def test_python_is_read_and_not_run(tmp_path):
  (tmp_path / "train.py").write_text(TRL)
  given, unread = keys_of(tmp_path / "train.py", "trl")
  assert given["loss_type"] == "dr_grpo" and given["scale_rewards"] is False
  assert list(unread) == ["learning_rate", "**extra"]
  assert unread["learning_rate"] == "args.lr, which is known only when it runs"


def test_a_key_that_is_set_twice_is_said_and_what_evaluations_use_is_not_read(tmp_path):
  (tmp_path / "twice.py").write_text(
    "c = GRPOConfig(beta=0.1, epsilon=0.3) if x else GRPOConfig(beta=0.2, epsilon=0.3)"
  )
  given, unread = keys_of(tmp_path / "twice.py", "trl")
  assert unread == {"beta": "0.1, and 0.2 elsewhere in the file"} and given["epsilon"] == 0.3
  (tmp_path / "modes.py").write_text(
    "RLTrainingConfig(mini_batch_size=4)\n"
    "config = {Mode.TRAIN: RolloutConfig(temperature=0.9), Mode.EVAL: RolloutConfig(temperature=0.1)}"
  )
  given, unread = keys_of(tmp_path / "modes.py", "tunix")
  assert given["temperature"] == 0.9 and not unread


def test_a_command_ends_with_its_line(tmp_path):
  (tmp_path / "run.sh").write_text("python3 train.py \\\n  --num-rollout 300\nray stop\necho done\n")
  assert keys_of(tmp_path / "run.sh", "slime") == ({"num_rollout": 300}, {})


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
  (tmp_path / "it.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
  assert keys_of(tmp_path / "it.json", "verl") == ({"a": 1}, {})


def test_a_loss_that_trl_has_not_is_said():
  assert any("loss_type" in line for line in map(str, ported("trl", loss_type="ppo").gaps))


def test_a_shells_variables_arrays_and_arithmetic_are_put_in(tmp_path):
  (tmp_path / "run.sh").write_text(VERL)
  given, unread = keys_of(tmp_path / "run.sh", "verl")
  assert given["data.max_response_length"] == 8192 and given["data.train_batch_size"] == 512
  assert given["actor.clip_ratio_high"] == 0.28 and given["actor.ppo_mini_batch_size"] == 32
  assert given["actor.optim.lr"] == 1e-6 and given["algorithm.adv_estimator"] == "grpo"
  assert list(unread) == ["data.train_files", "$@", "'other.yaml'"] and "trainer.seed" not in given


def test_arguments_are_those_of_the_program_and_not_of_its_launcher(tmp_path):
  (tmp_path / "run.sh").write_text(SLIME)
  given, unread = keys_of(tmp_path / "run.sh", "slime")
  assert given["colocate"] is True and given["use_kl_loss"] is True and given["global_batch_size"] == 128
  assert "rollout_top_p" not in given and "address" not in given
  assert list(unread) == ["${MODEL_ARGS[@]}"]


def test_a_config_class_brings_its_own_defaults(tmp_path):
  (tmp_path / "dapo.py").write_text(TUNIX)
  given, _ = keys_of(tmp_path / "dapo.py", "tunix")
  assert given["loss_agg_mode"] == "token-mean" and given["beta"] is None and given["mini_batch_size"] == 4
  answer = translate(PEERS["tunix"], given, {})
  assert answer.flags["reward.soft_overlong"]["max_tokens"] == 768
  assert "objective.penalty.kl" not in answer.flags


@pytest.mark.parametrize("text", ["a:\n  b: 1\n  c: [2, x]", '{"a": {"b": 1, "c": [2, "x"]}}'])
def test_yaml_and_json_are_flat(text, tmp_path):
  path = tmp_path / ("it.json" if text.startswith("{") else "it.yaml")
  path.write_text(text)
  assert keys_of(path, "verl") == ({"a.b": 1, "a.c": [2, "x"]}, {})


def test_words_are_the_numbers_that_their_peers_read():
  assert [literal(text) for text in ("1e-6", "3", "null", "True", "0.5_5.0", "2_5", "[1,a_b]", "x")] == [
    1e-6, 3, None, True, "0.5_5.0", "2_5", [1, "a_b"], "x",
  ]  # fmt: skip


def printed(capsys, monkeypatch, *words: str) -> str:
  monkeypatch.setattr(sys, "argv", ["grpojax", "port", *words])
  main()
  return capsys.readouterr().out


@pytest.mark.parametrize(
  "peer, file, text", [("trl", "a.py", TRL), ("verl", "a.sh", VERL), ("slime", "b.sh", SLIME)]
)
def test_the_command_prints_flags_that_a_run_takes_and_names_every_key(
  peer, file, text, tmp_path, capsys, monkeypatch
):
  (tmp_path / file).write_text(text)
  out = printed(capsys, monkeypatch, peer, str(tmp_path / file))
  shown = out.split("\n\n")[1].replace("\\\n", " ")
  recipe, *arguments = shlex.split(shown)[2:]
  commandline.config_of([f"--config={recipe}", *arguments])  # as a shell hands them on
  given, unread = keys_of(tmp_path / file, peer)
  rest = " ".join(out.split("\n\n", 2)[2].split())
  missing = [key for key in [*given, *unread] if key not in rest]
  assert not missing, missing
  assert "None" not in shown


@pytest.mark.parametrize(
  "file, text, said",
  [
    ("a.yaml", "epsilon_hihg: 0.3", "TRL 1.16.0 has no epsilon_hihg (did you mean epsilon_high?)"),
    ("a.yaml", "clip_ratio_low: 0.3", "TRL 1.16.0 has no clip_ratio_low; take out what is not its own."),
    ("a.yaml", "{", "is no YAML"),
    ("a.json", "[1]", "is no mapping of keys to values"),
    ("a.py", "x = 1", "calls none of GRPOConfig"),
    ("a.py", "x = (", "is no Python"),
    ("a.yaml", "epsilon: much\ndelta: 3", "cannot be read together"),
    ("a.yaml", "num_generations: 0", "cannot be read together"),
    ("none.yaml", None, "cannot be read: No such file"),
  ],
)
def test_a_mistake_is_one_sentence(file, text, said, tmp_path, capsys, monkeypatch):
  if text is not None:
    (tmp_path / file).write_text(text)
  with pytest.raises(SystemExit) as error:
    printed(capsys, monkeypatch, "trl", str(tmp_path / file))
  assert said in str(error.value) and str(error.value).startswith("error: ")
  assert "\n" not in str(error.value) and "--debug" not in str(error.value)


def test_a_command_that_would_be_refused_says_so_after_what_is_known(tmp_path, capsys, monkeypatch):
  config = dict(loss_type="dr_grpo", importance_sampling_level="sequence")
  (tmp_path / "a.json").write_text(json.dumps(config))
  with pytest.raises(SystemExit, match=r"the command above is refused: .*1 / length inside"):
    printed(capsys, monkeypatch, "trl", str(tmp_path / "a.json"))
  assert "grpojax train base:local" in capsys.readouterr().out
