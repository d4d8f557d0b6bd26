PRAGMA user_version = 5;
PRAGMA application_id = 0;
BEGIN TRANSACTION;
CREATE TABLE artifacts (
    key        INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    name       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    media_type TEXT NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (key, epoch, name)
) WITHOUT ROWID;
INSERT INTO "artifacts" VALUES(1,2,'findings.md',3,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','text/markdown',1700000126000);
CREATE TABLE circuits (
    provider   TEXT PRIMARY KEY,
    open_until INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    opened_at  INTEGER NOT NULL,
    opened_by  TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE dedup (
    name       TEXT PRIMARY KEY,
    task_id    TEXT NOT NULL,
    digest     TEXT NOT NULL,
    state      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "dedup" VALUES('id:asks','asks','fc95bd9ce484189edea8de2f6155997d1b6d3b8a31c3f901516a642bd64a24d9',1,1702592135000);
INSERT INTO "dedup" VALUES('id:careful','careful','032cb0729ff4e6ce0c0ae23aa63cbf8b0c46fc680b965fb1090bb76200a189bc',0,1702592128000);
INSERT INTO "dedup" VALUES('id:child','child','7d50c6959a86470b6501504baf493e8a659db0aa094c910bd8625125b276a810',0,1702592133000);
INSERT INTO "dedup" VALUES('id:delayed','delayed','d931e72796c72a71ce7b59b8441273ac77e6bc61077e8773d467c9e41bae3060',0,1702599354000);
INSERT INTO "dedup" VALUES('id:first','first','7f188b550ae98ce20ca9616a0fe13a12c9831fc8d3e100a2c9fd9a0543ea6db5',1,1702592134000);
INSERT INTO "dedup" VALUES('id:full','full','4d1d68207ad38ddcd440ff5ec3077d133d7bfd249949500e82e66f4a9d69d529',1,1702592000000);
INSERT INTO "dedup" VALUES('id:gated','gated','7f188b550ae98ce20ca9616a0fe13a12c9831fc8d3e100a2c9fd9a0543ea6db5',1,1702599351000);
INSERT INTO "dedup" VALUES('id:held','held','e2ebac7613ea5ad9e3eaf5459514b7c1e8331b520f7c01a5f7b71148db62c7c4',1,1702599353000);
INSERT INTO "dedup" VALUES('id:late','late','7f188b550ae98ce20ca9616a0fe13a12c9831fc8d3e100a2c9fd9a0543ea6db5',1,1702592147000);
INSERT INTO "dedup" VALUES('id:leaf','leaf','8ecedeb95b86ba5d5610cd1e38408a30e334e25f15f39841c98db5401a3fe6cf',1,1702599349000);
INSERT INTO "dedup" VALUES('id:parent','parent','7f188b550ae98ce20ca9616a0fe13a12c9831fc8d3e100a2c9fd9a0543ea6db5',1,1702592133000);
INSERT INTO "dedup" VALUES('id:ready-1','ready-1','c5f9987f3f851239a4e27a80b02580cb57aa15523f885c0cf428a6567397e1b6',1,1702599354000);
INSERT INTO "dedup" VALUES('id:refused','refused','04745a390d3cacbca4d5586e16e40bc35cace595e68a64e10f586e5c0998bf28',0,1702592131000);
INSERT INTO "dedup" VALUES('id:reviewed','reviewed','c0740cb5d053ee9df94f9af29f46578d0426d8b7ce152d8b14de7f24ff8998c8',1,1702592138000);
INSERT INTO "dedup" VALUES('id:runs','runs','6de9c7398a5e9ddf687809ee5db9bccc808ad8e2a157620cac2414b7dbb69fac',0,1702592133000);
INSERT INTO "dedup" VALUES('id:second','second','cbb3dd203fd81cf0722932ad1b10bbe2fe454bd13f273640b76bd8de8f429a67',0,1702592134000);
INSERT INTO "dedup" VALUES('id:stopped','stopped','7f188b550ae98ce20ca9616a0fe13a12c9831fc8d3e100a2c9fd9a0543ea6db5',1,1702592144000);
INSERT INTO "dedup" VALUES('id:tree','tree','cc30efbae6cdc0d8482de875b8014b40bcf486c5d6e7ffc1333ccf07487e085b',1,1702599349000);
INSERT INTO "dedup" VALUES('key:key-1','full','4d1d68207ad38ddcd440ff5ec3077d133d7bfd249949500e82e66f4a9d69d529',1,1702592000000);
CREATE TABLE edges (
    parent INTEGER NOT NULL,
    child  INTEGER NOT NULL,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
INSERT INTO "edges" VALUES(5,6);
INSERT INTO "edges" VALUES(5,7);
INSERT INTO "edges" VALUES(8,9);
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    previous INTEGER NOT NULL,  -- position of the same task's event before: its history is a chain,
    key      INTEGER NOT NULL,  -- which spares every commit an index page
    version  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    trigger  TEXT NOT NULL,
    state    INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,
    data     TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,0,1,1,1700000000000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(2,1,1,2,1700000001000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":120000}');
INSERT INTO "events" VALUES(3,2,1,3,1700000002000,'progress','Progress',2,1,'{"epoch":1,"percent":50,"note":"half way"}');
INSERT INTO "events" VALUES(4,3,1,4,1700000003000,'spent','Spend',2,1,'{"epoch":1,"cost":{"usd":0.25,"tokens":0,"turns":0,"seconds":0.0}}');
INSERT INTO "events" VALUES(5,4,1,5,1700000004000,'retrying','Fail',0,1,'{"epoch":1,"reason":"network down","cost":{"usd":0.1,"tokens":200,"turns":0,"seconds":0.0}}');
INSERT INTO "events" VALUES(6,5,1,6,1700000124000,'waited','Tick',1,1,'');
INSERT INTO "events" VALUES(7,6,1,7,1700000125000,'claimed','Claim',2,2,'{"holder":"bob","lease_ms":120000}');
INSERT INTO "events" VALUES(8,7,1,8,1700000126000,'artifact_added','AddArtifact',2,2,'{"epoch":2,"name":"findings.md","size":3,"sha256":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","media_type":"text/markdown"}');
INSERT INTO "events" VALUES(9,8,1,9,1700000127000,'commented','Comment',2,2,'{"by":"ann","text":"Please hurry."}');
INSERT INTO "events" VALUES(10,0,2,1,1700000128000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(11,9,1,10,1700000128000,'completed','Report',5,2,'{"epoch":2,"summary":"no problems","artifacts":["findings.md"],"cost":{"usd":0.5,"tokens":1000,"turns":3,"seconds":0.0}}');
INSERT INTO "events" VALUES(12,0,3,1,1700000128000,'submitted','Submit',0,0,'');
INSERT INTO "events" VALUES(13,12,3,2,1700000129000,'approved','Approve',1,0,'{"by":"boss","digest":"6937fe87fdc56380100a27a1f5370a439584605c0c311c5203ca7477d785698a","how":"token"}');
INSERT INTO "events" VALUES(14,13,3,3,1700000130000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(15,14,3,4,1700000131000,'blocked','Release',4,1,'{"epoch":1,"reason":"shutdown"}');
INSERT INTO "events" VALUES(16,0,4,1,1700000131000,'submitted','Submit',0,0,'');
INSERT INTO "events" VALUES(17,16,4,2,1700000132000,'rejected','Reject',6,0,'{"by":"boss","reason":"too early"}');
INSERT INTO "events" VALUES(18,17,4,3,1700000133000,'requeued','Requeue',0,0,'{"by":"ann","reason":"now it is time"}');
INSERT INTO "events" VALUES(19,0,5,1,1700000133000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(20,0,6,1,1700000133000,'submitted','Submit',0,0,'{"waiting_on":["parent"],"ended":[]}');
INSERT INTO "events" VALUES(21,0,7,1,1700000133000,'submitted','Submit',0,0,'{"waiting_on":["parent"],"ended":[]}');
INSERT INTO "events" VALUES(22,19,5,2,1700000134000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(23,22,5,3,1700000134000,'failed','Fail',6,1,'{"epoch":1,"reason":"cannot be done","kind":"invalid"}');
INSERT INTO "events" VALUES(24,20,6,2,1700000134000,'failed','DependencyEnded',6,0,'{"dependency":"parent","outcome":"failed"}');
INSERT INTO "events" VALUES(25,21,7,2,1700000134000,'dependency_ended','DependencyEnded',1,0,'{"dependency":"parent","outcome":"failed"}');
INSERT INTO "events" VALUES(26,0,8,1,1700000134000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(27,0,9,1,1700000134000,'submitted','Submit',0,0,'{"waiting_on":["first"],"ended":[]}');
INSERT INTO "events" VALUES(28,26,8,2,1700000135000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(29,28,8,3,1700000135000,'completed','Report',5,1,'{"epoch":1,"summary":"done"}');
INSERT INTO "events" VALUES(30,27,9,2,1700000135000,'dependency_ended','DependencyEnded',1,0,'{"dependency":"first","outcome":"complete"}');
INSERT INTO "events" VALUES(31,0,10,1,1700000135000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(32,31,10,2,1700000136000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(33,32,10,3,1700000137000,'blocked','Block',4,1,'{"epoch":1,"reason":"which branch?"}');
INSERT INTO "events" VALUES(34,33,10,4,1700000138000,'answered','Answer',1,1,'{"by":"boss","text":"main","extra_budget":{"usd":2,"tokens":0,"turns":0,"seconds":0.0}}');
INSERT INTO "events" VALUES(35,0,11,1,1700000138000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(36,35,11,2,1700000139000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(37,36,11,3,1700000140000,'reported','Report',3,1,'{"epoch":1,"summary":"first"}');
INSERT INTO "events" VALUES(38,37,11,4,1700000141000,'changes_requested','Verdict',1,1,'{"by":"boss","ruling":"changes","feedback":"add tests"}');
INSERT INTO "events" VALUES(39,38,11,5,1700000142000,'claimed','Claim',2,2,'{"holder":"bob","lease_ms":60000}');
INSERT INTO "events" VALUES(40,39,11,6,1700000143000,'reported','Report',3,2,'{"epoch":2,"summary":"second"}');
INSERT INTO "events" VALUES(41,40,11,7,1700000144000,'completed','Verdict',5,2,'{"by":"boss","ruling":"accept","feedback":"fine"}');
INSERT INTO "events" VALUES(42,0,12,1,1700000144000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(43,42,12,2,1700000145000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(44,43,12,3,1700000146000,'cancelled','Cancel',7,1,'{"by":"ann","reason":"not needed"}');
INSERT INTO "events" VALUES(45,44,12,4,1700000147000,'stopped','Stopped',7,1,'{"epoch":1}');
INSERT INTO "events" VALUES(46,0,13,1,1700000147000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(47,46,13,2,1700000148000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(48,47,13,3,1700003748000,'lease_ended','Tick',1,1,'');
INSERT INTO "events" VALUES(49,48,13,4,1700007349000,'claimed','Claim',2,2,'{"holder":"bob","lease_ms":60000}');
INSERT INTO "events" VALUES(50,49,13,5,1700007349000,'report_refused','RefuseReport',2,2,'{"epoch":1,"by":"attempt 1","claim":"completed","text":"too late"}');
INSERT INTO "events" VALUES(51,0,14,1,1700007349000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(52,0,15,1,1700007349000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(53,52,15,2,1700007350000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000}');
INSERT INTO "events" VALUES(54,53,15,3,1700007351000,'spent','Spend',2,1,'{"epoch":1,"cost":{"usd":0.95,"tokens":0,"turns":0,"seconds":0.0},"running_low":"0.95 of 1 usd are spent by tree and its descendants"}');
INSERT INTO "events" VALUES(55,0,16,1,1700007351000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(56,55,16,2,1700007352000,'claimed','Claim',2,1,'{"holder":"ann","lease_ms":60000,"gated":true}');
INSERT INTO "events" VALUES(57,56,16,3,1700007353000,'completed','Report',5,1,'{"epoch":1,"summary":"checked","verified":true}');
INSERT INTO "events" VALUES(58,0,17,1,1700007353000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(59,58,17,2,1700007354000,'claimed','Claim',2,1,'{"holder":"dora","lease_ms":60000}');
INSERT INTO "events" VALUES(60,0,18,1,1700007354000,'submitted','Submit',1,0,'');
INSERT INTO "events" VALUES(61,0,19,1,1700007354000,'submitted','Submit',0,0,'');
CREATE TABLE head (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    floor       INTEGER NOT NULL DEFAULT 0,  -- positions up to here were used, even if pruned since
    key_floor   INTEGER NOT NULL DEFAULT 0,  -- and task keys: neither is ever used twice
    lanes       TEXT NOT NULL DEFAULT ''     -- open outbox lanes, joined by spaces
);
INSERT INTO "head" VALUES(1,0,0,'delivery notify reply results');
CREATE TABLE holds (
    resource TEXT PRIMARY KEY,
    key      INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "holds" VALUES('repo:b',17);
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    key      INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    lane     TEXT NOT NULL,
    payload  TEXT NOT NULL,
    due_at   INTEGER NOT NULL DEFAULT 0,
    tries    INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "outbox" VALUES(1,1,1,0,'delivery','{"effect":"Announce","task_id":"full","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(2,1,6,0,'delivery','{"effect":"Announce","task_id":"full","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(3,2,1,0,'delivery','{"effect":"Announce","task_id":"after-full","role":"writer"}',0,0);
INSERT INTO "outbox" VALUES(4,1,10,2,'reply','{"effect":"Reply","task_id":"full","reply_to":"coordinator","status":"completed","summary":"no problems"}',0,0);
INSERT INTO "outbox" VALUES(5,3,1,0,'notify','{"effect":"Notify","task_id":"careful","kind":"approval_wanted"}',0,0);
INSERT INTO "outbox" VALUES(6,3,2,0,'delivery','{"effect":"Announce","task_id":"careful","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(7,3,4,0,'notify','{"effect":"Notify","task_id":"careful","kind":"blocked","text":"The attempt was interrupted. The task is irreversible and its outcome is unknown: a person must look."}',0,0);
INSERT INTO "outbox" VALUES(8,4,1,0,'notify','{"effect":"Notify","task_id":"refused","kind":"approval_wanted"}',0,0);
INSERT INTO "outbox" VALUES(9,4,2,1,'notify','{"effect":"Notify","task_id":"refused","kind":"dead_letter","text":"rejected by boss: too early"}',0,0);
INSERT INTO "outbox" VALUES(10,4,3,0,'notify','{"effect":"Notify","task_id":"refused","kind":"approval_wanted"}',0,0);
INSERT INTO "outbox" VALUES(11,5,1,0,'delivery','{"effect":"Announce","task_id":"parent","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(12,5,3,1,'notify','{"effect":"Notify","task_id":"parent","kind":"dead_letter","text":"cannot be done"}',0,0);
INSERT INTO "outbox" VALUES(13,6,2,1,'notify','{"effect":"Notify","task_id":"child","kind":"dead_letter","text":"its dependency parent is failed"}',0,0);
INSERT INTO "outbox" VALUES(14,7,2,0,'delivery','{"effect":"Announce","task_id":"runs","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(15,8,1,0,'delivery','{"effect":"Announce","task_id":"first","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(16,9,2,0,'delivery','{"effect":"Announce","task_id":"second","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(17,10,1,0,'delivery','{"effect":"Announce","task_id":"asks","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(18,10,3,0,'notify','{"effect":"Notify","task_id":"asks","kind":"blocked","text":"which branch?"}',0,0);
INSERT INTO "outbox" VALUES(19,10,4,0,'delivery','{"effect":"Announce","task_id":"asks","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(20,11,1,0,'delivery','{"effect":"Announce","task_id":"reviewed","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(21,11,3,0,'notify','{"effect":"Notify","task_id":"reviewed","kind":"review_wanted","text":"first"}',0,0);
INSERT INTO "outbox" VALUES(22,11,4,0,'delivery','{"effect":"Announce","task_id":"reviewed","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(23,11,6,0,'notify','{"effect":"Notify","task_id":"reviewed","kind":"review_wanted","text":"second"}',0,0);
INSERT INTO "outbox" VALUES(24,12,1,0,'delivery','{"effect":"Announce","task_id":"stopped","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(25,12,3,0,'delivery','{"effect":"StopHolder","task_id":"stopped","holder":"ann","epoch":1}',0,0);
INSERT INTO "outbox" VALUES(26,13,1,0,'delivery','{"effect":"Announce","task_id":"late","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(27,13,3,0,'delivery','{"effect":"Announce","task_id":"late","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(28,14,1,0,'delivery','{"effect":"Announce","task_id":"tree","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(29,15,1,0,'delivery','{"effect":"Announce","task_id":"leaf","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(30,15,3,0,'notify','{"effect":"Notify","task_id":"leaf","kind":"budget_low","text":"0.95 of 1 usd are spent by tree and its descendants"}',0,0);
INSERT INTO "outbox" VALUES(31,16,1,0,'delivery','{"effect":"Announce","task_id":"gated","role":"worker"}',0,0);
INSERT INTO "outbox" VALUES(32,17,1,0,'delivery','{"effect":"Announce","task_id":"held","role":"limited"}',0,0);
INSERT INTO "outbox" VALUES(33,18,1,0,'delivery','{"effect":"Announce","task_id":"ready-1","role":"worker"}',0,0);
CREATE TABLE roles (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    max_running INTEGER NOT NULL DEFAULT 0,
    max_review  INTEGER NOT NULL DEFAULT 0,
    paused      INTEGER NOT NULL DEFAULT 0,
    seen_at     INTEGER NOT NULL DEFAULT 0
, provider TEXT NOT NULL DEFAULT '', daily TEXT NOT NULL DEFAULT '');
INSERT INTO "roles" VALUES(1,'worker',0,0,0,0,'','');
INSERT INTO "roles" VALUES(2,'writer',0,0,0,0,'','');
INSERT INTO "roles" VALUES(3,'limited',1,0,0,0,'','');
CREATE TABLE specs (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    submitted_at INTEGER NOT NULL,
    body         TEXT NOT NULL
);
INSERT INTO "specs" VALUES(1,'full',1700000000000,'{"id":"full","to":"worker","type":"review","title":"Übung","priority":"high","instructions":"Review the design.\nAnswer in German.","expected_output":{"format":"markdown","artifacts":["findings.md"]},"ttl_seconds":86400,"timeout_seconds":3600,"lease_seconds":120,"max_attempts":4,"next":[{"id":"after-full","to":"writer","instructions":"Write it up."}],"resources":["repo:a"],"idempotency_key":"key-1","budget":{"usd":5,"tokens":100000,"turns":50,"seconds":3600},"reply_to":"coordinator","labels":{"team":"a","sprint":"7"},"extra":{"ticket":42}}');
INSERT INTO "specs" VALUES(2,'after-full',1700000128000,'{"id":"after-full","to":"writer","instructions":"Write it up.","parent":"full"}');
INSERT INTO "specs" VALUES(3,'careful',1700000128000,'{"id":"careful","to":"worker","irreversible":true}');
INSERT INTO "specs" VALUES(4,'refused',1700000131000,'{"id":"refused","to":"worker","requires_approval":true}');
INSERT INTO "specs" VALUES(5,'parent',1700000133000,'{"id":"parent","to":"worker"}');
INSERT INTO "specs" VALUES(6,'child',1700000133000,'{"id":"child","to":"worker","after":["parent"]}');
INSERT INTO "specs" VALUES(7,'runs',1700000133000,'{"id":"runs","to":"worker","after":["parent"],"on_dependency_failure":"run"}');
INSERT INTO "specs" VALUES(8,'first',1700000134000,'{"id":"first","to":"worker"}');
INSERT INTO "specs" VALUES(9,'second',1700000134000,'{"id":"second","to":"worker","after":["first"]}');
INSERT INTO "specs" VALUES(10,'asks',1700000135000,'{"id":"asks","to":"worker","budget":{"usd":1,"tokens":0,"turns":0,"seconds":0.0}}');
INSERT INTO "specs" VALUES(11,'reviewed',1700000138000,'{"id":"reviewed","to":"worker","review":true}');
INSERT INTO "specs" VALUES(12,'stopped',1700000144000,'{"id":"stopped","to":"worker"}');
INSERT INTO "specs" VALUES(13,'late',1700000147000,'{"id":"late","to":"worker"}');
INSERT INTO "specs" VALUES(14,'tree',1700007349000,'{"id":"tree","to":"worker","tree_budget":{"usd":1,"tokens":0,"turns":0,"seconds":0.0}}');
INSERT INTO "specs" VALUES(15,'leaf',1700007349000,'{"id":"leaf","to":"worker","parent":"tree"}');
INSERT INTO "specs" VALUES(16,'gated',1700007351000,'{"id":"gated","to":"worker"}');
INSERT INTO "specs" VALUES(17,'held',1700007353000,'{"id":"held","to":"limited","resources":["repo:b"]}');
INSERT INTO "specs" VALUES(18,'ready-1',1700007354000,'{"id":"ready-1","to":"worker","priority":"urgent"}');
INSERT INTO "specs" VALUES(19,'delayed',1700007354000,'{"id":"delayed","to":"worker","delay_seconds":100000}');
CREATE TABLE spending (
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    day     INTEGER NOT NULL,
    usd     REAL NOT NULL,
    tokens  REAL NOT NULL,
    turns   REAL NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (kind, name, day)
) WITHOUT ROWID;
INSERT INTO "spending" VALUES('label','sprint=7',19675,0.85,1200.0,3.0,0.0);
INSERT INTO "spending" VALUES('label','team=a',19675,0.85,1200.0,3.0,0.0);
INSERT INTO "spending" VALUES('role','worker',19675,0.85,1200.0,3.0,0.0);
INSERT INTO "spending" VALUES('role','worker',19676,0.95,0.0,0.0,0.0);
CREATE TABLE tasks (
    key        INTEGER PRIMARY KEY,
    role       INTEGER NOT NULL,
    priority   INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    wake_at    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    holder     TEXT NOT NULL,
    memo       TEXT NOT NULL,
    flags      INTEGER NOT NULL,
    last_event INTEGER NOT NULL  -- position of its newest event
);
INSERT INTO "tasks" VALUES(1,1,1,5,10,2,0,1700000128000,'','{"failures":1,"notes":[{"at":1700000004000,"by":"ann","kind":"failure","text":"network down"}],"report":{"epoch":2,"by":"bob","summary":"no problems","result":"","result_sha256":""},"spent":{"usd":0.85,"tokens":1200,"turns":3,"seconds":0.0}}',2,11);
INSERT INTO "tasks" VALUES(2,2,2,1,1,0,0,1700000128000,'','',0,10);
INSERT INTO "tasks" VALUES(3,1,2,4,4,1,1700086531000,1700000131000,'','{"interruptions":1,"reason":"The attempt was interrupted. The task is irreversible and its outcome is unknown: a person must look.","reason_kind":"unknown_outcome","remind_at":1700086531000,"asked_at":1700000128000}',0,15);
INSERT INTO "tasks" VALUES(4,1,2,0,3,0,1700086533000,1700000133000,'','{"notes":[{"at":1700000133000,"by":"ann","kind":"requeue","text":"now it is time"}],"remind_at":1700086533000,"asked_at":1700000133000,"reopened_at":1700000133000}',0,18);
INSERT INTO "tasks" VALUES(5,1,2,6,3,1,0,1700000134000,'','{"failures":1,"reason":"cannot be done","reason_kind":"invalid","notes":[{"at":1700000134000,"by":"ann","kind":"failure","text":"cannot be done"}]}',1,23);
INSERT INTO "tasks" VALUES(6,1,2,6,2,0,0,1700000134000,'','{"reason":"its dependency parent is failed","reason_kind":"dependency"}',0,24);
INSERT INTO "tasks" VALUES(7,1,2,1,2,0,0,1700000134000,'','',0,25);
INSERT INTO "tasks" VALUES(8,1,2,5,3,1,0,1700000135000,'','{"report":{"epoch":1,"by":"ann","summary":"done","result":"","result_sha256":""}}',1,29);
INSERT INTO "tasks" VALUES(9,1,2,1,2,0,0,1700000135000,'','',0,30);
INSERT INTO "tasks" VALUES(10,1,2,1,4,1,0,1700000138000,'','{"notes":[{"at":1700000138000,"by":"boss","kind":"answer","text":"main"}],"extra_budget":{"usd":2.0,"tokens":0,"turns":0,"seconds":0.0}}',0,34);
INSERT INTO "tasks" VALUES(11,1,2,5,7,2,0,1700000144000,'','{"rounds":1,"notes":[{"at":1700000141000,"by":"boss","kind":"review","text":"add tests"},{"at":1700000144000,"by":"boss","kind":"review","text":"fine"}],"report":{"epoch":2,"by":"bob","summary":"second","result":"","result_sha256":""}}',0,41);
INSERT INTO "tasks" VALUES(12,1,2,7,4,1,0,1700000147000,'','{"reason":"cancelled by ann: not needed","reason_kind":"cancelled"}',0,45);
INSERT INTO "tasks" VALUES(13,1,2,2,5,2,1700007409000,1700007349000,'bob','{"crashes":1,"notes":[{"at":1700003748000,"by":"agentq","kind":"crash","text":"the lease of attempt 1 ended: ann no longer renewed it"}],"refused_reports":1}',0,50);
INSERT INTO "tasks" VALUES(14,1,2,1,1,0,0,1700007349000,'','',4,51);
INSERT INTO "tasks" VALUES(15,1,2,2,3,1,1700007410000,1700007351000,'ann','{"spent":{"usd":0.95,"tokens":0,"turns":0,"seconds":0.0}}',4,54);
INSERT INTO "tasks" VALUES(16,1,2,5,3,1,0,1700007353000,'','{"report":{"epoch":1,"by":"ann","summary":"checked","result":"","result_sha256":""},"gated":true}',0,57);
INSERT INTO "tasks" VALUES(17,3,2,2,2,1,1700007414000,1700007354000,'dora','',2,59);
INSERT INTO "tasks" VALUES(18,1,0,1,1,0,0,1700007354000,'','',0,60);
INSERT INTO "tasks" VALUES(19,1,2,0,1,0,1700107354000,1700007354000,'','{"not_before":1700107354000}',0,61);
CREATE TABLE terms (
    name       TEXT PRIMARY KEY,
    term       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    holder     TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE tree_members (
    key  INTEGER NOT NULL,
    root INTEGER NOT NULL,
    PRIMARY KEY (key, root)
) WITHOUT ROWID;
INSERT INTO "tree_members" VALUES(14,14);
INSERT INTO "tree_members" VALUES(15,14);
CREATE TABLE trees (
    root    INTEGER PRIMARY KEY,
    name    TEXT NOT NULL,
    budget  TEXT NOT NULL,
    extra   TEXT NOT NULL,
    spent   TEXT NOT NULL,
    used_up INTEGER NOT NULL
);
INSERT INTO "trees" VALUES(14,'tree','{"usd":1}','','{"usd":0.95}',0);
CREATE TABLE wants (
    key      INTEGER NOT NULL,
    resource TEXT NOT NULL,
    PRIMARY KEY (key, resource)
) WITHOUT ROWID;
INSERT INTO "wants" VALUES(1,'repo:a');
INSERT INTO "wants" VALUES(17,'repo:b');
CREATE INDEX tasks_live ON tasks (role, state, priority, key) WHERE state < 5;
CREATE INDEX tasks_stopping ON tasks (role) WHERE state = 7 AND wake_at > 0;
CREATE INDEX tasks_due ON tasks (wake_at) WHERE wake_at > 0;
CREATE INDEX edges_of_child ON edges (child);
CREATE INDEX holds_of_task ON holds (key);
CREATE INDEX dedup_expiry ON dedup (expires_at);
CREATE INDEX dedup_of_task ON dedup (task_id);
CREATE INDEX outbox_due ON outbox (lane, due_at, sequence);
CREATE INDEX outbox_of_task ON outbox (key);
CREATE INDEX tree_members_of_root ON tree_members (root);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',33);
COMMIT;
