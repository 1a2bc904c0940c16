# The service with the starter bundles. Build the wheels first: make wheels && docker build -t turnscore .
# For CUDA: docker build --build-arg REQUIREMENTS=serve-gpu.txt -t turnscore-gpu .   CUDA and cuDNN come as wheels, the
# driver (580 or later) from the host: docker run --gpus all -p 3000:3000 turnscore-gpu
FROM python:3.11-slim
ARG REQUIREMENTS=serve.txt

RUN useradd --create-home --uid 10001 turnscore
WORKDIR /home/turnscore

COPY requirements/${REQUIREMENTS} /tmp/requirements.txt
RUN pip install --no-cache-dir --requirement /tmp/requirements.txt
COPY dist/turnscore-*.whl dist/turnscore_client-*.whl /tmp/wheels/
RUN pip install --no-cache-dir --no-deps /tmp/wheels/*.whl && rm -r /tmp/wheels /tmp/requirements.txt

USER turnscore
ENV BENTOML_DO_NOT_TRACK=True ORT_DISABLE_TELEMETRY=1 TURNSCORE_GRPC__HOST=0.0.0.0 NVIDIA_DRIVER_CAPABILITIES=compute,utility
EXPOSE 3000 50051
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:3000/readyz', timeout=2)"]
CMD ["bentoml", "serve", "turnscore_service.bento:TurnScore", "--host", "0.0.0.0", "--port", "3000"]
