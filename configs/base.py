"""Every key there is, with its default, its unit and where the number comes from; those of stages: stages.py.

A recipe (`configs/gspo.py`, ...) calls `get_config(scale)` and changes some of them; it adds none.  Objective
slots hold `fn` (of `grpojax/objective/<slot>.py`, or "module:function") and its keyword arguments.  A model
and data of one's own have other keys under `model` and `data`: those of `_local`.
"""

from ml_collections import ConfigDict

from grpojax.recipes import games, stages


def get_config(scale: str = "mini") -> ConfigDict:
  """GRPO without KL, strictly by the paper's estimator; the scale chooses model, data and budget."""
  scales = dict(mini=_mini, tiny=_tiny, pocket=_pocket, small=_small, local=_local, paper=_paper)
  scales |= games.SCALES
  if scale not in scales:
    raise ValueError(f"Config scale {scale!r} is unknown; choose one of {', '.join(scales)}.")
  c = ConfigDict()
  c.name = "grpo"  # names the run and its default workdir
  c.scale = scale
  c.seed = 0
  c.steps = 50  # rollouts in the whole run
  c.verbose = True  # progress bars; False prints plain lines only
  c.print_sharding = False  # where every parameter lies, and what it takes of a chip; then nothing is run
  c.profile_steps = 0  # traced for TensorBoard or XProf, from the second on; 0: none
  c.cache_dir = "~/.cache/grpojax"  # cold starts, datasets, compiled programs; safe to delete

  c.log = ConfigDict()  # where records go beside metrics.jsonl, which has them all; docs/metrics.md
  c.log.to = "tensorboard"  # and "wandb", "trackio", "mlflow", with commas between them; "": nowhere
  c.log.project = "grpojax"  # of W&B and trackio; MLflow's experiment
  c.log.completions_every = 10  # steps between the groups of completions that loggers get; 0: none

  c.objective = ConfigDict()
  # R -> A inside one group.  ddof=1 and eps=1e-6 as verl, tunix and slime do; the paper says only "std".
  c.objective.advantage = dict(fn="zscore", eps=1e-6, ddof=1)
  c.objective.rescale = dict(fn="identity")  # A -> A over the whole optimiser batch
  c.objective.ratio = dict(fn="token")
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.2)
  c.objective.aggregate = dict(fn="sequence_mean")
  # Lists: any name -> a slot.  Add one by a flag: --config.objective.penalty="{'kl': {...}}"
  c.objective.shape = ConfigDict()  # the record before the formula: rewards, who is scored, pi_old
  c.objective.select = ConfigDict()  # which tokens count at all
  c.objective.correct = ConfigDict()  # sampler mismatch weights, no gradient
  c.objective.veto = ConfigDict()  # tokens dropped, or less trusted, because of where the policy has moved
  c.objective.batch_veto = ConfigDict()  # the same over the optimiser batch: one more forward pass an update
  c.objective.penalty = ConfigDict()  # costs with gradient, each with its `beta`
  c.objective.component = ConfigDict()  # losses of single tokens over a `stream` of their own, times `coef`
  c.objective.preference = ConfigDict()  # losses of pairs of a group: one more forward pass an update
  c.teacher = ConfigDict()  # whose log-probs of the completions distillation reads
  c.teacher.path = ""  # "" none; folder or hub name of a model of any size, and of this run's tokenizer
  c.teacher.paths = ConfigDict()  # several: value of the row's `column` -> folder; "*": of all other rows
  c.teacher.column = "source"  # of the dataset
  c.teacher.divergence = ""  # of the component `gkd`: "forward_kl", "reverse_kl", "jsd"; needs rows "single"
  c.teacher.beta = 0.5  # share of the teacher in jsd's mixture (GKD, TRL)
  c.reference = ""  # "" none; "init": the policy that RL starts from (needed by KL penalties); or the folder
  # of another one of the same shapes, in a pipeline a stage's name
  c.reference_sync = ConfigDict()  # reference <- (1 - rate) reference + rate policy, in float32
  c.reference_sync.every = 0  # steps; 0: frozen.  TR-DPO, https://arxiv.org/abs/2404.09656: 512
  c.reference_sync.rate = 1.0  # 1: a copy; less: moving average (TR-DPO, TRL: 0.6)
  c.kl_control = ConfigDict()  # adaptive beta, https://arxiv.org/abs/1909.08593 section 2.2
  c.kl_control.target = 0.0  # nats per token; 0: beta stays as configured (verl: 0.1)
  c.kl_control.horizon = 10_000  # completions; the smaller, the faster beta moves (verl, OpenRLHF)
  c.baseline = ConfigDict()  # b of the advantage `mixed_baseline`, known before the rollout
  c.baseline.kind = ""  # "" none; "mean": moving average of rewards; "prompt": its success rate
  c.baseline.rate = 0.05  # weight of the newest step in "mean"; nobody has published one
  c.moment = ConfigDict()  # second moment of R - group's mean, which the rescaling `rms` divides by
  c.moment.kind = ""  # "" not kept; "step": one update a step; "completion": one each, in order (TRL)
  c.moment.rate = 0.001  # weight of a completion's square: of the last 1000.  TRL's ScaleRL

  c.rollout = ConfigDict()
  c.rollout.prompts = 32  # P, prompts of one rollout
  c.rollout.group_size = 8  # G, completions of one prompt
  c.rollout.max_tokens = 48  # T, response budget in tokens, EOS included
  c.rollout.temperature = 1.0  # the learner's log-probs use the same temperature
  c.rollout.top_k = 0  # 0: off; else the sampler records the tokens it kept, at most so many (<= 512), and
  # all log-probs of the learner are over the same.  Needed by top_p and min_p as their bound
  c.rollout.top_p = 1.0  # 1: off
  c.rollout.min_p = 0.0  # 0: off
  c.rollout.slots = 64  # decode at once, refilled as they end; -1: chosen; 0: all completions, without
  c.rollout.prefill_chunk = 32  # tokens of prompts that a device reads at a time, end to end (slots only);
  # with an environment, those that each slot reads at a time
  c.rollout.segment = 16  # decode steps between two looks of the host, which grades what has ended (slots)
  c.rollout.kv_memory_gb = 0.0  # 10^9 bytes a device for KV caches: fewer slots if need be; 0: no limit
  c.rollout.weights = "full"  # "int8": the sampler's matrices, a scale per output channel
  c.rollout.kv_cache = "full"  # "int8": a scale per row, position and head.  Evaluation stays in full

  c.interruption = ConfigDict()  # of thinking that takes too long, in training.  ScaleRL
  c.interruption.think_tokens = 0  # of a response; then the text is injected, with mask 0.  0: never.  The
  # answer has what is left of rollout.max_tokens
  c.interruption.text = "Okay, time is up. My final answer:\n</think>\n"  # ScaleRL's is longer
  c.interruption.unless = "</think>"  # is there by then: the thinking has ended; "": whoever has not ended

  c.env = ConfigDict()  # of many turns: a row is then a trajectory, and its reward the environment's
  c.env.name = ""  # of grpojax/rollout/envs/, or "module:Class"; "": none, and c.reward grades completions
  c.env.knobs = ConfigDict()  # its keyword arguments
  c.env.turns = 16  # U, actions of a trajectory at most (GiGPO: 15 in WebShop and Sokoban, 50 in ALFWorld)
  c.env.action_tokens = 16  # of one action, EOS included; rollout.max_tokens is the budget of all turns
  c.env.observation_tokens = 64  # of an observation's own text; what is longer is cut, visibly, and counted
  c.env.memory = 0  # k: every turn begins a new context, the prompt and the last k turns, and reads it anew
  # (GiGPO: 2); rollout.max_tokens is then the budget of all contexts.  0: one context, read once
  c.env.invalid_actions = 4  # so many in a row end a trajectory; 0: any number
  c.env.success = 1.0  # a return from here on is a success, which `accuracy` counts
  c.env.timeout = 60.0  # seconds that a reset or a step may take; then the trajectory is invalid

  c.staleness = 0  # k: sample k steps ahead, by the policy of k steps before; k copies of its parameters
  c.rollout.in_flight = 0  # decode steps by one policy of what is ahead, then by the newest; 0: whole by one
  c.rollout.in_flight_kv = "kept"  # of the policies before (PipelineRL); "recomputed" by the newest (AReaL)

  c.dynamic_sampling = ConfigDict()  # DAPO, https://arxiv.org/abs/2503.14476 section 3.2
  c.dynamic_sampling.enabled = False  # refill until `rollout.prompts` groups have 0 < accuracy < 1
  c.dynamic_sampling.max_tries = 4  # rollouts per step at most; then train on what there is (verl: 10)

  c.adaptive_group = ConfigDict()  # Reinforce-Ada, https://arxiv.org/abs/2510.04996
  c.adaptive_group.stop = ""  # "" off; "balanced" or "positive_focused": when a prompt has enough
  c.adaptive_group.rounds = 4  # of `rollout.group_size` samples each, at most
  c.adaptive_group.positive = 0.7  # a reward above this is a success

  c.difficulty = ConfigDict()  # success rate of every training prompt
  c.difficulty.kind = ""  # "" not kept; "ema"; "beta": SPO, https://arxiv.org/abs/2509.13232
  c.difficulty.rate = 0.3  # weight of the newest group in "ema"; nobody has published one
  c.difficulty.offline = 0  # samples of every prompt before training (SPO: 8); 0: all start at 1/2
  c.difficulty.weighted = False  # draw prompts by sqrt(p (1 - p)) + floor (SPO), not by epochs
  c.difficulty.floor = 0.05  # a prompt that is never drawn could never come back
  c.difficulty.drop_solved = 0.0  # prompts whose rate reaches it are drawn no more (ScaleRL: 0.9); 0: none
  c.difficulty.too_hard = 0.05  # bounds of the buckets that are reported
  c.difficulty.too_easy = 0.95

  c.reward = ConfigDict()  # any name -> a function of grpojax/rewards/; their sum is trained on
  c.reward.accuracy = dict(fn="rules:integer_answer", marker="#")

  c.process = ConfigDict()  # scores of single steps, for the advantage `process_supervision`
  c.process.scorer = ""  # "module:function", text -> [(score, end in characters)]; "" none
  c.process.knobs = ConfigDict()  # its keyword arguments; of 'grpojax.rewards.learned:steps': path, separator
  c.process.max_steps = 16  # K, of one completion; what is beyond is counted and left out

  c.routing_replay = ""  # mixtures: "" none; "R2": pi_old's choice of experts, "R3": the sampler's
  c.load_balance = 0.0  # mixtures: coefficient of the load-balance loss (Qwen3-MoE's default: 1e-3)

  c.updates_per_rollout = 2  # optimiser steps per rollout, each on its share of the prompts
  c.rows = "packed"  # sequences share rows, and responses a prompt that is computed once for them; "single":
  # a row each.  It changes speed and memory, never results
  c.microbatches = 32  # pieces of one update (packed: at most); 0: chosen; changes memory, never results
  c.remat = "full"  # kept of a layer for its backward pass: nothing but its input; "attention": what that
  # read too; "qkv": what it reads from too; "projections": what it read, and the outputs of the matrices;
  # "none": everything; "auto": chosen.  Never the numbers
  c.attention = "auto"  # of updates and log-prob passes: TPUs' "splash", NVIDIA's "cudnn", or "reference"
  c.logprob_chunk = 32  # tokens whose logits exist at once, per row; 0: chosen
  c.optimizer = ConfigDict()  # clip, precondition by `fn`, decay, learning rate
  c.optimizer.fn = "adamw"  # or "muon", "adafactor", "sgd"; grpojax/learner/optimizer.py has the papers
  c.optimizer.learning_rate = 6e-4  # constant after warm-up; 1e-6 is usual for 7B and more
  c.optimizer.warmup_steps = 5
  c.optimizer.weight_decay = 0.0  # per step, times the learning rate; of matrices only
  c.optimizer.clip_norm = 1.0  # global gradient norm
  c.optimizer.ess = ""  # a step's factor by the completions' effective sample size: "sqrt" (VCPO), "linear"
  c.optimizer.ess_base = 1.0  # share of completions from which on a step is whole (VCPO: 1; 0.55 in turns)
  c.optimizer.state_dtype = "float32"  # moments, between steps; "bfloat16": half, for b2 <= 0.99
  c.optimizer.b1 = 0.9  # adamw; muon, for what is no matrix
  c.optimizer.b2 = 0.95  # adamw; muon, for what is no matrix
  c.optimizer.momentum = 0.95  # muon (https://kellerjordan.github.io/posts/muon); sgd, where 0 is none
  c.optimizer.decay_rate = 0.8  # adafactor: at step t the old mean weighs 1 - t^-0.8 (its paper, section 7.2)
  c.optimizer.min_dim_size_to_factor = 128  # adafactor: the least side of a matrix whose means are factored

  c.data = ConfigDict()
  c.data.task = "mini_aime"
  c.data.version_seed = 0  # another seed, another dataset
  c.data.train = 16384  # rows per split
  c.data.validation = 256
  c.data.test = 512
  c.data.wrong = 0.35  # share of the demonstrations in which one step slips
  c.data.form = ""  # questions in "digits" or in "words" alone
  c.data.rambling = 0.2  # share that checks its steps again and again, often beyond the budget
  c.data.unmarked = 0.0  # share that ends without the marked answer, a format that the base then hardly knows
  c.data.prompt_budget = 32  # L, tokens of a prompt, chat template included
  c.data.overlong_prompts = "drop"  # longer ones: "drop" (and count) or "error"
  c.data.template = "none"  # a name in grpojax/data/templates.py, or a text with one {question}
  c.data.system = ""  # before prompts that bring no system message of their own
  c.data.chat = True  # through the tokenizer's chat template; False: text only, for base models
  c.data.split_special_tokens = True  # those spelt in the data are text; False trusts who wrote the data
  c.data.mixture = ConfigDict()  # source -> share of what is drawn; empty: every row alike

  c.model = ConfigDict()  # Qwen2.5 architecture, keys as in Hugging Face's config.json
  c.model.hidden_size = 64
  c.model.num_hidden_layers = 2
  c.model.num_attention_heads = 4
  c.model.num_key_value_heads = 2
  c.model.head_dim = 16
  c.model.intermediate_size = 192
  c.model.rms_norm_eps = 1e-6
  c.model.rope_theta = 10000.0
  c.model.attention_bias = True  # QKV bias, as Qwen2 has
  c.model.tie_word_embeddings = True
  c.model.num_experts = 0  # 0: dense; else a Qwen3-MoE with a mixture in every layer
  c.model.num_experts_per_tok = 2
  c.model.moe_intermediate_size = 96  # of one expert
  c.model.norm_topk_prob = True  # gates are normalised over the chosen experts
  c.model.dtype = "float32"  # of activations; parameters and log-probs are float32
  c.model.head_dtype = ""  # "float32": the head's products, beside activations of less (MiniMax-M1, ScaleRL)

  c.lora = ConfigDict()  # low-rank adapters; all else is frozen.  https://arxiv.org/abs/2106.09685
  c.lora.rank = 0  # 0: off.  https://thinkingmachines.ai/blog/lora: RL needs few, 1 to 32
  c.lora.alpha = 32.0  # A B counts alpha / rank times; then about 10 x full training's learning rate
  c.lora.modules = "q|k|v|o|gate|up|down"  # regular expression: last names of the adapted matrices
  c.lora.path = ""  # a folder in PEFT's format to start from; "": adapters that change nothing yet

  c.mesh = ConfigDict()  # devices = the product of all; one may be -1, "the rest"; 0: chosen
  c.mesh.data = -1
  c.mesh.fsdp = 1
  c.mesh.tensor = 1
  c.mesh.expert = 1  # experts of a mixture; everything else is cut over it as over data
  c.mesh.context = 1  # of devices that share the rows an update and a log-prob pass read at a time: dealt
  # out whole if there are as many rows a shard, or a multiple; else each has a part of the columns of all
  c.mesh.slices = 1  # TPU slices, joined by a slow network over which only `data` is cut
  c.mesh.rollout_devices = 0  # that sample and do nothing else, of each process the last; with staleness > 0
  c.mesh.sampler = ConfigDict()  # the sampler's own mesh of the same devices; data takes the rest
  c.mesh.sampler.tensor = 0  # what cuts a decoded token's matrices; 0: no own mesh, no copy; -1: chosen
  c.mesh.sampler.expert = 1  # 0: chosen
  c.mesh.rules = ConfigDict()  # what cuts each axis of the parameters: names of mesh axes; "": nothing
  c.mesh.rules.embed = "fsdp,context"  # "auto": chosen
  c.mesh.rules.heads = "tensor"
  c.mesh.rules.kv_heads = "tensor"  # where they do not divide by it: whole on every device
  c.mesh.rules.mlp = "tensor"
  c.mesh.rules.vocab = "tensor"
  c.mesh.rules.expert = "expert"
  c.mesh.rules.layers = ""
  c.mesh.cpu_devices = 1  # where there is no accelerator; one a core is faster for a toy model

  c.cold_start = ConfigDict()  # SFT on the task's own demonstrations, cached by what made it
  c.cold_start.steps = 1200
  c.cold_start.batch_size = 32  # rows
  c.cold_start.learning_rate = 2e-2  # of Muon, after warm-up; cosine to a tenth
  c.cold_start.warmup_steps = 20
  c.cold_start.seed = 0

  stages.add(c)  # config.sft, preference, sample and judge: configs/stages.py

  c.guard = ConfigDict()  # updates that are not finite in loss, gradient or result are skipped, always
  c.guard.nonfinite = 3  # so many steps in a row stop the run; 0: never
  c.guard.spike = 0.0  # skip updates whose gradient norm is so many times its moving average; 0: none
  c.guard.rate = 0.05  # weight of the newest step in that average
  c.guard.warn_mismatch = 0.1  # mean |log mu - log pi_old| of a step, in nats a token: said once; 0: never
  c.guard.stop_mismatch = 1.0  # and so much stops the run: the sampler has other weights; 0: never
  c.guard.failed_rewards = 0.5  # share of a step's completions that a reward fails on; 0: any number
  c.guard.minutes = 60.0  # without progress, from the first second on: dump all stacks, end; 0: never

  c.eval = ConfigDict()
  c.eval.every = 25  # steps; also after the last
  c.eval.on_start = True  # and before the first
  c.eval.split = "test"
  c.eval.prompts = 128  # held-out questions while training; `grpojax.tools.evaluate` asks all
  c.eval.samples = 8  # k, completions per question
  c.eval.temperature = 1.0  # 0: greedy
  c.eval.top_k = 0  # the likeliest tokens that are kept; 0: off
  c.eval.top_p = 1.0  # the share of probability that is kept; 1: off
  c.eval.min_p = 0.0  # of the likeliest token's probability, the least that is kept; 0: off
  c.eval.max_tokens = c.rollout.get_oneway_ref("max_tokens")  # T; as in training until it is set

  c.checkpoint = ConfigDict()
  c.checkpoint.every = 25  # steps; also at the end and on Ctrl-C
  c.checkpoint.keep = 2
  c.checkpoint.allow_changed = ""  # goes on though this part differs from the checkpoint's: "config", "data",
  # "devices" (their kind), "frozen" (weights under adapters, a teacher's), "run" (another run's), "all"
  scales[scale](c)
  return c


def _mini(c):
  """One to three minutes on two CPU cores: the values above."""


def _tiny(c):
  """A few seconds; for tests."""
  c.steps = 2
  c.rollout.update(prompts=4, group_size=4, max_tokens=48)
  c.data.update(train=256, validation=16, test=32)
  c.model.update(hidden_size=32, num_hidden_layers=2, head_dim=8, intermediate_size=64)
  c.model.moe_intermediate_size = 32
  c.cold_start.update(steps=4, batch_size=16, warmup_steps=1)
  c.sft.update(steps=4, batch_size=4, warmup_steps=1)
  c.preference.update(steps=4, batch_size=4, warmup_steps=1)
  c.sample.update(prompts=16, samples=4, keep=2)
  c.eval.update(every=2, prompts=8, samples=4)
  c.checkpoint.every = 1


def _small(c):
  """One GPU or TPU host: 25 M parameters from scratch, on the embedded task with twice the budget.

  Twice as many demonstrations ramble up to it.  By arithmetic a minute or two on an H200; nobody has run it.
  """
  c.steps = 100
  c.model.update(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4)
  c.model.update(head_dim=64, intermediate_size=1536, dtype="bfloat16")
  c.data.update(train=65536, rambling=0.4)
  c.rollout.update(prompts=64, group_size=16, max_tokens=96, slots=1024, prefill_chunk=256)
  c.judge.prompt_budget = 144
  c.updates_per_rollout = 4
  c.microbatches = 4
  c.remat = "attention"
  c.logprob_chunk = 96
  c.optimizer.update(learning_rate=5e-5, warmup_steps=10)
  c.cold_start.update(steps=2000, batch_size=128, learning_rate=5e-3, warmup_steps=50)
  c.sft.update(steps=500, batch_size=128, learning_rate=3e-4, warmup_steps=20)
  c.preference.update(steps=64, batch_size=128, learning_rate=7.5e-6)
  c.eval.update(every=20, prompts=512)


def _local(c):
  """A checkpoint folder and a dataset file of one's own; numbers for models of 0.5B to 7B."""
  c.model = ConfigDict()
  c.model.path = ""  # config.json, safetensors and tokenizer: a folder's path, or a name on the hub
  c.model.dtype = "bfloat16"  # of activations; log-probs are float32
  c.model.param_dtype = "float32"  # the master copy that the optimiser changes
  c.model.head_dtype = ""  # "float32": the head's products, of learner and sampler; 2506.13585 section 3.2
  c.cold_start.steps = 0  # the folder is where RL starts

  c.data = ConfigDict()
  c.data.task = "local"  # or "reasoning_gym:chain_sum", any of its generators
  c.data.knobs = ConfigDict()  # of that generator: --config.data.knobs="{'max_terms': 3}"
  c.data.rows = 4096  # that a generator draws, before repeats are left out
  c.data.version_seed = 0  # another one, other rows
  c.data.path = ""  # .jsonl, .json, .csv, .parquet, .arrow: file, folder or glob; or a dataset on the hub
  c.data.test_path = ""  # "": `held_out` rows of the training file
  c.data.subset = ""  # of a dataset on the hub; "": its default
  c.data.split = ""  # of `path`, where it has several; "": "train"
  c.data.test_split = ""  # of `test_path`; "": "test"
  c.data.held_out = 256  # rows, and at most a tenth of the questions
  c.data.layout = ""  # "columns", or a name in grpojax/data/local/layouts.py; "": the hub's name says
  c.data.prompt = "prompt"  # column of the question, a text or a list of messages
  c.data.answer = "answer"
  c.data.tests = ""  # column of unit tests, for code
  c.data.meta = ""  # columns that a reward reads beside these, separated by commas; "*": all
  c.data.train = ConfigDict()  # several sources: name -> dict(path, layout, prompt, answer, tests)
  c.data.test = ConfigDict()
  c.data.on_malformed = "skip"  # and count, with file and line; or "error"
  c.data.dedup = True  # one row a question, none where rows disagree about its answer
  c.data.decontaminate = True  # no question of the test split is trained on
  c.data.prompt_budget = 1024
  c.data.overlong_prompts = "drop"
  c.data.template = "boxed"
  c.data.system = ""
  c.data.chat = True
  c.data.split_special_tokens = True
  c.data.mixture = ConfigDict()
  c.reward.accuracy = dict(fn="math:equivalent", form="boxed", timeout=3.0, workers=2)

  c.env.update(action_tokens=512, observation_tokens=1024)
  c.steps = 500
  c.rollout.update(prompts=64, group_size=16, max_tokens=2048, prefill_chunk=1024, segment=128)
  c.updates_per_rollout = 4
  c.update(microbatches=0, logprob_chunk=0, remat="auto")  # these are chosen by model, budgets and devices:
  c.rollout.slots = -1  # grpojax/train/auto
  c.mesh.update(data=0, fsdp=0, tensor=0, expert=0, context=0)
  c.mesh.rules.embed = "auto"
  c.mesh.sampler.update(tensor=-1, expert=0)
  c.optimizer.update(learning_rate=1e-6, warmup_steps=10)
  c.sft.update(steps=500, batch_size=64, learning_rate=1e-5)  # Qwen2.5's and Tulu 3's are 5e-6 to 2e-5
  c.preference.update(steps=200, batch_size=64, learning_rate=5e-7)  # Zephyr's and Tulu 3's DPO of 7B
  c.judge.update(rubric=stages.RUBRIC, max_tokens=256, prompt_budget=4096)
  c.sample.update(prompts=4096, samples=16)
  c.eval.update(every=50, prompts=256, samples=4)
  c.checkpoint.every = 20


def _pocket(c):
  """A small pretrained model on a small machine: 0.1B to 0.5B, short answers, one device of two CPU cores."""
  _local(c)
  c.model.dtype = "float32"  # bfloat16 is faster where a CPU has AMX, with remat "full" and 2 microbatches
  c.data.update(prompt_budget=128, template="none")
  c.reward.accuracy.form = "number"  # the last one wherever it stands: such a model has no form of answer yet
  c.steps = 24
  c.rollout.update(prompts=16, group_size=8, max_tokens=64, slots=128, prefill_chunk=256, segment=16)
  c.judge.update(max_tokens=64, prompt_budget=320)
  c.updates_per_rollout = 1
  c.microbatches = 4  # more would read and write all gradients as often; fewer need more memory
  c.remat = "projections"
  c.logprob_chunk = 64  # the gradient of the head is read and written once a chunk
  c.optimizer.update(learning_rate=1e-5, warmup_steps=0, state_dtype="bfloat16")
  c.eval.update(every=25, prompts=64, samples=8)  # as many as group_size: the rollout's program serves both
  c.checkpoint.update(every=25, keep=1)


def _paper(c):
  """A pod slice: the setting of DAPO's paper, https://arxiv.org/abs/2503.14476 section 4.1; 64 chips of v5p.

  `grpojax podcheck` knows the model's shapes by this name; a run needs its folder.
  """
  _local(c)
  c.model.path = "Qwen2.5-32B"
  c.data.prompt_budget = 2048
  c.rollout.update(prompts=512, group_size=16, max_tokens=20480, slots=256, prefill_chunk=2048)
  c.updates_per_rollout = 16  # of 512 completions each
  c.microbatches = 8  # four rows at a time on each of 16 shards: one a chip, so that no keys travel
  c.remat = "attention"
  c.logprob_chunk = 2048  # a tenth of the columns: the gradient of the head is written once a chunk
  c.optimizer.update(warmup_steps=320, weight_decay=0.1)  # 20 rollouts
  c.cold_start.batch_size = 512  # no cold start; divisible by any mesh's shards
  c.mesh.update(data=1, fsdp=-1, tensor=1, expert=1, context=4)
  c.mesh.rules.embed = "fsdp"  # over all 64 chips a gather is compiled as a sum of twice the bytes
  c.mesh.sampler.update(tensor=4, expert=1)
