# docker build -f docker/cuda.Dockerfile -t yuriiformer:cuda .
# Any image with CUDA's runtime and Python 3.11 or newer will do:
#   docker build --build-arg BASE=... -f docker/cuda.Dockerfile .
ARG BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04
FROM ${BASE}

RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3 python3-dev python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*

RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH

WORKDIR /opt/yuriiformer
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
COPY benchmarks ./benchmarks
# The usual wheel of torch brings the CUDA libraries that it was built with.
RUN pip install --no-cache-dir -c constraints.txt '.[cli,data,log,report,cluster,hf,eval]'

CMD ["yurii", "--help"]
