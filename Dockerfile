# Two images from one file: `service` (the last stage, so the default) and `spark` (--target spark).
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
# Every pinned package becomes a wheel here, its hash checked; the images take what they need and nothing else.
COPY requirements.lock ./
RUN pip wheel --no-cache-dir --require-hashes --wheel-dir /wheels --requirement requirements.lock
COPY pyproject.toml README.md ./
COPY service service
COPY spark_connector spark_connector
RUN pip install --no-index --find-links /wheels hatchling \
    && pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python -m venv /opt/service \
    && /opt/service/bin/pip install --no-index --find-links /wheels rangewatch \
    && python -m venv /opt/spark \
    && /opt/spark/bin/pip install --no-index --find-links /wheels "rangewatch[spark]"

FROM python:3.11-slim-bookworm AS spark
# A headless JRE has the module jdk.incubator.vector that Spark 4 asks for.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home rangewatch \
    && install --directory --owner=rangewatch /var/lib/rangewatch /opt/jars
COPY --from=build /opt/spark /opt/spark
ENV PATH=/opt/spark/bin:$PATH PYTHONUNBUFFERED=1
USER rangewatch
WORKDIR /var/lib/rangewatch
RUN python -m spark_connector.jars /opt/jars
VOLUME /var/lib/rangewatch
ENTRYPOINT ["python", "-m", "spark_connector", "--jars", "/opt/jars", "--out", "/var/lib/rangewatch/tables"]

FROM python:3.11-slim-bookworm AS service
RUN useradd --uid 10001 --create-home rangewatch \
    && install --directory --owner=rangewatch /var/lib/rangewatch
COPY --from=build /opt/service /opt/service
ENV PATH=/opt/service/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/lib/rangewatch/numba \
    RANGEWATCH_LOG=sqlite:/var/lib/rangewatch/rangewatch.db \
    RANGEWATCH_HOST=0.0.0.0 \
    RANGEWATCH_PORT=8080
USER rangewatch
WORKDIR /var/lib/rangewatch
VOLUME /var/lib/rangewatch
EXPOSE 8080
# Kernels are compiled before the first start answers. The check reads the settings of the environment, and of the
# file that RANGEWATCH_CONFIG names; it knows no flags of the command.
HEALTHCHECK --start-period=90s --interval=10s --timeout=5s --retries=3 \
    CMD ["rangewatch", "health"]
ENTRYPOINT ["rangewatch"]
CMD ["serve"]
