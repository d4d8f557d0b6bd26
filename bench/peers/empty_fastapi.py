"""An empty endpoint of FastAPI, served by uvicorn: what answering at all costs."""

from __future__ import annotations

from fastapi import FastAPI

app = FastAPI()


@app.get("/api/v1/tasks/{ref}")
async def task(ref: str) -> dict[str, str]:
    return {}
