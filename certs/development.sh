#!/bin/sh
# Makes a CA and a serving certificate for trials, good for 30 days: certs/development.sh [FOLDER [NAME...]]
#
# FOLDER is a new one, by default certs/development, which Git leaves alone. NAMES are DNS names and IP addresses, by default those of
# this machine and of our Service. What it makes: ca.crt, tls.crt, tls.key. The key of the CA is thrown away.
set -eu
umask 077
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/development}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- localhost 127.0.0.1 ::1 drainproof.drainproof.svc
command -v openssl >/dev/null || { echo "development.sh needs openssl" >&2; exit 1; }
mkdir -p "$(dirname "$folder")"
mkdir "$folder" || { echo "development.sh: $folder must not be there yet" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

names=
for name; do
    case $name in
        *:* | *[0-9].[0-9]*) kind=IP ;;
        *) kind=DNS ;;
    esac
    names=${names:+$names,}$kind:$name
done

curve="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
# shellcheck disable=SC2086  # words on purpose
openssl req -x509 $curve -keyout "$scratch/ca.key" -out "$folder/ca.crt" -days 30 -subj "/CN=drainproof development CA" \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign 2>"$scratch/said" ||
    { cat "$scratch/said" >&2; exit 1; }
# shellcheck disable=SC2086
openssl req -new $curve -keyout "$folder/tls.key" -out "$scratch/request" -subj "/CN=drainproof" 2>"$scratch/said" ||
    { cat "$scratch/said" >&2; exit 1; }
cat >"$scratch/extensions" <<EOF
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=$names
EOF
openssl x509 -req -in "$scratch/request" -CA "$folder/ca.crt" -CAkey "$scratch/ca.key" -CAserial "$scratch/serial" -CAcreateserial -days 30 \
    -extfile "$scratch/extensions" -out "$folder/tls.crt" 2>"$scratch/said" || { cat "$scratch/said" >&2; exit 1; }
echo "drainproof serve --certificate $folder/tls.crt --key $folder/tls.key"
echo "The CA for clients: $folder/ca.crt"
