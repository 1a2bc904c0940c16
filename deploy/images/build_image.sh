#!/usr/bin/env bash
# Builds one image of the Dockerfile with docker, podman or buildah, whichever is there: build_image.sh TARGET NAME; `--builder` names it.
# BUILDER names one of the three, PYTHON_IMAGE the base, BUILD_FLAGS further options (a mirror's certificate, say). Needs dist/.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:-cpu} name=${2:-turnscore}

find_builder() {
    if docker info >/dev/null 2>&1; then echo docker
    elif command -v podman >/dev/null; then echo podman
    elif command -v buildah >/dev/null; then echo buildah
    else
        echo "building an image needs docker with its daemon running, podman or buildah" >&2
        return 1
    fi
}

builder=${BUILDER:-$(find_builder)}
if [ "$target" = --builder ]; then
    echo "$builder"
    exit
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
flags=(--file Dockerfile --target "$target" --tag "$name"
    --build-arg "PYTHON=${PYTHON_IMAGE:-python:3.11-slim}" --build-arg "VERSION=$version"
    --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)")
# OCI's own format has no health check; and unlike docker these two keep layers only when asked.
[ "$builder" = docker ] || flags+=(--format docker --layers)
# shellcheck disable=SC2086  # several options in one variable
"$builder" build "${flags[@]}" ${BUILD_FLAGS:-} .
