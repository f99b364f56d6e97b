# Undrift with all extras, installed from a wheel.
#
#   make dist && docker build -t undrift .
#   docker build -t undrift:cuda --build-arg TORCH=cu126 .
#   docker run --rm -v "$PWD/runs:/work/runs" undrift run --data digits
#   docker run --rm --gpus all undrift:cuda doctor --device cuda
#
# TORCH is a build of PyTorch: cpu, or a version of CUDA such as cu126, whose libraries come with it.
FROM python:3.11-slim-bookworm AS build
ARG TORCH=cpu
ARG EXTRAS=all
WORKDIR /build
COPY constraints.txt dist/undrift-*.whl ./
# torch first, from PyTorch's own index, so that nothing replaces it by another build
RUN python -m venv /opt/undrift \
    && /opt/undrift/bin/pip install --no-cache-dir --index-url "https://download.pytorch.org/whl/${TORCH}" \
        torch torchvision -c constraints.txt \
    && wheel="$(ls undrift-*.whl)" \
    && /opt/undrift/bin/pip install --no-cache-dir "${wheel}[${EXTRAS}]" -c constraints.txt

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.source="https://github.com/undrift/undrift" \
    org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/undrift/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    UNDRIFT_DATA=/data \
    RAY_USAGE_STATS_ENABLED=0 \
    FLWR_TELEMETRY_ENABLED=0
COPY --from=build /opt/undrift /opt/undrift
RUN useradd --create-home --uid 1000 undrift \
    && install -d -o undrift -g undrift /work /work/runs /data
USER undrift
WORKDIR /work
ENTRYPOINT ["undrift"]
CMD ["doctor"]
