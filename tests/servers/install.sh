#!/bin/sh
# What tests need from the distribution, beside the wheels in requirements/. As root on a machine
# with apt it is installed; elsewhere a line says what is missing, and the tests that need it skip
# (or fail, in CI).
set -u

missing=""
command -v bwrap >/dev/null || missing="$missing bubblewrap"
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing="$missing rabbitmq-server"
[ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v ip >/dev/null || missing="$missing iproute2"
command -v openssl >/dev/null || missing="$missing openssl"
{ command -v nginx || [ -x /usr/sbin/nginx ]; } >/dev/null || missing="$missing nginx-light"
command -v chromium >/dev/null || missing="$missing chromium fonts-dejavu-core"
command -v npm >/dev/null || missing="$missing nodejs npm"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    if apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null 2>&1; then
        echo "installed:$missing"
        exit 0
    fi
fi
echo "*** not installed:$missing. Tests that need it will be skipped. ***" >&2
