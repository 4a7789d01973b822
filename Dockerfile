# Two images from one file:
#   docker build -t anabranch .                        a node, or a whole cluster in one container (no Java)
#   docker build -t anabranch-jvm --target jvm .       the same with Java: ZooKeeper, the Spark audit
# BASE is any Debian with Python 3.11 or newer and its venv module; the JVM target installs a Java if it has none.
ARG BASE=python:3.11-slim

# Dependencies first: a change of the sources does not fetch them again.
FROM ${BASE} AS dependencies
WORKDIR /src
COPY pyproject.toml constraints.txt ./
RUN python3 -m venv /opt/anabranch \
 && python3 -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
extras = project['optional-dependencies']; print(*project['dependencies'], *extras['metrics'], *extras['control'], sep='\n')" \
 > requirements.txt \
 && /opt/anabranch/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt -r requirements.txt

FROM dependencies AS build
COPY README.md LICENSE ./
COPY protocol protocol
COPY clients clients
COPY controller controller
COPY broker broker
COPY spark_jobs spark_jobs
COPY src src
RUN /opt/anabranch/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps .

FROM ${BASE} AS base
RUN useradd --system --uid 9092 --home-dir /data --shell /usr/sbin/nologin anabranch \
 && install -d -o anabranch -g anabranch /data
ENV PATH=/opt/anabranch/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /data
VOLUME /data
STOPSIGNAL SIGTERM
ENTRYPOINT ["anabranch"]

FROM base AS node
COPY --from=build /opt/anabranch /opt/anabranch
USER anabranch
EXPOSE 9092 9093 9094
# The control plane is there for `docker exec CONTAINER anabranch control ...`; elsewhere it wants a token.
CMD ["up", "--host", "0.0.0.0", "--advertise", "localhost", "--control", "127.0.0.1:9190"]
HEALTHCHECK --interval=5s --timeout=5s --start-period=10s CMD ["anabranch", "health", "127.0.0.1:9092"]

FROM dependencies AS dependencies-jvm
RUN python3 -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
print(*project['optional-dependencies']['audit'], sep='\n')" > requirements.txt \
 && /opt/anabranch/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt -r requirements.txt

FROM dependencies-jvm AS build-jvm
COPY --from=build /src /src
RUN /opt/anabranch/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps .

FROM base AS jvm
RUN command -v java >/dev/null \
 || { apt-get update && apt-get install -y --no-install-recommends default-jre-headless procps && rm -rf /var/lib/apt/lists/*; }
COPY --from=build-jvm /opt/anabranch /opt/anabranch
USER anabranch
CMD ["zookeeper", "--listen", "0.0.0.0:2181", "--data-dir", "/data"]

# What `docker build .` makes.
FROM node
