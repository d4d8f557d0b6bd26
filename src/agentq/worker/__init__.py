"""The worker: free slot, claim, workspace, agent, evidence, report. It owns the child processes."""
