"""A real model, SmolLM2-135M-Instruct: what does it learn, and of whom?

    python -m experiments.real_model --dry_run               # the plan, what it can detect, what it costs
    python -m experiments.real_model                         # all parts: days on two CPU cores; it resumes
    python -m experiments.real_model --only=recipes --rows=1,2,3,4 --seeds=1
    python -m experiments.real_model --only=transfer,pass_at_k

Five tasks of reasoning-gym were fixed before any result was seen (tasks.py), and every row is
configs/smollm2.py with some changes (studies.py): whatever that file says of steps, learning rate and budget
holds here.

    recipes     GRPO, DAPO, GSPO and RLOO on each of the tasks
    settings    on the first task: adapters, bfloat16 and int8 with corrections, and a reward of form alone
    transfer    every policy of `recipes` on the questions of all tasks
    pass_at_k   every policy of `recipes` on its own task, k up to 64, before and after
"""
