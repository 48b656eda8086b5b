package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// holder is the name of the CPU time of the sessions that hold back vacuum.
const holder = "holder"

// hold holds back vacuum until release is called.
func (r *heldRun) hold() (release func()) {
	switch r.Kind {
	case "snapshot":
		conn := r.connect()
		r.exec(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT")
		return func() { r.exec(conn, "ROLLBACK") }
	case "queries":
		return r.holdByQueries()
	case "slot":
		r.check(r.holdBySlot())
		return func() { r.exec(r.conn, "SELECT pg_drop_replication_slot('held')") }
	}
	return func() {}
}

// connect opens a session, which ends with the run: if it ended before, its CPU time would count as PostgreSQL's.
func (r *heldRun) connect() *pgx.Conn {
	conn, err := pgx.Connect(r.ctx, r.databaseURL)
	if err != nil {
		r.fail(fmt.Errorf("connect to the database: %w", err))
		return r.conn
	}
	context.AfterFunc(r.ctx, func() { _ = conn.Close(context.Background()) })
	r.apart[int(conn.PgConn().PID())] = holder
	return conn
}

func (r *heldRun) exec(conn *pgx.Conn, sql string) {
	_, err := conn.PgConn().Exec(r.ctx, sql).ReadAll()
	r.check(err)
}

// reportQuery is an analytic query that takes $1 seconds; most of them it sleeps.
const reportQuery = `
WITH report AS MATERIALIZED (
    SELECT topic, subscription, state, date_trunc('minute', published_at) AS minute, count(*) AS deliveries,
           sum(attempts) AS attempts, max(finished_at - published_at) AS longest,
           percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - published_at)) AS p99
      FROM postrider.deliveries GROUP BY 1, 2, 3, 4
)
SELECT (SELECT sum(deliveries) FROM report),
       pg_sleep(greatest($1::float8 - extract(epoch FROM clock_timestamp() - statement_timestamp()), 0))`

// holdByQueries has three sessions run one query after the other. The first ones are shorter, so that one ends every
// third of their duration.
func (r *heldRun) holdByQueries() (release func()) {
	const queries = 3
	ctx, stop := context.WithCancel(r.ctx)
	var running sync.WaitGroup
	var conns []*pgx.Conn
	for i := range queries {
		conn := r.connect()
		conns = append(conns, conn)
		r.exec(conn, "SET max_parallel_workers_per_gather = 0") // their CPU time would count as PostgreSQL's
		seconds := r.QueryDuration.Seconds() * float64(i+1) / queries
		running.Go(func() {
			for ; ctx.Err() == nil; seconds = r.QueryDuration.Seconds() {
				if _, err := conn.Exec(r.ctx, reportQuery, seconds); err != nil && ctx.Err() == nil {
					r.fail(fmt.Errorf("query: %w", err))
				}
			}
		})
	}
	return func() {
		stop()
		for _, conn := range conns {
			r.check(conn.PgConn().CancelRequest(r.ctx))
		}
		running.Wait()
	}
}

// holdBySlot creates a replication slot that does not advance, like that of a standby with hot_standby_feedback that is
// gone. It keeps the write-ahead log and the oldest transaction that the standby reported.
func (r *heldRun) holdBySlot() error {
	config, err := pgconn.ParseConfig(r.databaseURL)
	if err != nil {
		return err
	}
	config.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(r.ctx, config)
	if err != nil {
		return fmt.Errorf("connect as a standby: %w", err)
	}
	defer conn.Close(r.ctx)
	if _, err := conn.Exec(r.ctx, "CREATE_REPLICATION_SLOT held PHYSICAL RESERVE_WAL").ReadAll(); err != nil {
		return fmt.Errorf("create a replication slot: %w", err)
	}
	var start string
	var oldest int64 // with its epoch
	r.row(`SELECT restart_lsn::text, pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM pg_replication_slots`,
		nil, &start, &oldest)
	// Hot standby feedback: time, xmin, its epoch, and no catalog_xmin.
	feedback := binary.BigEndian.AppendUint64([]byte{'h'}, 0)
	feedback = binary.BigEndian.AppendUint32(feedback, uint32(oldest))
	feedback = binary.BigEndian.AppendUint32(feedback, uint32(oldest>>32))
	feedback = binary.BigEndian.AppendUint64(feedback, 0)
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT held PHYSICAL " + start})
	conn.Frontend().Send(&pgproto3.CopyData{Data: feedback})
	if err := conn.Frontend().Flush(); err != nil {
		return err
	}
	for held := false; !held && pause(r.ctx, 10*time.Millisecond); {
		r.row("SELECT xmin IS NOT NULL FROM pg_replication_slots", nil, &held)
	}
	return nil
}

// tableState is the state of the tables.
type tableState struct {
	// Dead is the number of dead rows. DeadRows and TableMB, with indexes, are of the tables with more than 1,000.
	Dead     int64              `json:"dead"`
	DeadRows map[string]int64   `json:"deadRows"`
	TableMB  map[string]float64 `json:"tableMB"`
	// HorizonAge is the number of transactions since the oldest one that vacuum must respect. RetainedWALMB is the
	// write-ahead log that a replication slot keeps.
	HorizonAge    int64   `json:"horizonAge"`
	RetainedWALMB float64 `json:"retainedWalMB"`

	died int64 // rows that were updated or deleted so far
}

const tableStateQuery = `
WITH tables AS (
    SELECT *, n_dead_tup > 1000 AS many FROM pg_stat_user_tables WHERE schemaname = 'postrider_internal'
), slots AS (
    SELECT age(xmin) AS age, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn) AS wal FROM pg_replication_slots
)
SELECT coalesce(json_object_agg(relname, n_dead_tup) FILTER (WHERE many), '{}'),
       coalesce(json_object_agg(relname, round(pg_total_relation_size(relid) / 1e6, 1)) FILTER (WHERE many), '{}'),
       (SELECT greatest(max(age(backend_xmin)), (SELECT max(age) FROM slots)) FROM pg_stat_activity),
       round(coalesce((SELECT max(wal) FROM slots), 0) / 1e6, 1)::float8,
       coalesce(sum(n_dead_tup), 0)::bigint, coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint
  FROM tables`

func (r *heldRun) tableState() (t tableState) {
	r.row(tableStateQuery, nil, &t.DeadRows, &t.TableMB, &t.HorizonAge, &t.RetainedWALMB, &t.Dead, &t.died)
	return t
}

// watch waits until end, and notes when the rows are removed that were dead at the release, not counting those that
// died since then.
func (r *heldRun) watch(end time.Time) {
	for r.dead != nil && time.Until(end) > time.Second && pause(r.ctx, time.Second/2) {
		if now := r.tableState(); now.Dead <= now.died-r.dead.died+r.dead.Dead/100 {
			r.report.RemovedSeconds, r.dead = round(time.Since(r.report.released).Seconds(), 1), nil
		}
	}
	r.waitUntil(end)
}
