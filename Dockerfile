# A node, or a whole cluster in one container. It has no Java; Dockerfile.jvm makes the image that has one.
#
#   docker build -t anabranch .
#   docker build -t anabranch --build-arg COMPILED=0 .      without compiled modules, where no C compiler can be installed
#   docker run --rm --read-only --tmpfs /tmp -p 9092-9094:9092-9094 anabranch
#
# It runs as a user without rights, and writes to /data and /tmp alone. BASE is any Debian with Python 3.11 or newer and its
# venv module.
ARG BASE=python:3.11-slim

# The wheel of the sources, whose hot modules mypyc compiles (setup.py). Dockerfile and Dockerfile.jvm have this stage alike, so
# that the engine makes it once. The compiler stays in it. Tools come first: a change of the sources does not fetch them again.
FROM ${BASE} AS wheel
ARG COMPILED=1
WORKDIR /src
COPY constraints.txt ./
RUN case "$COMPILED" in \
    0) tools="setuptools"; echo "COMPILED=0: no module is compiled; the image runs the Python sources" ;; \
    1) tools="setuptools mypy"; echo "COMPILED=1: installing a C compiler, in order to compile the hot modules"; \
       include=$(python3 -c "import sysconfig; print(sysconfig.get_path('include'))"); \
       headers=$(test -e "$include/Python.h" || echo python3-dev); \
       { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev $headers; } \
       || { echo "No C compiler can be installed. '--build-arg COMPILED=0' makes an image without one." >&2; exit 1; } ;; \
    *) echo "COMPILED is 1 (compile the hot modules) or 0 (run the Python sources), not '$COMPILED'" >&2; exit 1 ;; \
    esac \
 && python3 -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --upgrade -c constraints.txt $tools
COPY pyproject.toml setup.py README.md LICENSE ./
COPY protocol protocol
COPY clients clients
COPY controller controller
COPY broker broker
COPY spark_jobs spark_jobs
COPY src src
# Without debugging information, which would be most of what is compiled.
RUN if [ "$COMPILED" = 1 ]; then echo "Compiling the hot modules takes two to six minutes"; fi \
 && ANABRANCH_COMPILE=$COMPILED CFLAGS=-g0 \
    /opt/build/bin/pip wheel --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir /wheel .

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
COPY --from=wheel /wheel /wheel
# pip has then done its work, and would be a quarter of what the image adds to its base.
RUN /opt/anabranch/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /wheel/*.whl \
 && /opt/anabranch/bin/pip uninstall --yes setuptools pip

FROM ${BASE} AS node
RUN groupadd --system --gid 9092 anabranch \
 && useradd --system --uid 9092 --gid 9092 --home-dir /data --shell /usr/sbin/nologin anabranch \
 && install -d -o anabranch -g anabranch /data
ENV PATH=/opt/anabranch/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
VOLUME /data
STOPSIGNAL SIGTERM
ENTRYPOINT ["anabranch"]
COPY --from=build /opt/anabranch /opt/anabranch
# By number: Kubernetes' runAsNonRoot does not look a name up.
USER 9092:9092
EXPOSE 9092 9093 9094
# The control plane is there for `docker exec CONTAINER anabranch control ...`; elsewhere it wants a token.
CMD ["up", "--host", "0.0.0.0", "--advertise", "localhost", "--control", "127.0.0.1:9190"]
HEALTHCHECK --interval=5s --timeout=15s --start-period=30s CMD ["anabranch", "health", "127.0.0.1:9092"]
