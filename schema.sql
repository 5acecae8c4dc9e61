-- The whole current schema of creditd. A new database runs this file; an older one reaches the same shape by
-- the migrations in src/store/migrate.rs, and a test holds the two equal.
--
-- Everywhere: hashes and scripts are BLOBs of checked length (a text key would hold the same txid twice, once
-- in each letter case); amounts are canonical decimal TEXT in base units (256 bits do not fit an INTEGER, and
-- a SUM over TEXT would be a float); times are Unix milliseconds; heights count from genesis = 0. In tables
-- that every payment writes, a CHECK names three words or more with OR: for an IN of so many, SQLite makes a
-- table in memory at each write.

-- One row of facts about this database file.
CREATE TABLE meta (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    -- raised by a restore; part of every version number
    generation   INTEGER NOT NULL CHECK (generation >= 0),
    -- raised by each daemon start; a stale daemon's next write fails
    epoch        INTEGER NOT NULL CHECK (epoch >= 0),
    -- raised by every change of what is watched
    list_version INTEGER NOT NULL CHECK (list_version >= 0)
) STRICT;
INSERT INTO meta (id, generation, epoch, list_version) VALUES (1, 0, 0, 0);

-- A chain that was ever followed. `caip` is the identity used in every derived id: CAIP-2, with '@instance'
-- on chains that anyone can start anew.
CREATE TABLE chains (
    id              INTEGER PRIMARY KEY,
    caip            TEXT NOT NULL UNIQUE,
    -- pinned: an identity never stands for two chains. NULL = an EVM chain whose nodes were not asked yet
    genesis         BLOB CHECK (length(genesis) = 32),
    -- the config's short name, for people only
    alias           TEXT NOT NULL,
    -- first height that is read; NULL until the first tip decides it
    start_height    INTEGER CHECK (start_height >= 0),
    -- last connected block; NULL before the first
    cursor_height   INTEGER,
    -- the reorg window that it is followed with, and the height below which a smaller one, or that of a
    -- higher tip, forgot headers
    reorg_window    INTEGER,
    headers_from    INTEGER NOT NULL DEFAULT 0,
    -- EVM: the highest of our blocks that the nodes called safe, and final; kept while we hold them
    safe_height      INTEGER,
    finalized_height INTEGER,
    -- number of the last applied mempool list; an older one is refused
    mempool_poll    INTEGER NOT NULL DEFAULT 0,
    -- time spent under applied, synced lists; evictions are measured on it
    list_clock_ms   INTEGER NOT NULL DEFAULT 0,
    -- when the last list was applied
    list_applied_at INTEGER,
    -- the follower's named state
    state           TEXT NOT NULL DEFAULT 'starting',
    state_reason    TEXT NOT NULL DEFAULT '',
    state_since     INTEGER NOT NULL DEFAULT 0,
    -- what the node last said, for `chain status`
    node_tip_height INTEGER,
    node_seen_at    INTEGER
) STRICT;

-- Headers of the best chain as we hold it. Inside the reorg window without gap; below it only every 144th and
-- those of blocks with an output of ours. One per height.
CREATE TABLE headers (
    chain     INTEGER NOT NULL REFERENCES chains (id),
    height    INTEGER NOT NULL CHECK (height >= 0),
    hash      BLOB NOT NULL CHECK (length(hash) = 32),
    parent    BLOB NOT NULL CHECK (length(parent) = 32),
    time_secs INTEGER NOT NULL,
    bits      INTEGER NOT NULL,
    work      BLOB NOT NULL CHECK (length(work) = 32),
    chainwork BLOB NOT NULL CHECK (length(chainwork) = 32),
    PRIMARY KEY (chain, height),
    UNIQUE (chain, hash)
) STRICT, WITHOUT ROWID;

-- EVM: how the endpoints of a chain stand, for `chain status`.
CREATE TABLE node_endpoints (
    chain      INTEGER NOT NULL REFERENCES chains (id),
    -- in the order of preference
    place      INTEGER NOT NULL CHECK (place >= 0),
    name       TEXT NOT NULL,
    -- unchecked, healthy, unreachable, rate_limited, quarantined
    state      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    -- 1 = the one that is asked
    is_current INTEGER NOT NULL CHECK (is_current IN (0, 1)),
    since      INTEGER NOT NULL,
    PRIMARY KEY (chain, place)
) STRICT, WITHOUT ROWID;

-- What can be paid: CAIP-19 id, with what people need to read an amount. A token is a matching rule like an
-- address, so that listing it credits nothing of the past.
CREATE TABLE assets (
    id          INTEGER PRIMARY KEY,
    chain       INTEGER NOT NULL REFERENCES chains (id),
    caip        TEXT NOT NULL,
    -- NULL = the chain's own coin
    contract    BLOB CHECK (length(contract) = 20),
    symbol      TEXT NOT NULL,
    decimals    INTEGER NOT NULL CHECK (decimals BETWEEN 0 AND 77),
    -- nothing below it counts; NULL = the chain's start height, not yet known
    from_height INTEGER,
    -- 1 = the config names it now
    is_listed   INTEGER NOT NULL CHECK (is_listed IN (0, 1)),
    UNIQUE (chain, caip)
) STRICT;

-- Where inner coin of an EVM chain is read from which height on: of two sources the same coin would have two
-- outpoints, so a change counts for blocks to come and what was read once is read again in the same way.
-- Where it was not seen ('none') it has no outpoint yet: the next source takes that stretch over.
CREATE TABLE inner_sources (
    chain       INTEGER NOT NULL REFERENCES chains (id),
    from_height INTEGER NOT NULL CHECK (from_height >= 0),
    source      TEXT NOT NULL CHECK (source IN ('traces', 'eip7708', 'none')),
    PRIMARY KEY (chain, from_height)
) STRICT, WITHOUT ROWID;

-- A merchant: a slug, made at its first use.
CREATE TABLE merchants (
    id         INTEGER PRIMARY KEY,
    slug       TEXT NOT NULL UNIQUE,
    -- what own transfers are
    internal   TEXT NOT NULL DEFAULT 'ignore' CHECK (internal IN ('ignore', 'hold', 'credit')),
    created_at INTEGER NOT NULL
) STRICT;

-- Scripts of ours. 'watch' = payments to it are deposits; 'own' = declared as the merchant's own, so that
-- moves between own addresses are not taken for payments.
CREATE TABLE addresses (
    id          INTEGER PRIMARY KEY,
    chain       INTEGER NOT NULL REFERENCES chains (id),
    script      BLOB NOT NULL CHECK (length(script) BETWEEN 1 AND 10000),
    kind        TEXT NOT NULL CHECK (kind IN ('watch', 'own')),
    merchant    INTEGER NOT NULL REFERENCES merchants (id),
    reference   TEXT NOT NULL DEFAULT '',
    -- nothing below it counts; NULL = the chain's start height, not yet known
    from_height INTEGER,
    -- the list version that it came (or was lowered) with
    version     INTEGER NOT NULL,
    added_at    INTEGER NOT NULL,
    -- one address belongs to one merchant
    UNIQUE (chain, script)
) STRICT;
CREATE INDEX addresses_by_version ON addresses (chain, version);
CREATE INDEX addresses_by_merchant ON addresses (merchant);
-- Watched addresses of one chain in the order in which they came.
CREATE INDEX addresses_watched ON addresses (chain) WHERE kind = 'watch';
-- What operators look for; most addresses may have none.
CREATE INDEX addresses_by_reference ON addresses (reference) WHERE reference <> '';

-- A stored transaction: it has an output of ours, or is an unconfirmed ancestor of one that has.
CREATE TABLE txs (
    id            INTEGER PRIMARY KEY,
    chain         INTEGER NOT NULL REFERENCES chains (id),
    txid          BLOB NOT NULL CHECK (length(txid) = 32),
    is_coinbase   INTEGER NOT NULL CHECK (is_coinbase IN (0, 1)),
    -- EVM: who sent it
    sender        BLOB CHECK (length(sender) = 20),
    first_seen_at INTEGER NOT NULL,
    -- in the last applied mempool list
    is_listed     INTEGER NOT NULL DEFAULT 0 CHECK (is_listed IN (0, 1)),
    -- chains.list_clock_ms at which a listed one went missing
    absent_since  INTEGER,
    -- who spent one of its (or its ancestors') inputs
    replaced_by   BLOB CHECK (length(replaced_by) = 32),
    -- of a replaced one: whom the last lists have instead of `replaced_by` (itself = it is back), and how
    -- many in a row
    rival         BLOB CHECK (length(rival) = 32),
    rival_lists   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (chain, txid)
) STRICT;
CREATE INDEX txs_listed ON txs (chain) WHERE is_listed = 1;
CREATE INDEX txs_rivalled ON txs (chain) WHERE rival IS NOT NULL;
CREATE INDEX txs_absent ON txs (chain) WHERE absent_since IS NOT NULL;

-- The best-chain blocks that hold a stored transaction. More than one only for the coinbases that repeat a
-- txid (Bitcoin heights 91842 and 91880); the highest is where the transaction counts as being.
CREATE TABLE inclusions (
    chain  INTEGER NOT NULL REFERENCES chains (id),
    height INTEGER NOT NULL,
    tx     INTEGER NOT NULL REFERENCES txs (id),
    PRIMARY KEY (chain, height, tx)
) STRICT, WITHOUT ROWID;
CREATE INDEX inclusions_by_tx ON inclusions (tx);

-- What stored transactions spend. The index on the outpoint finds conflicts and descendants.
CREATE TABLE inputs (
    tx        INTEGER NOT NULL REFERENCES txs (id),
    prev_txid BLOB NOT NULL CHECK (length(prev_txid) = 32),
    prev_vout INTEGER NOT NULL,
    PRIMARY KEY (tx, prev_txid, prev_vout)
) STRICT, WITHOUT ROWID;
CREATE INDEX inputs_by_prevout ON inputs (prev_txid, prev_vout);

-- Every output to a script of ours, deposit or not.
CREATE TABLE outputs (
    id           INTEGER PRIMARY KEY,
    tx           INTEGER NOT NULL REFERENCES txs (id),
    -- output number; EVM: position + 2^40 * execution
    vout         INTEGER NOT NULL CHECK (vout >= 0),
    address      INTEGER NOT NULL REFERENCES addresses (id),
    asset        INTEGER NOT NULL REFERENCES assets (id),
    amount       TEXT NOT NULL CHECK (amount NOT GLOB '*[^0-9]*' AND length(amount) BETWEEN 1 AND 78
                                     AND (amount = '0' OR amount NOT GLOB '0*')),
    -- EVM: whose coin or token moved here
    payer        BLOB CHECK (length(payer) = 20),
    origin       TEXT NOT NULL CHECK (origin = 'external' OR origin = 'internal' OR origin = 'mixed'),
    -- the transaction that spends it, mempool or block
    spent_by     BLOB CHECK (length(spent_by) = 32),
    -- the block of that transaction, while it has one
    spent_height INTEGER,
    -- times that a block brought it again
    duplicates   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tx, vout)
) STRICT;
CREATE INDEX outputs_by_address ON outputs (address);
CREATE INDEX outputs_by_spent_height ON outputs (spent_height) WHERE spent_height IS NOT NULL;
CREATE INDEX outputs_unspent ON outputs (tx) WHERE spent_height IS NULL;

-- The state machine: one row per output that counts as a payment.
CREATE TABLE deposits (
    output        INTEGER PRIMARY KEY REFERENCES outputs (id),
    chain         INTEGER NOT NULL REFERENCES chains (id),
    dep_id        TEXT NOT NULL UNIQUE,
    merchant      INTEGER NOT NULL REFERENCES merchants (id),
    asset         INTEGER NOT NULL REFERENCES assets (id),
    state         TEXT NOT NULL CHECK (state = 'seen' OR state = 'confirming' OR state = 'credited'
                                          OR state = 'evicted' OR state = 'replaced' OR state = 'orphaned'
                                          OR state = 'failed'),
    -- of its block, while it has one
    height        INTEGER,
    -- N of the policy tier that applies, or its finality tag
    confirmations INTEGER CHECK (confirmations >= 1),
    tag           TEXT CHECK (tag IN ('safe', 'finalized')),
    -- the height that the tip, or the last accepted block with the tag, has to reach before it is credited
    due_height    INTEGER,
    -- NOT NULL = held: the mark beside the state
    held_reason   TEXT,
    held_at       INTEGER,
    first_seen_at INTEGER NOT NULL,
    CHECK ((state = 'confirming' OR state = 'credited' OR state = 'failed') = (height IS NOT NULL)),
    CHECK ((state IN ('confirming', 'credited')) = (due_height IS NOT NULL)),
    CHECK ((due_height IS NULL) = (confirmations IS NULL AND tag IS NULL)),
    CHECK (confirmations IS NULL OR tag IS NULL),
    CHECK ((held_reason IS NULL) = (held_at IS NULL)),
    CHECK (NOT (state = 'credited' AND held_reason IS NOT NULL))
) STRICT;
CREATE INDEX deposits_due ON deposits (chain, due_height) WHERE state = 'confirming' AND held_reason IS NULL;
CREATE INDEX deposits_by_due_height ON deposits (chain, due_height) WHERE due_height IS NOT NULL;
CREATE INDEX deposits_by_height ON deposits (chain, height) WHERE height IS NOT NULL;
CREATE INDEX deposits_by_merchant ON deposits (merchant);
CREATE INDEX deposits_held ON deposits (chain) WHERE held_reason IS NOT NULL;

-- THE GUARANTEE. At most one row per outpoint, for ever. Immutable: no UPDATE, no DELETE, no second INSERT.
CREATE TABLE credits (
    -- hash of the outpoint
    id         TEXT PRIMARY KEY,
    chain      INTEGER NOT NULL REFERENCES chains (id),
    txid       BLOB NOT NULL CHECK (length(txid) = 32),
    vout       INTEGER NOT NULL CHECK (vout >= 0),
    -- NULL of a credit that another provider told of, on a chain 'ext:SOURCE': that one names `inbox`
    output     INTEGER UNIQUE REFERENCES outputs (id),
    merchant   INTEGER NOT NULL REFERENCES merchants (id),
    asset      INTEGER NOT NULL REFERENCES assets (id),
    amount     TEXT NOT NULL CHECK (amount NOT GLOB '*[^0-9]*' AND length(amount) BETWEEN 1 AND 78
                                     AND amount NOT GLOB '0*'),
    created_at INTEGER NOT NULL,
    -- the webhook that it came by, and what the provider says it is for
    inbox      INTEGER REFERENCES inbox (id),
    reference  TEXT,
    UNIQUE (chain, txid, vout),
    CHECK ((output IS NULL) = (inbox IS NOT NULL) AND (inbox IS NULL) = (reference IS NULL))
) STRICT;
CREATE INDEX credits_by_merchant ON credits (merchant);
CREATE INDEX credits_by_inbox ON credits (inbox) WHERE inbox IS NOT NULL;

-- The books: kinds alternate per credit, starting with 'credit', so that a credit nets to 0 or to its amount.
CREATE TABLE journal (
    id            INTEGER PRIMARY KEY,
    credit        TEXT NOT NULL REFERENCES credits (id),
    sequence      INTEGER NOT NULL CHECK (sequence >= 1),
    kind          TEXT NOT NULL CHECK (kind = 'credit' OR kind = 'reversal' OR kind = 'reinstatement'),
    at            INTEGER NOT NULL,
    -- From here on the cause: only what follows from the chain, so that the same chain fed in other steps
    -- writes the same rows. First the block that holds (of a reversal: held) the payment. All of it is NULL
    -- where no chain is the cause: of a credit that another provider told of.
    block_height  INTEGER,
    block_hash    BLOB CHECK (length(block_hash) = 32),
    -- N or the finality tag that was required
    confirmations INTEGER,
    tag           TEXT CHECK (tag IN ('safe', 'finalized')),
    due_height    INTEGER,
    -- the block at the due height; NULL on reversals
    due_hash      BLOB CHECK (length(due_hash) = 32),
    -- reversals: the state it moved to, or why it was held
    reason        TEXT NOT NULL DEFAULT '',
    UNIQUE (credit, sequence),
    CHECK ((block_height IS NULL) = (block_hash IS NULL) AND (block_height IS NULL) = (due_height IS NULL)),
    CHECK (block_height IS NOT NULL OR (kind = 'credit' AND confirmations IS NULL AND tag IS NULL
                                        AND due_hash IS NULL)),
    CHECK (block_height IS NULL OR (confirmations IS NULL) <> (tag IS NULL)),
    CHECK (block_height IS NULL OR (kind = 'reversal') = (due_hash IS NULL)),
    CHECK ((kind = 'credit') = (sequence = 1)),
    CHECK ((kind = 'reversal') = (sequence % 2 = 0))
) STRICT;

CREATE TRIGGER credits_no_update BEFORE UPDATE ON credits
BEGIN SELECT RAISE(ABORT, 'credits are immutable'); END;
CREATE TRIGGER credits_no_delete BEFORE DELETE ON credits
BEGIN SELECT RAISE(ABORT, 'credits are for ever'); END;
-- REPLACE resolves a conflict by deleting first; this refuses it before that, whatever the conflict clause.
CREATE TRIGGER credits_no_second BEFORE INSERT ON credits
WHEN EXISTS (SELECT 1 FROM credits WHERE id = NEW.id)
  OR EXISTS (SELECT 1 FROM credits WHERE chain = NEW.chain AND txid = NEW.txid AND vout = NEW.vout)
  OR EXISTS (SELECT 1 FROM credits WHERE output = NEW.output)
BEGIN SELECT RAISE(ABORT, 'this outpoint is credited already'); END;
-- A chain 'ext:SOURCE' has the credits that its source told of, and no others have such.
CREATE TRIGGER credits_by_their_chain BEFORE INSERT ON credits
WHEN (NEW.inbox IS NOT NULL) <> EXISTS (SELECT 1 FROM chains WHERE id = NEW.chain AND caip GLOB 'ext:*')
BEGIN SELECT RAISE(ABORT, 'a credit has an output, or a source and its webhook'); END;
CREATE TRIGGER journal_by_its_credit BEFORE INSERT ON journal
WHEN (NEW.block_height IS NULL) <> EXISTS (SELECT 1 FROM credits WHERE id = NEW.credit AND inbox IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'a journal entry has the block that is its cause'); END;
-- Few, and the only entries whose payment may have no block any more.
CREATE INDEX journal_reversals ON journal (block_height) WHERE kind = 'reversal';
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_second BEFORE INSERT ON journal
WHEN EXISTS (SELECT 1 FROM journal WHERE credit = NEW.credit AND sequence = NEW.sequence)
  OR EXISTS (SELECT 1 FROM journal WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'this journal entry exists already'); END;
CREATE TRIGGER journal_no_gap BEFORE INSERT ON journal
WHEN NEW.sequence <> 1 + (SELECT count(*) FROM journal WHERE credit = NEW.credit)
BEGIN SELECT RAISE(ABORT, 'journal sequence without gap'); END;

-- The outbox: one frozen record per fact, written in the fact's transaction, listeners or not.
CREATE TABLE events (
    -- a restored backup goes on at generation * 2^32, above every number that was told before
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- derived from subject, fact and version
    id       TEXT NOT NULL UNIQUE,
    subject  TEXT NOT NULL,
    -- generation * 2^32 + n within the subject
    sequence INTEGER NOT NULL,
    type     TEXT NOT NULL,
    -- NULL: for operators
    merchant INTEGER REFERENCES merchants (id),
    at       INTEGER NOT NULL,
    body     TEXT NOT NULL,
    UNIQUE (subject, sequence)
) STRICT;
-- What a merchant reads, in its order.
CREATE INDEX events_by_merchant ON events (merchant);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are frozen'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are for ever'); END;
CREATE TRIGGER events_no_second BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events WHERE id = NEW.id)
  OR EXISTS (SELECT 1 FROM events WHERE subject = NEW.subject AND sequence = NEW.sequence)
  OR EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'this event exists already'); END;

-- What happened and why: one row per state change of a deposit, one per operator's act, one per chain state.
CREATE TABLE audit (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    chain      INTEGER REFERENCES chains (id),
    -- the deposit, where it is about one
    output     INTEGER REFERENCES outputs (id),
    -- 'move', 'hold', 'release', 'watch', 'rescan', ...
    action     TEXT NOT NULL,
    from_state TEXT,
    to_state   TEXT,
    -- block that caused it
    height     INTEGER,
    hash       BLOB CHECK (length(hash) = 32),
    -- in words that stand alone
    cause      TEXT NOT NULL,
    actor      TEXT NOT NULL DEFAULT 'daemon'
) STRICT;
CREATE INDEX audit_by_output ON audit (output) WHERE output IS NOT NULL;
CREATE INDEX audit_of_states ON audit (chain) WHERE action = 'state';
CREATE INDEX audit_of_rotations ON audit (at) WHERE action = 'rotate-secret';

-- Rescans asked for: a second cursor beside the tip.
CREATE TABLE rescans (
    id          INTEGER PRIMARY KEY,
    chain       INTEGER NOT NULL REFERENCES chains (id),
    from_height INTEGER NOT NULL CHECK (from_height >= 0),
    -- the next block to read
    next_height INTEGER NOT NULL,
    -- the block before it, as read
    last_hash   BLOB CHECK (length(last_hash) = 32),
    -- everything below is applied
    applied_to  INTEGER NOT NULL,
    -- NOT NULL = the blocks that wait are proven to be ours: the chainwork below the lowest of them
    base_work   BLOB CHECK (length(base_work) = 32),
    state       TEXT NOT NULL CHECK (state IN ('running', 'done', 'cancelled')),
    reason      TEXT NOT NULL,
    asked_at    INTEGER NOT NULL,
    done_at     INTEGER,
    matches     INTEGER NOT NULL DEFAULT 0,
    -- outputs that were not known before
    found       INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX rescans_running ON rescans (chain) WHERE state = 'running';

-- Blocks that a rescan has read and not yet applied: until a header that we hold proves that they are linked
-- to our chain, and then until their turn comes.
CREATE TABLE rescan_blocks (
    rescan     INTEGER NOT NULL REFERENCES rescans (id),
    height     INTEGER NOT NULL,
    hash       BLOB NOT NULL CHECK (length(hash) = 32),
    parent     BLOB NOT NULL CHECK (length(parent) = 32),
    time_secs  INTEGER NOT NULL,
    bits       INTEGER NOT NULL,
    work       BLOB NOT NULL CHECK (length(work) = 32),
    -- JSON of the matching transactions
    candidates TEXT NOT NULL,
    PRIMARY KEY (rescan, height)
) STRICT, WITHOUT ROWID;

-- Where a chain's own coin is watched without what contracts send: up to which block the balance of a watched
-- address is explained by what was recorded. One row per watched address, made in their order.
CREATE TABLE balance_marks (
    chain        INTEGER NOT NULL REFERENCES chains (id),
    address      INTEGER NOT NULL REFERENCES addresses (id),
    -- the block that the open interval starts after, and the balance there; NULL = that was not had yet
    height       INTEGER,
    hash         BLOB CHECK (length(hash) = 32),
    balance      TEXT CHECK (balance NOT GLOB '*[^0-9]*' AND length(balance) BETWEEN 1 AND 78
                             AND (balance = '0' OR balance NOT GLOB '0*')),
    -- a later reading, which waits for its block to be final
    read_height  INTEGER,
    read_hash    BLOB CHECK (length(read_hash) = 32),
    read_balance TEXT CHECK (read_balance NOT GLOB '*[^0-9]*' AND length(read_balance) BETWEEN 1 AND 78
                             AND (read_balance = '0' OR read_balance NOT GLOB '0*')),
    -- of an interval whose start left the chain: the last block that stayed
    open_at      INTEGER,
    -- when the balance was last asked for
    asked_at     INTEGER NOT NULL,
    PRIMARY KEY (chain, address),
    CHECK ((height IS NULL) = (hash IS NULL) AND (height IS NULL) = (balance IS NULL)),
    CHECK ((read_height IS NULL) = (read_hash IS NULL) AND (read_height IS NULL) = (read_balance IS NULL)),
    CHECK (read_height IS NULL OR read_height > height)
) STRICT, WITHOUT ROWID;
CREATE INDEX balance_marks_unopened ON balance_marks (chain, asked_at) WHERE height IS NULL;
CREATE INDEX balance_marks_due ON balance_marks (chain, asked_at)
    WHERE height IS NOT NULL AND read_height IS NULL;
CREATE INDEX balance_marks_read ON balance_marks (chain, read_height) WHERE read_height IS NOT NULL;
CREATE INDEX balance_marks_by_height ON balance_marks (chain, height) WHERE height IS NOT NULL;
CREATE INDEX balance_marks_left ON balance_marks (chain, open_at) WHERE open_at IS NOT NULL;

-- Coin that came to a watched address and that no recorded output explains. Nothing is ever credited by it:
-- an operator finds out what it was, and closes it.
CREATE TABLE unattributed (
    id          INTEGER PRIMARY KEY,
    -- hash of chain, address and the block that the interval ends with
    un_id       TEXT NOT NULL UNIQUE,
    chain       INTEGER NOT NULL REFERENCES chains (id),
    address     INTEGER NOT NULL REFERENCES addresses (id),
    asset       INTEGER NOT NULL REFERENCES assets (id),
    -- it came in a block above the first and up to the second
    from_height INTEGER NOT NULL,
    to_height   INTEGER NOT NULL,
    to_hash     BLOB NOT NULL CHECK (length(to_hash) = 32),
    -- at least so much: coin that went meanwhile hides coin that came
    amount      TEXT NOT NULL CHECK (amount NOT GLOB '*[^0-9]*' AND length(amount) BETWEEN 1 AND 78
                                     AND amount NOT GLOB '0*'),
    -- the sum of the outputs in those blocks that were recorded by then
    recorded    TEXT NOT NULL CHECK (recorded NOT GLOB '*[^0-9]*' AND length(recorded) BETWEEN 1 AND 78
                                     AND (recorded = '0' OR recorded NOT GLOB '0*')),
    state       TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
    -- what it was found to be
    closed_as   TEXT CHECK (closed_as IN ('outpoint', 'not_a_payment')),
    txid        BLOB CHECK (length(txid) = 32),
    vout        INTEGER CHECK (vout >= 0),
    reason      TEXT,
    found_at    INTEGER NOT NULL,
    closed_at   INTEGER,
    UNIQUE (address, from_height, to_height, to_hash),
    CHECK (from_height < to_height),
    CHECK ((state = 'closed') = (closed_as IS NOT NULL) AND (state = 'closed') = (closed_at IS NOT NULL)
           AND (state = 'closed') = (reason IS NOT NULL)),
    CHECK ((closed_as IS 'outpoint') = (txid IS NOT NULL) AND (txid IS NULL) = (vout IS NULL))
) STRICT;
CREATE INDEX unattributed_open ON unattributed (chain) WHERE state = 'open';
CREATE INDEX unattributed_by_chain ON unattributed (chain);
-- One payment explains one amount.
CREATE UNIQUE INDEX unattributed_by_outpoint ON unattributed (chain, txid, vout) WHERE txid IS NOT NULL;
CREATE TRIGGER unattributed_stays BEFORE UPDATE ON unattributed
WHEN OLD.state = 'closed' OR NEW.state <> 'closed' OR NEW.un_id <> OLD.un_id OR NEW.amount <> OLD.amount
BEGIN SELECT RAISE(ABORT, 'an unattributed amount is only ever closed'); END;

-- Re-anchoring asked for by an operator: the follower works it off once the node serves our hash at
-- `fork_height`; it is void when the chain came in order by itself.
CREATE TABLE reanchors (
    id          INTEGER PRIMARY KEY,
    chain       INTEGER NOT NULL REFERENCES chains (id),
    fork_height INTEGER NOT NULL,
    fork_hash   BLOB NOT NULL CHECK (length(fork_hash) = 32),
    state       TEXT NOT NULL CHECK (state IN ('asked', 'done', 'void')),
    reason      TEXT NOT NULL,
    asked_at    INTEGER NOT NULL,
    done_at     INTEGER
) STRICT;
CREATE UNIQUE INDEX reanchors_open ON reanchors (chain) WHERE state = 'asked';

-- Where a merchant is told of its events, or an operator of those that belong to no merchant.
CREATE TABLE endpoints (
    id            INTEGER PRIMARY KEY,
    -- hash of owner and URL: the same endpoint added again is the same one
    ep_id         TEXT NOT NULL UNIQUE,
    -- NULL = an operator's
    merchant      INTEGER REFERENCES merchants (id),
    -- NOT NULL = it is told of this invoice alone
    invoice       INTEGER REFERENCES invoices (id),
    url           TEXT NOT NULL,
    -- event types, separated by spaces; `*` and `credit.*` are patterns
    types         TEXT NOT NULL,
    -- NOT NULL = paused, and why; events go on being queued
    paused_reason TEXT,
    -- attempts that failed in a row without an answer that blames the message; 0 = healthy
    failures      INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL,
    -- the last event before it was added: all later ones that it asks for are queued for it. Clocks jump
    after_event   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX endpoints_by_merchant ON endpoints (merchant) WHERE invoice IS NULL;
CREATE INDEX endpoints_by_invoice ON endpoints (invoice) WHERE invoice IS NOT NULL;
CREATE INDEX endpoints_paused ON endpoints (merchant) WHERE paused_reason IS NOT NULL;

-- What callbacks are signed with. Several live ones per endpoint while a receiver changes over.
CREATE TABLE endpoint_secrets (
    id         INTEGER PRIMARY KEY,
    endpoint   INTEGER NOT NULL REFERENCES endpoints (id),
    -- the scheme of Standard Webhooks: v1 = HMAC-SHA256, v1a = ed25519
    scheme     TEXT NOT NULL CHECK (scheme IN ('v1', 'v1a')),
    -- as the receiver would write it down: whsec_... or whsk_...
    secret     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- NULL = live for good
    expires_at INTEGER,
    UNIQUE (endpoint, secret)
) STRICT;

-- Who may use the API. Of a key only its hash is kept.
CREATE TABLE api_keys (
    id           INTEGER PRIMARY KEY,
    -- hash of the hash
    key_id       TEXT NOT NULL UNIQUE,
    -- NULL = an operator's
    merchant     INTEGER REFERENCES merchants (id),
    -- what it is used by: two of a name live at once while one takes the place of the other
    name         TEXT NOT NULL,
    -- words, separated by spaces
    scopes       TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at   INTEGER NOT NULL,
    -- NULL = until it is revoked
    expires_at   INTEGER,
    revoked_at   INTEGER,
    -- to the minute
    last_used_at INTEGER
) STRICT;
CREATE INDEX api_keys_by_merchant ON api_keys (merchant);

-- The answers to requests with an idempotency key, written in the transaction of what they answer for.
CREATE TABLE idempotency (
    -- the merchant; 0 = operators, by a command
    owner       INTEGER NOT NULL,
    method      TEXT NOT NULL,
    -- the concrete one, ids included
    path        TEXT NOT NULL,
    key         TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 256),
    -- hash of query and parsed body: the same key with another is refused
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    status      INTEGER NOT NULL,
    body        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    keep_until  INTEGER NOT NULL,
    -- NOT NULL = the invoice that it made: kept until that has ended, too
    invoice     INTEGER REFERENCES invoices (id),
    PRIMARY KEY (owner, method, path, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_end ON idempotency (keep_until);

-- The way of an event to one endpoint: made in the event's transaction, for those subscribed at that moment,
-- or by a replay that names the endpoint.
CREATE TABLE deliveries (
    id              INTEGER PRIMARY KEY,
    event           INTEGER NOT NULL REFERENCES events (seq),
    endpoint        INTEGER NOT NULL REFERENCES endpoints (id),
    -- of the event: order is kept within it
    subject         TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state = 'waiting' OR state = 'leased' OR state = 'delivered'
                                            OR state = 'parked'),
    attempts        INTEGER NOT NULL DEFAULT 0,
    -- of them, those before it was last asked to be sent again: its ladder begins after them
    attempts_before INTEGER NOT NULL DEFAULT 0 CHECK (attempts_before BETWEEN 0 AND attempts),
    -- when it was queued, and from its first attempt on when that was: bounds how long it may hold back newer
    -- ones of its subject
    queued_at       INTEGER NOT NULL,
    -- the next attempt; of a leased one the end of its lease
    next_at         INTEGER NOT NULL,
    -- when it was delivered or parked
    settled_at      INTEGER,
    UNIQUE (event, endpoint)
) STRICT;
CREATE INDEX deliveries_waiting ON deliveries (endpoint, next_at) WHERE state = 'waiting';
CREATE INDEX deliveries_leased ON deliveries (endpoint, next_at) WHERE state = 'leased';
CREATE INDEX deliveries_in_order ON deliveries (endpoint, subject, event)
    WHERE state IN ('waiting', 'leased');
CREATE INDEX deliveries_parked ON deliveries (endpoint, event) WHERE state = 'parked';
-- What is still to be delivered, by endpoint: how old is the oldest?
CREATE INDEX deliveries_undelivered ON deliveries (endpoint, event) WHERE state IN ('waiting', 'leased');

-- Every attempt, for people.
CREATE TABLE attempts (
    delivery INTEGER NOT NULL REFERENCES deliveries (id),
    number   INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    took_ms  INTEGER NOT NULL,
    -- of the answer; NULL = there was none
    status   INTEGER,
    -- why it failed, in words; empty when delivered
    error    TEXT NOT NULL,
    -- the beginning of the answer's body, never shown to the merchant
    reply    BLOB NOT NULL CHECK (length(reply) <= 1024),
    PRIMARY KEY (delivery, number)
) STRICT, WITHOUT ROWID;

-- Where addresses to hand out come from: an account key or descriptor that only watches, or a list. A source
-- is what its addresses are derived from, not its name: what was used once keeps its row and its indexes,
-- also when the config goes back to it.
CREATE TABLE address_sources (
    id         INTEGER PRIMARY KEY,
    -- the config's name for it
    name       TEXT NOT NULL,
    -- 'evm' for all EVM chains together, else the chain's identity
    scope      TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('descriptor', 'evm', 'list')),
    -- SHA-256 of what it derives from; another one under the same name needs an operator
    pin        BLOB NOT NULL CHECK (length(pin) = 32),
    -- a slug: addresses are for this merchant alone; NULL = for each that has no source of its own
    merchant   TEXT,
    -- 1 = the operator's choice for this name
    is_current INTEGER NOT NULL CHECK (is_current IN (0, 1)),
    -- 1 = the config names it now, with this pin
    is_listed  INTEGER NOT NULL CHECK (is_listed IN (0, 1)),
    -- how many are kept ready
    pool_size  INTEGER NOT NULL CHECK (pool_size > 0),
    -- the next index to derive
    next_index INTEGER NOT NULL DEFAULT 0 CHECK (next_index BETWEEN 0 AND 2147483648),
    -- what keeps the pool from being filled, in words; empty = nothing
    trouble    TEXT NOT NULL DEFAULT '',
    added_at   INTEGER NOT NULL,
    UNIQUE (scope, pin)
) STRICT;
CREATE UNIQUE INDEX address_sources_current ON address_sources (name) WHERE is_current = 1;

-- The chains that a source's addresses are watched on: one of Bitcoin's kind, or every EVM chain of the
-- config.
CREATE TABLE address_source_chains (
    source     INTEGER NOT NULL REFERENCES address_sources (id),
    chain      INTEGER NOT NULL REFERENCES chains (id),
    -- 1 = the config names the chain now
    is_listed  INTEGER NOT NULL CHECK (is_listed IN (0, 1)),
    -- addresses below `spread_to` were handed out before the chain was there; from `spread_from` on they are
    -- yet to be watched on it
    spread_from INTEGER NOT NULL DEFAULT 0,
    spread_to   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (source, chain)
) STRICT, WITHOUT ROWID;

-- Addresses that were derived in two ways that agreed. One is free until it is taken, or skipped for good.
CREATE TABLE pool_addresses (
    id         INTEGER PRIMARY KEY,
    source     INTEGER NOT NULL REFERENCES address_sources (id),
    number     INTEGER NOT NULL CHECK (number BETWEEN 0 AND 2147483647),
    -- as in address_sources
    scope      TEXT NOT NULL,
    script     BLOB NOT NULL CHECK (length(script) BETWEEN 1 AND 10000),
    -- 'taken' = handed out, or (of a restored backup) perhaps so by a later state of this database;
    -- 'skipped' = perhaps handed out before a kill, or entered by hand
    state      TEXT NOT NULL CHECK (state = 'free' OR state = 'taken' OR state = 'skipped'),
    derived_at INTEGER NOT NULL,
    taken_at   INTEGER,
    -- an index is derived once, and no script is handed out twice
    UNIQUE (source, number),
    UNIQUE (scope, script),
    CHECK ((state = 'taken') = (taken_at IS NOT NULL))
) STRICT;
CREATE INDEX pool_addresses_free ON pool_addresses (source, number) WHERE state = 'free';
CREATE TRIGGER pool_addresses_once BEFORE UPDATE ON pool_addresses
WHEN OLD.state <> 'free' OR NEW.source <> OLD.source OR NEW.number <> OLD.number OR NEW.script <> OLD.script
BEGIN SELECT RAISE(ABORT, 'an address is handed out once'); END;
CREATE TRIGGER pool_addresses_no_delete BEFORE DELETE ON pool_addresses
BEGIN SELECT RAISE(ABORT, 'addresses of the pool are for ever'); END;

-- Each time that this database turned out to be an older state of itself: a restored backup. Its number is
-- the generation that it began, in one transaction with this row and with what has to be done.
CREATE TABLE restores (
    generation INTEGER PRIMARY KEY CHECK (generation >= 1),
    -- who noticed: the daemon at its start, or an operator said so
    actor      TEXT NOT NULL CHECK (actor IN ('daemon', 'operator')),
    -- by what, in words
    reason     TEXT NOT NULL,
    -- NULL = the file is being opened, where there is no clock yet
    at         INTEGER
) STRICT;

-- What a restore has to do on a chain. By its identity: a chain may have come after the backup was made.
CREATE TABLE restored_chains (
    generation       INTEGER NOT NULL REFERENCES restores (generation),
    caip             TEXT NOT NULL,
    -- where the backup was; NULL = it had read no block
    cursor_height    INTEGER,
    -- EVM: up to where its blocks were final
    finalized_height INTEGER,
    -- where the chain had been followed to before; NULL = nobody knows
    high_water       INTEGER,
    -- 'catching_up' = what came since is being read again, and no address is handed out; 'stating' = the
    -- tip was reached, credits are told anew; 'superseded' = a later restore goes on with it
    state            TEXT NOT NULL CHECK (state IN ('catching_up', 'stating', 'done', 'superseded')),
    -- the tip that ended the catch-up
    tip_height       INTEGER,
    tip_at           INTEGER,
    -- credits of blocks above it are told anew
    stated_above     INTEGER,
    done_at          INTEGER,
    PRIMARY KEY (generation, caip),
    CHECK ((tip_height IS NULL) = (tip_at IS NULL)),
    CHECK ((state = 'done') = (done_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX restored_chains_open ON restored_chains (caip) WHERE state IN ('catching_up', 'stating');

-- Addresses that a later state of this database may have handed out: each is watched before the catch-up.
CREATE TABLE restored_ranges (
    generation  INTEGER NOT NULL REFERENCES restores (generation),
    -- as in address_sources, which may not have the source yet
    scope       TEXT NOT NULL,
    pin         BLOB NOT NULL CHECK (length(pin) = 32),
    first_index INTEGER NOT NULL CHECK (first_index >= 0),
    -- the next to be watched
    next_index  INTEGER NOT NULL,
    -- the first that is not of the range
    end_index   INTEGER NOT NULL,
    -- who took which, as far as is known: JSON of [first, end, slug]
    owners      TEXT NOT NULL,
    -- 'left_out' = an operator said so
    state       TEXT NOT NULL CHECK (state IN ('waiting', 'done', 'left_out', 'superseded')),
    -- what it waits for, in words; empty = nothing
    trouble     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (generation, scope, pin),
    CHECK (first_index <= next_index AND next_index <= end_index)
) STRICT, WITHOUT ROWID;
CREATE INDEX restored_ranges_waiting ON restored_ranges (scope) WHERE state = 'waiting';

-- What a restore tells anew, each once: fixed when the tip is reached, and told from here.
CREATE TABLE restated (
    id         INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL REFERENCES restores (generation),
    chain      INTEGER NOT NULL REFERENCES chains (id),
    kind       TEXT NOT NULL CHECK (kind IN ('credit', 'invoice')),
    subject    TEXT NOT NULL,
    -- the event that told it; NULL = not yet
    event      TEXT UNIQUE REFERENCES events (id),
    UNIQUE (generation, subject)
) STRICT;
CREATE INDEX restated_waiting ON restated (generation, chain, id) WHERE event IS NULL;
CREATE TRIGGER restated_once BEFORE UPDATE ON restated
WHEN OLD.event IS NOT NULL OR NEW.subject <> OLD.subject OR NEW.generation <> OLD.generation
BEGIN SELECT RAISE(ABORT, 'told anew once'); END;

-- Background work, for whoever runs it and for people. What runs by the clock is leased here; what has leases
-- or a place in line of its own (deliveries, mempool lists, rescans, sweeps) only leaves its last run.
CREATE TABLE jobs (
    name        TEXT NOT NULL,
    -- 0 = of no chain
    chain       INTEGER NOT NULL DEFAULT 0,
    -- how often it runs; NULL = as its work comes
    every_ms    INTEGER CHECK (every_ms > 0),
    -- the next run; after a failure it comes sooner
    next_at     INTEGER,
    -- raised by each lease: a run that was overtaken settles nothing
    lease       INTEGER NOT NULL DEFAULT 0,
    -- who has it: the epoch of that daemon, for no lease outlives its daemon; NULL = nobody
    lease_epoch INTEGER,
    lease_until INTEGER,
    -- 1 = there came more to do since it was leased: it runs again as soon as that run has ended
    is_hurried  INTEGER NOT NULL DEFAULT 0 CHECK (is_hurried IN (0, 1)),
    -- the run that ended last, well or not
    started_at  INTEGER,
    ended_at    INTEGER,
    took_ms     INTEGER,
    -- why that one failed; empty = it went well
    error       TEXT NOT NULL DEFAULT '',
    -- the run that went well last, and what it did, in words
    done_at     INTEGER,
    done        TEXT NOT NULL DEFAULT '',
    -- since the job is known
    runs        INTEGER NOT NULL DEFAULT 0,
    -- in a row, up to now
    failures    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, chain),
    CHECK ((lease_epoch IS NULL) = (lease_until IS NULL)),
    CHECK ((every_ms IS NULL) = (next_at IS NULL))
) STRICT, WITHOUT ROWID;

-- What a merchant asked to be paid, and what has become of it. Money is credited whatever is said here.
CREATE TABLE invoices (
    id                   INTEGER PRIMARY KEY,
    -- hash of the address
    inv_id               TEXT NOT NULL UNIQUE,
    merchant             INTEGER NOT NULL REFERENCES merchants (id),
    chain                INTEGER NOT NULL REFERENCES chains (id),
    -- an address has one invoice, for ever: no output can count for two
    address              INTEGER NOT NULL UNIQUE REFERENCES addresses (id),
    asset                INTEGER NOT NULL REFERENCES assets (id),
    -- From here on what was agreed; it stays. First what is asked for.
    amount               TEXT NOT NULL CHECK (amount NOT GLOB '*[^0-9]*' AND length(amount) BETWEEN 1 AND 78
                                              AND amount NOT GLOB '0*'),
    -- the larger of the two less will do: base units, and hundredths of a percent
    tolerance            TEXT NOT NULL CHECK (tolerance NOT GLOB '*[^0-9]*'
                                              AND length(tolerance) BETWEEN 1 AND 78
                                              AND (tolerance = '0' OR tolerance NOT GLOB '0*')),
    tolerance_hundredths INTEGER NOT NULL CHECK (tolerance_hundredths BETWEEN 0 AND 9999),
    -- payments up to it are in time
    expires_at           INTEGER NOT NULL,
    -- NOT NULL = its payments need at least so many, where the policy asks for less
    confirmations        INTEGER CHECK (confirmations >= 1),
    reference            TEXT NOT NULL,
    -- the merchant's own: a JSON object
    metadata             TEXT NOT NULL CHECK (length(metadata) <= 8192),
    -- what its payment page is found by
    token                TEXT NOT NULL UNIQUE,
    -- what is first met in a block below is not for it; NULL = the chain has no start yet
    birth_height         INTEGER,
    -- nor is what was met before it
    after_output         INTEGER NOT NULL,
    created_at           INTEGER NOT NULL,
    -- The decisions. A cancellation stays; that its time was over is withdrawn when enough came in time.
    cancelled_at         INTEGER,
    expired_at           INTEGER,
    -- From here on what follows from all that and the deposits, by rules::invoice.
    amount_state         TEXT NOT NULL CHECK (amount_state IN ('unpaid', 'partial', 'paid', 'overpaid')),
    time_flag            TEXT NOT NULL CHECK (time_flag IN ('in_time', 'late')),
    life                 TEXT NOT NULL CHECK (life IN ('open', 'settled', 'expired', 'cancelled')),
    -- credited payments that count, and those that wait or are held
    paid                 TEXT NOT NULL CHECK (paid NOT GLOB '*[^0-9]*' AND length(paid) BETWEEN 1 AND 78
                                              AND (paid = '0' OR paid NOT GLOB '0*')),
    pending              TEXT NOT NULL CHECK (pending NOT GLOB '*[^0-9]*' AND length(pending) BETWEEN 1 AND 78
                                              AND (pending = '0' OR pending NOT GLOB '0*')),
    -- credited payments to its address that belong to no order: somebody has to look
    strays               INTEGER NOT NULL CHECK (strays >= 0),
    -- 1 = what came in time, waiting payments included, is not enough
    is_short             INTEGER NOT NULL CHECK (is_short IN (0, 1))
) STRICT;
CREATE INDEX invoices_by_merchant ON invoices (merchant, id);
CREATE INDEX invoices_short ON invoices (chain, expires_at) WHERE life = 'open' AND is_short = 1;
CREATE INDEX invoices_strayed ON invoices (chain) WHERE strays > 0;
CREATE INDEX invoices_by_reference ON invoices (reference) WHERE reference <> '';
CREATE TRIGGER invoices_stay BEFORE DELETE ON invoices
BEGIN SELECT RAISE(ABORT, 'invoices are for ever'); END;
CREATE TRIGGER invoices_terms_stay BEFORE UPDATE ON invoices
WHEN (OLD.inv_id, OLD.merchant, OLD.chain, OLD.address, OLD.asset, OLD.amount, OLD.tolerance,
      OLD.tolerance_hundredths, OLD.expires_at, OLD.confirmations, OLD.reference, OLD.metadata, OLD.token,
      OLD.after_output, OLD.created_at)
     IS NOT (NEW.inv_id, NEW.merchant, NEW.chain, NEW.address, NEW.asset, NEW.amount, NEW.tolerance,
      NEW.tolerance_hundredths, NEW.expires_at, NEW.confirmations, NEW.reference, NEW.metadata, NEW.token,
      NEW.after_output, NEW.created_at)
  OR (OLD.birth_height IS NOT NULL AND OLD.birth_height IS NOT NEW.birth_height)
  OR (OLD.cancelled_at IS NOT NULL AND OLD.cancelled_at IS NOT NEW.cancelled_at)
BEGIN SELECT RAISE(ABORT, 'what was agreed of an invoice stays'); END;

-- Webhooks of others, each believed before it got here. One row per event of a source, for ever: whoever
-- sends it again finds it. What it does is done from here, in the transaction that says so.
CREATE TABLE inbox (
    id          INTEGER PRIMARY KEY,
    -- hash of source and event id
    in_id       TEXT NOT NULL UNIQUE,
    -- the config's name of who sends
    source      TEXT NOT NULL,
    -- from signed bytes
    event_id    TEXT NOT NULL CHECK (length(event_id) BETWEEN 1 AND 256),
    -- SHA-256 of what the event holds, without what only tells of a delivery
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    -- as it was signed; NULL once it is no longer kept
    body        BLOB CHECK (length(body) <= 65536),
    state       TEXT NOT NULL CHECK (state IN ('waiting', 'done', 'parked')),
    -- runs that failed, since it came or was last asked to be tried again
    attempts    INTEGER NOT NULL DEFAULT 0,
    -- the next run of one that waits
    next_at     INTEGER NOT NULL,
    -- what it did; of one that did nothing yet, why its last run failed
    effect      TEXT CHECK (effect IN ('credit.external', 'deposit.hint', 'forward', 'nothing')),
    note        TEXT NOT NULL DEFAULT '',
    received_at INTEGER NOT NULL,
    settled_at  INTEGER,
    -- times that it came again, and when it came last
    duplicates  INTEGER NOT NULL DEFAULT 0,
    last_at     INTEGER NOT NULL,
    UNIQUE (source, event_id),
    CHECK ((state = 'waiting') = (settled_at IS NULL)),
    CHECK ((state = 'done') = (effect IS NOT NULL)),
    CHECK (state = 'done' OR body IS NOT NULL)
) STRICT;
CREATE INDEX inbox_waiting ON inbox (next_at) WHERE state = 'waiting';
CREATE INDEX inbox_parked ON inbox (source) WHERE state = 'parked';
CREATE INDEX inbox_with_body ON inbox (source, settled_at) WHERE body IS NOT NULL AND state = 'done';
CREATE TRIGGER inbox_no_delete BEFORE DELETE ON inbox
BEGIN SELECT RAISE(ABORT, 'what came in is remembered for ever'); END;
CREATE TRIGGER inbox_stays BEFORE UPDATE ON inbox
WHEN NEW.source <> OLD.source OR NEW.event_id <> OLD.event_id OR NEW.fingerprint <> OLD.fingerprint
  OR (NEW.body IS NOT NULL AND NEW.body IS NOT OLD.body) OR (OLD.state = 'done' AND NEW.state <> 'done')
BEGIN SELECT RAISE(ABORT, 'what came in stays as it came'); END;

-- The same event with another content: one of the two is false, and somebody has to look. It does nothing.
CREATE TABLE inbox_aside (
    inbox       INTEGER NOT NULL REFERENCES inbox (id),
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    body        BLOB NOT NULL CHECK (length(body) <= 65536),
    received_at INTEGER NOT NULL,
    PRIMARY KEY (inbox, fingerprint)
) STRICT, WITHOUT ROWID;

-- Outputs that a credit of another provider names. A deposit that is found there is held: it would be
-- credited a second time.
CREATE TABLE external_outputs (
    credit TEXT PRIMARY KEY REFERENCES credits (id),
    txid   BLOB NOT NULL CHECK (length(txid) = 32),
    -- NULL = any output of the transaction
    vout   INTEGER CHECK (vout >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX external_outputs_by_txid ON external_outputs (txid);

-- Counts for the metrics, kept by the triggers below (and for 'reorgs' by the step that disconnects), so that
-- a scrape reads a few rows instead of whole tables. No decision is taken by them, and one that drifted must
-- stop no payment: there is no CHECK, and no count leaves the range of an integer.
CREATE TABLE tallies (
    -- 'deposits', 'journal', 'duplicates', 'reorgs', 'invoices', 'strays', 'deliveries', 'attempts' or
    -- 'inbox'
    subject TEXT NOT NULL,
    -- 0 = of no chain
    chain   INTEGER NOT NULL,
    -- the state, the journal entry's kind, the depth of the reorg, the outcome
    kind    TEXT NOT NULL,
    count   INTEGER NOT NULL,
    PRIMARY KEY (subject, chain, kind)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER deposits_tally_new AFTER INSERT ON deposits
BEGIN
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('deposits', NEW.chain, NEW.state, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER deposits_tally_move AFTER UPDATE OF state ON deposits WHEN NEW.state <> OLD.state
BEGIN
    UPDATE tallies SET count = max(0, count - 1)
    WHERE subject = 'deposits' AND chain = OLD.chain AND kind = OLD.state;
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('deposits', NEW.chain, NEW.state, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER journal_tally AFTER INSERT ON journal
BEGIN
    INSERT INTO tallies (subject, chain, kind, count)
    SELECT 'journal', chain, NEW.kind, 1 FROM credits WHERE id = NEW.credit
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER duplicates_tally AFTER UPDATE OF duplicates ON outputs WHEN NEW.duplicates > OLD.duplicates
BEGIN
    INSERT INTO tallies (subject, chain, kind, count)
    SELECT 'duplicates', chain, '', NEW.duplicates - OLD.duplicates FROM txs WHERE id = NEW.tx
    ON CONFLICT (subject, chain, kind) DO UPDATE
    SET count = min(count, 9223372036854775807 - excluded.count) + excluded.count;
END;
CREATE TRIGGER invoices_tally_new AFTER INSERT ON invoices
BEGIN
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('invoices', NEW.chain, NEW.life, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER invoices_tally_move AFTER UPDATE OF life ON invoices WHEN NEW.life <> OLD.life
BEGIN
    UPDATE tallies SET count = max(0, count - 1)
    WHERE subject = 'invoices' AND chain = OLD.chain AND kind = OLD.life;
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('invoices', NEW.chain, NEW.life, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
-- Each time that one came: a reorg that takes it away takes nothing from the count.
CREATE TRIGGER strays_tally AFTER UPDATE OF strays ON invoices WHEN NEW.strays > OLD.strays
BEGIN
    INSERT INTO tallies (subject, chain, kind, count)
    VALUES ('strays', NEW.chain, '', NEW.strays - OLD.strays)
    ON CONFLICT (subject, chain, kind) DO UPDATE
    SET count = min(count, 9223372036854775807 - excluded.count) + excluded.count;
END;
CREATE TRIGGER deliveries_tally_new AFTER INSERT ON deliveries
BEGIN
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('deliveries', 0, NEW.state, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER deliveries_tally_move AFTER UPDATE OF state ON deliveries WHEN NEW.state <> OLD.state
BEGIN
    UPDATE tallies SET count = max(0, count - 1)
    WHERE subject = 'deliveries' AND chain = 0 AND kind = OLD.state;
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('deliveries', 0, NEW.state, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER attempts_tally AFTER INSERT ON attempts
BEGIN
    INSERT INTO tallies (subject, chain, kind, count)
    VALUES ('attempts', 0, CASE WHEN NEW.status IS NULL THEN 'unanswered'
                                WHEN NEW.status BETWEEN 200 AND 299 THEN 'delivered'
                                ELSE 'refused' END, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER inbox_tally_new AFTER INSERT ON inbox
BEGIN
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('inbox', 0, NEW.state, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER inbox_tally_aside AFTER INSERT ON inbox_aside
BEGIN
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('inbox', 0, 'set_aside', 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;
CREATE TRIGGER inbox_tally_move AFTER UPDATE OF state ON inbox WHEN NEW.state <> OLD.state
BEGIN
    UPDATE tallies SET count = max(0, count - 1)
    WHERE subject = 'inbox' AND chain = 0 AND kind = OLD.state;
    INSERT INTO tallies (subject, chain, kind, count) VALUES ('inbox', 0, NEW.state, 1)
    ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + 1;
END;

-- Runs of the audit, which asks the chain and the books anew. Nothing else reads or writes the tables below:
-- losing their rows costs time, and no money.
CREATE TABLE audit_runs (
    id         INTEGER PRIMARY KEY,
    actor      TEXT NOT NULL CHECK (actor IN ('daemon', 'operator')),
    started_at INTEGER NOT NULL,
    -- NULL = under way, or cut off
    ended_at   INTEGER,
    -- what it found, as JSON
    report     TEXT,
    CHECK ((ended_at IS NULL) = (report IS NULL))
) STRICT;

-- The ledger's beginning as the audit hashed it last: it is hashed again before the next is kept.
CREATE TABLE audit_ledger (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    credits INTEGER NOT NULL,
    journal INTEGER NOT NULL,
    sha256  BLOB NOT NULL CHECK (length(sha256) = 32),
    at      INTEGER NOT NULL
) STRICT;

-- Blocks that the audit went past and could not read, or not wholly, or not a second time where they did not
-- agree. Each run tries them again from the first of a stretch on, until one cannot be read.
CREATE TABLE audit_unread (
    chain       INTEGER NOT NULL REFERENCES chains (id),
    from_height INTEGER NOT NULL,
    to_height   INTEGER NOT NULL,
    -- why the first could not be read
    why         TEXT NOT NULL,
    PRIMARY KEY (chain, from_height),
    CHECK (from_height <= to_height)
) STRICT, WITHOUT ROWID;

-- Up to where a pass of the audit has come; it goes on there.
CREATE TABLE audit_marks (
    chain    INTEGER NOT NULL REFERENCES chains (id),
    pass     TEXT NOT NULL CHECK (pass IN ('credits', 'outputs', 'evidence')),
    -- 'credits': the last credit's rowid; 'outputs': the next height; 'evidence': the last journal entry
    place    INTEGER NOT NULL,
    -- 'outputs': blocks below that height as they were read, the fewer the deeper: {height: hash}
    trail    TEXT NOT NULL DEFAULT '{}',
    -- 'outputs': the list version that it was read with ...
    version  INTEGER NOT NULL DEFAULT 0,
    -- ... and of tokens: {contract: the height that it counts from}
    tokens   TEXT NOT NULL DEFAULT '{}',
    -- when it was last through
    round_at INTEGER,
    PRIMARY KEY (chain, pass)
) STRICT, WITHOUT ROWID;

-- What does not agree; one row for each, however often it is met.
CREATE TABLE audit_findings (
    id       INTEGER PRIMARY KEY,
    -- NULL = of the books as a whole
    chain    INTEGER REFERENCES chains (id),
    -- who found it, and alone takes it back
    pass     TEXT NOT NULL CHECK (pass IN ('books', 'credits', 'overdue', 'outputs', 'unspent')),
    kind     TEXT NOT NULL,
    subject  TEXT NOT NULL,
    -- the block that shows it, where it is one
    height   INTEGER,
    what     TEXT NOT NULL,
    found_at INTEGER NOT NULL,
    seen_at  INTEGER NOT NULL,
    -- NULL = it stands
    gone_at  INTEGER
) STRICT;
CREATE UNIQUE INDEX audit_findings_once ON audit_findings (pass, kind, coalesce(chain, 0), subject);
CREATE INDEX audit_findings_standing ON audit_findings (chain) WHERE gone_at IS NULL;

-- Proofs of credits: what those of one block share ...
CREATE TABLE evidence_blocks (
    chain  INTEGER NOT NULL REFERENCES chains (id),
    hash   BLOB NOT NULL CHECK (length(hash) = 32),
    height INTEGER NOT NULL,
    -- a binary form, its version first; NULL = its credits share nothing, or nothing could be had yet
    body   BLOB,
    PRIMARY KEY (chain, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX evidence_blocks_by_height ON evidence_blocks (chain, height);

-- ... and what each has of its own. A credit that a reorg moved has one for each block that it was in.
CREATE TABLE evidence (
    credit  TEXT NOT NULL REFERENCES credits (id),
    block   BLOB NOT NULL CHECK (length(block) = 32),
    -- NULL = it could not be had: `why`
    body    BLOB,
    why     TEXT NOT NULL DEFAULT '',
    made_at INTEGER NOT NULL,
    -- how often nodes were asked for it
    tries   INTEGER NOT NULL DEFAULT 1 CHECK (tries >= 1),
    -- when they are asked again, for it or for a better one; NULL = no more
    next_at INTEGER,
    PRIMARY KEY (credit, block),
    CHECK ((body IS NULL) = (why <> ''))
) STRICT, WITHOUT ROWID;
CREATE INDEX evidence_waiting ON evidence (next_at) WHERE next_at IS NOT NULL;
