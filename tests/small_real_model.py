"""`experiments.real_model` as a command, with evaluations of few questions and samples."""

from experiments.real_model import __main__ as program

if __name__ == "__main__":
  for name, part in program.EVALUATIONS.items():
    program.EVALUATIONS[name] = part._replace(questions=16, samples=4)
  program.main()
