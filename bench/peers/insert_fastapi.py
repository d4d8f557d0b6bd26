"""The least that taking a webhook costs: an endpoint that inserts the body and says so."""

import os

import apsw
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

app = FastAPI()
_connection = apsw.Connection(os.environ["BENCH_FILE"])
_connection.execute("PRAGMA journal_mode = WAL")
_connection.execute("PRAGMA synchronous = FULL")
_connection.execute("CREATE TABLE IF NOT EXISTS deliveries (id INTEGER PRIMARY KEY, body BLOB)")


def _insert(body: bytes) -> None:
    _connection.execute("INSERT INTO deliveries (body) VALUES (?)", (body,))


@app.post("/hooks/bench", status_code=202)
async def take(request: Request) -> dict[str, bool]:
    await run_in_threadpool(_insert, await request.body())
    return {"taken": True}
