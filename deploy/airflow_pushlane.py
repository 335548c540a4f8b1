"""Pushlane's jobs as Airflow DAGs, on a cluster: retention every hour, usage and metrics every day.

It needs apache-airflow-providers-apache-spark and the connection `spark_default`. Install
`pushlane-server[cluster,spark]` on the Airflow worker and on all Spark workers.
"""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

import pushlane_spark

STORE = "cassandra://db1,db2,db3/pushlane?dc=dc1"
ARCHIVE = "s3a://pushlane/archive"
PACKAGES = "com.datastax.spark:spark-cassandra-connector_2.12:3.5.1,org.xerial:sqlite-jdbc:3.53.0.0"
CONF = {
    "spark.sql.extensions": "com.datastax.spark.connector.CassandraSparkExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.python.daemon.module": "pushlane_spark.daemon",
}
DEFAULTS = {"retries": 2, "retry_delay": timedelta(minutes=5)}


def job(name: str, *arguments: str) -> SparkSubmitOperator:
    """Running a job again does no harm, so Airflow may retry it."""
    return SparkSubmitOperator(
        task_id=name,
        application=f"{pushlane_spark.__path__[0]}/submit/pushlane_jobs.py",
        application_args=[name, "--store", STORE, *arguments],
        packages=PACKAGES,
        conf=CONF,
        driver_memory="2g",
        executor_memory="4g",
        num_executors=4,
        executor_cores=2,
    )


with DAG(
    "pushlane_retention",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 (Airflow takes it as UTC)
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
):
    job("retention", "--archive", ARCHIVE)

with DAG(
    "pushlane_daily",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
):
    # The day before the date of the run (`ds` in Airflow's templates).
    period = ["--since", "{{ macros.ds_add(ds, -1) }}", "--until", "{{ ds }}"]
    out = "/srv/pushlane/{{ ds }}"
    usage = job(
        "usage", *period, "--rate-card", "/etc/pushlane/rates.toml", "--out", f"{out}/usage"
    )
    metrics = job("metrics", *period, "--out", f"{out}/metrics")
    usage >> metrics
