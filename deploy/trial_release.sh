#!/usr/bin/env bash
# Makes a whole release of HEAD in a clone, whose changelog gets the section that a release needs: trial_release.sh FOLDER [VARIABLE=...]
# This checkout, its dist/ and BentoML's store stay as they are; the clone uses its environments and tools. Variables are make's.
set -euo pipefail
cd "$(dirname "$0")/.."
checkout=$PWD folder=$1
shift
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

rm -rf "$folder"
git clone --quiet "$checkout" "$folder"
cd "$folder"
ln -s "$checkout/.venv" .venv
ln -s "$checkout/.venv-dev" .venv-dev
# Older than the environments, or make would install the clone into those of the checkout.
touch --date=@0 pyproject.toml ./*/pyproject.toml requirements/*.txt
mkdir -p build
[ ! -e "$checkout/build/tools" ] || ln -s "$checkout/build/tools" build/tools
if ! grep -q "^## \[$version\] - " CHANGELOG.md; then
    sed -i "s/^## \[Unreleased\]\$/&\n\n## [$version] - $(date -u +%F)/" CHANGELOG.md
    git -c user.name=trial -c user.email=trial@localhost commit --quiet --all --message "A trial of $version"
fi
BENTOML_HOME=$PWD/build/bentoml exec make --no-print-directory release TRIAL= "$@"  # or it would be a trial again
