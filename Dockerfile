# syntax=docker/dockerfile:1
# ripml serve in a container: python:3.11-slim, the locked versions, one unprivileged user, nothing to write but /data.
#
#   docker build -t ripml .
#   docker run --read-only --tmpfs /tmp --cap-drop ALL -p 127.0.0.1:8000:8000 -v ripml-data:/data ripml
#
# compose.yaml has the same with a backup. tests/test_deployment.py runs the steps of this file in a virtual environment.

FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/ripml
# First the dependencies, which change less often than the code. Hashes make sure that they are the locked files.
COPY deploy/requirements.lock deploy/
RUN /opt/ripml/bin/python -m pip install --require-hashes -r deploy/requirements.lock
COPY deploy/build.lock deploy/
RUN python -m venv /opt/build && /opt/build/bin/python -m pip install --require-hashes -r deploy/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/build/bin/python -m build --wheel --no-isolation --outdir /wheels \
    && /opt/ripml/bin/python -m pip install --no-deps --no-index --find-links /wheels ripml

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin ripml \
    && install -d -o ripml -g ripml -m 0700 /data
COPY --from=build /opt/ripml /opt/ripml
# Loops that Numba compiles for the processor are kept in the volume, as the rest is read-only.
ENV PATH=/opt/ripml/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/data/.cache/numba
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4).close()"]
ENTRYPOINT ["ripml"]
CMD ["serve", "/data/store", "--host", "0.0.0.0", "--port", "8000", "--keys", "/data/keys.jsonl"]
