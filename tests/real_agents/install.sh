#!/bin/sh
# Installs the agent CLIs that package-lock.json pins, checked by its hashes, into a cache outside
# the repository, and prints the folder of their programs. A second call costs nothing; a changed
# pin makes another folder. Exit 75, with the reason, where npm reaches no registry.
#
# To pin other versions: edit package.json and run pin.py.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
pins=$(sha256sum "$here/package-lock.json" | cut -c1-16)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/agentq-test-agents"
place="$cache/$pins"

if [ ! -e "$place/complete" ]; then
    if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
        echo "node and npm are not installed" >&2
        exit 75
    fi
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    cp "$here/package.json" "$here/package-lock.json" "$new"
    cd "$new"
    if ! npm ci --ignore-scripts --no-audit --no-fund >log 2>&1; then
        tail -n 5 log >&2
        if grep -qE 'E(AI_AGAIN|NOTFOUND|CONN[A-Z]+|TIMEDOUT|HOSTUNREACH|NETUNREACH)|SOCKET_TIMEOUT' log
        then exit 75; else exit 1; fi
    fi
    python3 "$here/installed.py" package-lock.json node_modules/.package-lock.json
    # The two of their scripts that are needed: they put the program for this platform in its place.
    node node_modules/@anthropic-ai/claude-code/install.cjs >>log 2>&1
    node node_modules/opencode-ai/postinstall.mjs >>log 2>&1
    touch complete
    # Another run may have been quicker: its folder is as good.
    mv -T "$new" "$place" 2>/dev/null || [ -e "$place/complete" ]
fi
echo "$place/node_modules/.bin"
