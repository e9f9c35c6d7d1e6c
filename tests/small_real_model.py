"""`experiments.real_model` as a command, with evaluations of few questions and samples."""

from experiments.real_model import __main__ as program

EVALUATIONS = {name: part._replace(questions=16, samples=4) for name, part in program.EVALUATIONS.items()}

if __name__ == "__main__":
  program.EVALUATIONS = EVALUATIONS
  program.main()
