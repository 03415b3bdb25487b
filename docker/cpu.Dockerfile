# docker build -f docker/cpu.Dockerfile -t yuriiformer:cpu .
FROM python:3.11-slim

# g++ compiles the blocks of long runs (--compile).
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/yuriiformer
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
COPY benchmarks ./benchmarks
# The usual wheel of torch brings CUDA's libraries, which take gigabytes. With
#   --build-arg TORCH_INDEX=...
# torch comes from another index, such as PyTorch's own of CPU builds.
ARG TORCH_INDEX=
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -c constraints.txt torch \
    && pip install --no-cache-dir -c constraints.txt '.[cli,data,log,report,cluster,hf,eval]'

RUN useradd --create-home yurii
USER yurii
WORKDIR /home/yurii
CMD ["yurii", "--help"]
