package queue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Owner is a table whose rows own a job each: a route its next step, a handshake its next request, an export its next try, an
// operation its next step. Row and job change in one transaction, and only the statement that deletes the job moves the row on;
// what comes next is another job. A job that no row names is nobody's token. So all of them are taken up and mended alike.
type Owner struct {
	Table       string // of schema postrider_internal; its column job_id names the job
	unfinished  string // which rows o own a job
	kind, Queue string
	argument    string // of the job: the row's id
	mended      string // priority of a job that the sweeper inserts
}

// The tables whose rows own jobs.
var (
	Routes     = &Owner{"routes", "true", RouteKind, RouteQueue, "route", "1"}
	Handshakes = &Owner{"handshakes", "o.state = 'pending'", HandshakeKind, HandshakeQueue, "h", "3"}
	Exports    = &Owner{"exports", "true", ExportKind, ExportQueue, "x", "1"}
	Operations = &Owner{"operations", "o.state = 'running'", OperationKind, OperationQueue, "o", "1"}
)

// SQL fills an owner's names into a statement. They are ours, nobody else's text is among them.
func (o *Owner) SQL(statement string, more ...string) string {
	return strings.NewReplacer(append([]string{
		"{table}", "postrider_internal." + o.Table, "{unfinished}", o.unfinished, "{kind}", o.kind, "{queue}", o.Queue, "{argument}", o.argument, "{mended}", o.mended,
	}, more...)...).Replace(statement)
}

// Jobs inserts the jobs of the rows named: each has its own id and its job's. They are stored as available although some are due in
// minutes: of these there are few, and the promoter is for deliveries.
func (o *Owner) Jobs(priority, due, rows string) string {
	return o.SQL(`
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('{argument}', id), '{kind}', '{queue}', ` + priority + `, 1000, ` + due + ` FROM ` + rows)
}

// reclaimOwned replaces the running jobs of the lost by new rows, which are due after a while. What an old one has made is committed with
// its owner's place, and what it was about to make needs the old row. A request that was sent, or a file, is made again.
func (q *JobRows) reclaimOwned(ctx context.Context, o *Owner, after time.Duration, whose string, args ...any) (gone int, err error) {
	due := fmt.Sprintf("now() + interval '%d milliseconds'", after.Milliseconds())
	statement := o.SQL(`
WITH found AS (
    SELECT j.id FROM postrider_internal.river_job j WHERE j.queue = '{queue}' AND j.kind = '{kind}' AND {whose} ORDER BY j.id FOR UPDATE SKIP LOCKED
), lost AS (
    DELETE FROM postrider_internal.river_job j USING found WHERE j.id = found.id RETURNING j.id, j.priority
), followed AS (
    UPDATE {table} o SET job_id = nextval('postrider_internal.river_job_id_seq') FROM lost WHERE o.job_id = lost.id AND {unfinished} RETURNING o.id, o.job_id, lost.priority
), jobs AS (`+o.Jobs("priority", due, "followed")+`
)
SELECT (SELECT count(*) FROM lost), (SELECT count(*) FROM followed)`, "{whose}", whose)
	var followed int
	if err := q.db.QueryRow(ctx, statement, args...).Scan(&gone, &followed); err != nil {
		return 0, fmt.Errorf("reclaim %s jobs: %w", o.kind, err)
	}
	if followed > 0 {
		q.notifier.PokeQueue(ctx, o.Queue)
	}
	return gone, nil
}
