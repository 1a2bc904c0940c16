# The service on a CPU with the starter bundles. Build the wheels first: make wheels && docker build -t turnscore .
FROM python:3.11-slim

RUN useradd --create-home --uid 10001 turnscore
WORKDIR /home/turnscore

COPY requirements/serve.txt /tmp/serve.txt
RUN pip install --no-cache-dir --requirement /tmp/serve.txt
COPY dist/turnscore-*.whl dist/turnscore_client-*.whl /tmp/wheels/
RUN pip install --no-cache-dir --no-deps /tmp/wheels/*.whl && rm -r /tmp/wheels /tmp/serve.txt

USER turnscore
ENV BENTOML_DO_NOT_TRACK=True TURNSCORE_GRPC__HOST=0.0.0.0
EXPOSE 3000 50051
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:3000/readyz', timeout=2)"]
CMD ["bentoml", "serve", "turnscore_service.bento:TurnScore", "--host", "0.0.0.0", "--port", "3000"]
