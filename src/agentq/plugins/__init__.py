"""Taste, by hooks: where people are told, where work is pushed, which boards are followed.

A plugin is a module that an entry point of the group `agentq` names; built-ins are no different.
It runs in a process of its own (`host`), which the parent (`process`) kills when it hangs, floods
or dies. `carrier` gives it calls one after the other, with back-off. See `hooks` for what to write.
"""
