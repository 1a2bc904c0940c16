#!/usr/bin/env bash
# Puts everything of one version into dist/release/: release.sh PYTHON BENTOML, which `make release` calls after `make wheels bento image`.
# Wheels, sdists, the bento, the image as an archive, the chart, plain manifests, the image's bill of materials (CycloneDX), checksums.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 bentoml=$2 image=${3:-turnscore} out=dist/release
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
refuse() { echo "no release: $*" >&2; exit 1; }

grep -q "^## \[$version\]" CHANGELOG.md || refuse "CHANGELOG.md has no section [$version]; move what is under [Unreleased] there"
[ -z "$(git status --porcelain --untracked-files=no)" ] || refuse "the tree has changes that are not committed"
helm=$(ls build/tools/helm 2>/dev/null || command -v helm) || refuse "there is no helm; make deploy-tools fetches one"
syft=$(command -v "$(dirname "$python")/syft" || command -v syft) || refuse "there is no syft; make deploy-tools installs one"
rm -rf "$out" && mkdir -p "$out"

cp dist/turnscore*-"$version"-*.whl "$out"
for folder in . clients assessment exporters corpora; do "$python" -m build --sdist --outdir "$out" "$folder" >/dev/null; done
"$bentoml" export turnscore:latest "$PWD/$out/turnscore-$version.bento" >/dev/null  # a relative path would start at /
"$helm" package deploy/helm/turnscore --destination "$out" >/dev/null
tar czf "$out/turnscore-manifests-$version.tar.gz" deploy/kubernetes deploy/compose

archive=$out/turnscore-image-cpu-$version.tar
if docker image inspect "$image" >/dev/null 2>&1; then docker save --output "$archive" "$image"
elif command -v podman >/dev/null; then podman save --format docker-archive --output "$archive" "$image"
else buildah push --quiet "$image" "docker-archive:$archive:$image:$version"; fi
"$syft" scan "docker-archive:$archive" --quiet --output "cyclonedx-json=$out/turnscore-$version.cdx.json"
gzip "$archive"
(cd "$out" && sha256sum -- * > ../SHA256SUMS && mv ../SHA256SUMS .)
ls -l "$out"
