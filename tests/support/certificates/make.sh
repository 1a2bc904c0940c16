#!/bin/sh
# Makes the certificates of the tests anew: an authority, two servers, a caller, and a second authority with a caller of
# its own. The keys are published here and protect nothing. Valid from 2020 on for a hundred years, so that no machine's
# clock is before or after them; only `openssl ca` can be told the first day.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

cat > "$work/openssl.cnf" <<'CNF'
[ca]
default_ca = tests
[tests]
database = $ENV::WORK/index
rand_serial = yes
new_certs_dir = $ENV::WORK
policy = any
default_md = sha256
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
subjectKeyIdentifier = hash
[end]
subjectAltName = DNS:localhost, IP:127.0.0.1
CNF
: > "$work/index"
export WORK="$work"

certify() { # name, extensions, further options
  name=$1 extensions=$2
  shift 2
  openssl ca -batch -notext -config "$work/openssl.cnf" -extensions "$extensions" -in "$work/$name.csr" -out "$name.pem" \
    -startdate 20200101000000Z -enddate 21200101000000Z "$@"
}

request() { # name, key file
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config "$work/openssl.cnf" -subj "/CN=$1" \
    -keyout "$2" -out "$work/$1.csr"
}

authority() {
  request "$1" "$work/$1.key"
  certify "$1" authority -selfsign -keyfile "$work/$1.key"
}

signed() {
  request "$2" "$2.key"
  certify "$2" end -cert "$1.pem" -keyfile "$work/$1.key"
}

authority authority
authority stranger_authority
signed authority server
signed authority caller
signed authority renewed_server
signed stranger_authority stranger
