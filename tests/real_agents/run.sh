#!/bin/bash
# Runs the tests of real agent CLIs: installs them, then starts pytest where nothing but the
# loopback can be reached, so that no CLI can call home and no test depends on a network.
# Skipped with a loud line, also in CI, where npm reaches no registry or namespaces are not allowed.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
    echo "*** make test-agents is SKIPPED: $1. No real agent CLI was tried in this run. ***" >&2
    exit 0
}

installed=0
programs=$(tests/real_agents/install.sh) || installed=$?
[ "$installed" != 75 ] || skip "the agent CLIs cannot be installed"
[ "$installed" = 0 ] || { echo "the agent CLIs could not be installed" >&2; exit 1; }
# Whoever is not root stays who they are: codex's sandbox does not work for a user who only seems to be
# root. The capabilities that bring the loopback up are given away again before anything else runs.
if [ "$(id -u)" = 0 ]
then alone=(unshare --net); calm=()
else
    alone=(unshare --net --map-current-user --keep-caps)
    calm=(setpriv --inh-caps=-all --ambient-caps=-all)
fi
"${alone[@]}" ip link set lo up || skip "no network namespace can be made here"

export AGENT_PROGRAMS="$programs"
exec "${alone[@]}" sh -c 'ip link set lo up && exec "$@"' sh "${calm[@]}" \
    .venv/bin/python -m pytest -n 4 --dist worksteal tests/real_agents "$@"
