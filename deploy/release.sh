#!/usr/bin/env bash
# Puts everything of one version into dist/release/. `make release` calls it twice: before it builds, and after `make image TARGET=bento`.
#   release.sh check PYTHON                     refuses what cannot be released
#   release.sh gather PYTHON BENTOML TARGET...  wheels, sdists, the bento, chart, plain manifests, and of each of the
#       Dockerfile's targets the image as an archive with its bill of materials (CycloneDX); checksums of all
set -euo pipefail
cd "$(dirname "$0")/.."
step=$1 python=$2
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
refuse() { echo "no release: $*" >&2; exit 1; }

heading="^## \[${version//./\\.}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}\$"
grep -Eq "$heading" CHANGELOG.md ||
    refuse "CHANGELOG.md has no section \"## [$version] - YYYY-MM-DD\"; move what is under [Unreleased] there"
[ -n "$(sed -nE "/$heading/,/^## /{/^- /p}" CHANGELOG.md)" ] || refuse "CHANGELOG.md says nothing under [$version]"
[ -z "$(git status --porcelain --untracked-files=no)" ] || refuse "the tree has changes that are not committed"
helm=$(ls build/tools/helm 2>/dev/null || command -v helm) || refuse "there is no helm; make deploy-tools fetches one"
syft=$(command -v "$(dirname "$python")/syft" || command -v syft) || refuse "there is no syft; make deploy-tools installs one"
[ "$step" = gather ] || exit 0

bentoml=$3 out=dist/release
shift 3
rm -rf "$out" && mkdir -p "$out"

cp dist/turnscore*-"$version"-*.whl "$out"
for folder in . clients assessment exporters corpora; do
    # Nothing that is not committed: no tools, no earlier builds, no keys that somebody left there.
    made=$("$python" -m build --sdist --outdir "$out" "$folder" | sed -n 's/^Successfully built //p')
    strays=$(tar tzf "$out/$made" | cut -d/ -f2- | grep -vxF -e PKG-INFO -e .gitignore -f <(cd "$folder" && git ls-files)) || true
    [ -z "$strays" ] || refuse "$made has what is not committed: $strays"
done
[ "$(ls "$out"/*.whl | wc -l)" = "$(ls "$out"/*.tar.gz | wc -l)" ] || refuse "a wheel is missing: $(ls -m "$out")"
"$bentoml" export turnscore:latest "$PWD/$out/turnscore-$version.bento" >/dev/null  # a relative path would start at /
"$helm" package deploy/helm/turnscore --destination "$out" >/dev/null
tar czf "$out/turnscore-manifests-$version.tar.gz" deploy/kubernetes deploy/compose deploy/observability

for target in "$@"; do
    tag=$version
    [ "$target" = cpu ] || tag=$version-$target
    name=turnscore-image-$target-$version
    builder=$(deploy/images/build_image.sh --builder)
    deploy/images/build_image.sh "$target" "turnscore:$tag"
    if [ "$builder" = docker ]; then docker save --output "$out/$name.tar" "turnscore:$tag"
    else "$builder" push --quiet "turnscore:$tag" "docker-archive:$out/$name.tar:turnscore:$tag"; fi
    "$syft" scan "docker-archive:$out/$name.tar" --quiet --output "cyclonedx-json=$out/$name.cdx.json"
    gzip "$out/$name.tar"
done
(cd "$out" && sha256sum -- * > ../SHA256SUMS && mv ../SHA256SUMS .)
ls -l "$out"
