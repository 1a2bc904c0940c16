#!/usr/bin/env bash
# Puts everything of one version into dist/release/. `make release` calls it twice: before it builds, and after `make image TARGET=bento`.
#   release.sh pack FOLDER                      npm's package of the JavaScript client, plain manifests, and the chart
#   release.sh check PYTHON                     refuses what cannot be released
#   release.sh gather PYTHON BENTOML TARGET...  wheels, sdists, the bento, what pack makes, and
#       of each of the Dockerfile's targets the image as an archive; bills of materials (CycloneDX), the table of licences
#       and sizes, which stops the release where the policy refuses one, and checksums of all
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
refuse() { echo "no release: $*" >&2; exit 1; }
helm=$(ls build/tools/helm 2>/dev/null || command -v helm || true)
command -v npm >/dev/null || refuse "there is no npm, which packs the JavaScript client"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pack() {
    # Only what git knows: no passwords in an .env, nothing else that somebody left there. The chart has links into deploy/.
    git ls-files -z deploy clients/javascript | tar cf - --null --files-from - | tar xf - -C "$work"
    # Both would be turnscore-$version.tgz.
    mv "$1/$(npm pack --silent --pack-destination "$1" "$work/clients/javascript")" "$1/turnscore-javascript-$version.tgz"
    tar czf "$1/turnscore-manifests-$version.tar.gz" -C "$work" deploy/kubernetes deploy/compose deploy/observability
    [ -n "$helm" ] || refuse "there is no helm; make deploy-tools fetches one"
    "$helm" package "$work/deploy/helm/turnscore" --destination "$1" >/dev/null
}
if [ "$1" = pack ]; then
    pack "$2"
    exit
fi
step=$1 python=$2

heading="^## \[${version//./\\.}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}\$"
grep -Eq "$heading" CHANGELOG.md ||
    refuse "CHANGELOG.md has no section \"## [$version] - YYYY-MM-DD\"; move what is under [Unreleased] there"
[ -n "$(sed -nE "/$heading/,/^## /{/^- /p}" CHANGELOG.md)" ] || refuse "CHANGELOG.md says nothing under [$version]"
[ -z "$(git status --porcelain --untracked-files=no)" ] || refuse "the tree has changes that are not committed"
tools=$(dirname "$python")
for tool in syft cyclonedx-py; do
    command -v "$tools/$tool" >/dev/null || refuse "there is no $tool; make deploy-tools installs one"
done
[ -n "$helm" ] || refuse "there is no helm; make deploy-tools fetches one"
[ "$step" = gather ] || exit 0

bentoml=$3 out=dist/release
shift 3
rm -rf "$out" && mkdir -p "$out"

cp dist/turnscore*-"$version"-*.whl "$out"
for folder in . core clients assessment exporters corpora; do
    # Nothing that is not committed: no tools, no earlier builds, no keys that somebody left there.
    made=$("$python" -m build --sdist --outdir "$out" "$folder" | sed -n 's/^Successfully built //p')
    strays=$(tar tzf "$out/$made" | cut -d/ -f2- | grep -vxF -e PKG-INFO -e .gitignore -f <(cd "$folder" && git ls-files) \
        -f <(git ls-files model_store)) || true
    [ -z "$strays" ] || refuse "$made has what is not committed: $strays"
done
[ "$(ls "$out"/*.whl | wc -l)" = "$(ls "$out"/*.tar.gz | wc -l)" ] || refuse "a wheel is missing: $(ls -m "$out")"
"$bentoml" export turnscore:latest "$PWD/$out/turnscore-$version.bento" >/dev/null  # a relative path would start at /
pack "$PWD/$out"
# Of a folder syft would read lock files only, of which a client without dependencies has none.
"$tools/syft" scan dir:clients/javascript --quiet --override-default-catalogers javascript-package-cataloger \
    --output "cyclonedx-json=$out/turnscore-javascript-$version.cdx.json"

for target in "$@"; do
    tag=$version
    [ "$target" = cpu ] || tag=$version-$target
    name=turnscore-image-$target-$version
    builder=$(deploy/images/build_image.sh --builder)
    deploy/images/build_image.sh "$target" "turnscore:$tag"
    if [ "$builder" = docker ]; then docker save --output "$out/$name.tar" "turnscore:$tag"
    else "$builder" push --quiet "turnscore:$tag" "docker-archive:$out/$name.tar:turnscore:$tag"; fi
    "$tools/syft" scan "docker-archive:$out/$name.tar" --quiet --output "cyclonedx-json=$out/$name.cdx.json"
    gzip "$out/$name.tar"
done
described=$work/environment.json
"$tools/cyclonedx-py" environment --output-format JSON --output-file "$described" "$python"
"$python" deploy/licences.py "$out" "$described"
(cd "$out" && sha256sum -- * > ../SHA256SUMS && mv ../SHA256SUMS .)
ls -l "$out"
