"""MLflow: on the server that MLFLOW_TRACKING_URI names, or in MLflow's own default, mlflow.db here."""

import mlflow

from grpojax.runtime import loggers

TAG = "grpojax"  # its value is the run's id, by which a run that is resumed is found


class Logger:
  """An MLflow run in the experiment of the project.  Its active run is this thread's alone."""

  def __init__(self, run: loggers.Run):
    experiment = mlflow.set_experiment(run.project).experiment_id
    found = mlflow.search_runs([experiment], f"tags.{TAG} = '{run.id}'", output_format="list")
    if found:
      mlflow.start_run(found[0].info.run_id)
    else:
      mlflow.start_run(run_name=run.name, tags={TAG: run.id})
      mlflow.log_params(run.config)

  def write(self, kind: str, step: int, values: dict[str, float]) -> None:
    """Logs one record; MLflow's names have no @."""
    named = loggers.of_kind(kind, values)
    mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in named.items()}, step)

  def completions(self, step: int, rows: list[dict]) -> None:
    """Logs one group as a table, in a file of its own."""
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    mlflow.log_table(columns, f"completions/{step:06}.json")

  def close(self) -> None:
    """Ends the MLflow run, which may be resumed."""
    mlflow.end_run()
