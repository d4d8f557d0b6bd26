#!/usr/bin/env bash
# An agent in any language needs nothing but the command: claim, work, heartbeat, report.
#
#     agentq init
#     agentq submit --to shell --instructions "List the files." --expect listing
#     bash shell_agent.sh shell
#
# Put your agent where `work` is. It finds the context in $AGENTQ_CONTEXT, and every `agentq`
# command it runs speaks for this attempt, because the task and the epoch are in the environment.
set -euo pipefail
role=$1
lease_seconds=60

work() {
    ls > "$folder/listing.txt"
    agentq progress 50 "listed"
    agentq artifacts put "$folder/listing.txt"
}

# One field of the JSON that came with the claim.
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<< "$claimed"; }

# 1. Claim. Status 6 means that there is nothing to do; whatever else is an error.
claimed=$(agentq claim --as "$role" --lease "${lease_seconds}s" --json) || {
    status=$?
    if [ $status -eq 6 ]; then echo "nothing to do for $role"; exit 0; fi
    echo "$claimed" >&2
    exit $status
}
export AGENTQ_TASK_ID AGENTQ_EPOCH AGENTQ_CONTEXT
AGENTQ_TASK_ID=$(field task_id)
AGENTQ_EPOCH=$(field epoch)
folder=$(mktemp -d)
AGENTQ_CONTEXT=$folder/context.md
field context > "$AGENTQ_CONTEXT"
echo "$AGENTQ_TASK_ID, attempt $AGENTQ_EPOCH: $(head -n 1 "$AGENTQ_CONTEXT")"

# 2. Work, and renew the lease beside it, three times as often as needed. A refused renewal means that
#    the task is cancelled or in other hands: all of the work is stopped, nobody would accept it.
set -m  # jobs get process groups of their own, so that one signal reaches all of a job
(set -e; work) &
worker=$!
(
    while sleep $((lease_seconds / 3)); do
        agentq heartbeat --lease "${lease_seconds}s" || { kill -TERM -- -$worker; exit; }
    done
) < /dev/null > /dev/null 2>&1 &
heart=$!
set +m
trap 'kill -TERM -- -$heart 2> /dev/null || true; rm -rf "$folder"' EXIT
status=0
wait $worker || status=$?

# 3. Say how it ended. Of a task that is no longer ours, this is refused with status 4.
if [ $status -eq 0 ]; then
    agentq complete --summary "listed $(wc -l < "$folder/listing.txt") files" \
        --result-file "$folder/listing.txt"
else
    agentq fail --reason "the work ended with status $status"
fi
