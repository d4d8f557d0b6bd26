"""No word leads out of the store's place, in any of them."""

from __future__ import annotations

import pytest

from agentq.contracts.artifacts import ArtifactStore
from agentq.core.errors import Invalid, Refused
from tests.artifacts.test_escapes import (
    BAD_DIGESTS,
    BAD_EPOCHS,
    BAD_IDS,
    BAD_NAMES,
    NAMED,
    SHA,
    VERBS,
    WITH_DIGEST,
    WITH_EPOCH,
)
from tests.contracts.artifacts.backends import Backend, FileBackend


def test_bad_words_are_refused_by_every_verb(store: ArtifactStore, backend: Backend) -> None:
    for verb, call in VERBS.items():
        for bad in BAD_IDS:
            with pytest.raises(Invalid, match="A task id is"):
                call(store, bad, 1, "a.md", SHA)  # type: ignore[arg-type]
        for bad in BAD_NAMES if verb in NAMED else ():
            with pytest.raises(Invalid, match="An artifact's name is"):
                call(store, "task-1", 1, bad, SHA)  # type: ignore[arg-type]
        for bad_epoch in BAD_EPOCHS if verb in WITH_EPOCH else ():
            with pytest.raises(Invalid, match="An epoch is"):
                call(store, "task-1", bad_epoch, "a.md", SHA)  # type: ignore[arg-type]
        for bad_digest in BAD_DIGESTS if verb in WITH_DIGEST else ():
            with pytest.raises(Invalid, match="A SHA-256 digest is"):
                call(store, "task-1", 1, "a.md", bad_digest)  # type: ignore[arg-type]
    for bad in BAD_NAMES:
        with pytest.raises(Invalid, match="An artifact's name is"):
            store.presign("task-1", 1, bad, 60)  # type: ignore[arg-type]
    assert backend.names() == set()


def test_check_reports_a_bad_record_instead_of_raising(store: ArtifactStore) -> None:
    assert "An artifact's name" in str(store.check("task-1", 1, "../x", SHA, 8))


def test_a_folder_has_no_links_to_give(store: ArtifactStore, backend: Backend) -> None:
    if isinstance(backend, FileBackend):
        with pytest.raises(Refused, match="no links to files in a folder"):
            store.presign("task-1", 1, "a.md", 60)
    else:
        assert "a.md" in store.presign("task-1", 1, "a.md", 60)
