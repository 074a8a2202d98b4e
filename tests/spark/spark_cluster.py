"""A standalone Spark cluster on loopback: a master and some workers, all processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

HOST = "127.0.0.1"
HOME = Path(pyspark.__file__).parent


class Cluster:
    """Processes of a cluster; ``kill_worker`` ends one of them without warning."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.port, self.page = _free_port(), _free_port()
        self.url = f"spark://{HOST}:{self.port}"
        where = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self.page)]
        self.master = self._start("org.apache.spark.deploy.master.Master", *where)
        self._wait(lambda text: "ALIVE" in text)
        settings = ["--cores", "1", "--memory", "1g", "--host", HOST, "--webui-port", "0"]
        worker = "org.apache.spark.deploy.worker.Worker"
        self.workers = [self._start(worker, *settings, self.url) for _ in range(workers)]
        self._wait(lambda text: text.count("ALIVE") > workers)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen:
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        command = [str(HOME / "bin" / "spark-class"), name, *arguments]
        # A group of its own: a worker's executors end with it.
        with (self.folder / f"{name.rsplit('.', 1)[1]}-{time.time_ns()}.log").open("wb") as log:
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _wait(self, ready, seconds: float = 120) -> None:
        last = time.monotonic() + seconds
        while time.monotonic() < last:
            try:
                with urllib.request.urlopen(f"http://{HOST}:{self.page}", timeout=5) as page:
                    if ready(page.read().decode()):
                        return
            except OSError:
                pass
            time.sleep(0.3)
        raise TimeoutError(f"the cluster did not come up in {seconds} s; see {self.folder}")

    def kill_worker(self, place: int = 0) -> None:
        """Kill a worker and its executors, as when a machine is lost."""
        _kill_group(self.workers[place])

    def stop(self) -> None:
        """End all processes."""
        for process in (*self.workers, self.master):
            _kill_group(process)
            process.wait()


def _kill_group(process: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return taken.getsockname()[1]


@contextmanager
def spark_on_a_cluster(folder: Path, workers: int = 2):
    """Yield (cluster, session), the session running on its own cluster."""
    from pyspark.sql import SparkSession

    cluster = Cluster(folder, workers)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(cluster.url).appName("credibly tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.OMP_NUM_THREADS": "1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield cluster, session
    finally:
        session.stop()
        cluster.stop()
