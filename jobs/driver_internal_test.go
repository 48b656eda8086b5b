package jobs

import (
	"context"
	"testing"

	"postrider/jobs/queue"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
)

// recording is an executor that records the jobs it was to finish.
type recording struct {
	riverdriver.Executor
	params []*riverdriver.JobSetStateIfRunningManyParams
}

func (r *recording) JobSetStateIfRunningMany(
	_ context.Context, p *riverdriver.JobSetStateIfRunningManyParams,
) ([]*rivertype.JobRow, error) {
	r.params = append(r.params, p)
	return make([]*rivertype.JobRow, len(p.ID)), nil
}

func finishing(ids ...int64) *riverdriver.JobSetStateIfRunningManyParams {
	p := &riverdriver.JobSetStateIfRunningManyParams{ID: ids, Schema: "s"}
	for _, id := range ids {
		attempt := int(id)
		p.Attempt, p.ErrData, p.FinalizedAt = append(p.Attempt, &attempt), append(p.ErrData, []byte{byte(id)}),
			append(p.FinalizedAt, nil)
		p.MetadataDoMerge, p.MetadataUpdates = append(p.MetadataDoMerge, id%2 == 0), append(p.MetadataUpdates,
			[]byte{byte(id)})
		p.ScheduledAt, p.State = append(p.ScheduledAt, nil), append(p.State, rivertype.JobStateCompleted)
	}
	return p
}

func TestRiverFinishesOnlyJobsThatMayExist(t *testing.T) {
	t.Parallel()
	under, ended := &recording{}, queue.NewJobSet()
	e := executor{Executor: under, engine: &Engine{ended: ended}}
	for _, id := range []int64{1, 3, 4} {
		ended.Add(id)
	}

	rows, err := e.JobSetStateIfRunningMany(t.Context(), finishing(1, 2, 3, 5))
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, finishing(2, 5), under.params[0], "every column without the jobs that ended")

	_, err = e.JobSetStateIfRunningMany(t.Context(), finishing(1, 3))
	require.NoError(t, err)
	require.Equal(t, finishing(1, 3), under.params[1], "forgotten after one use")

	rows, err = e.JobSetStateIfRunningMany(t.Context(), finishing(4))
	require.NoError(t, err)
	require.Empty(t, rows)
	require.Len(t, under.params, 2, "no statement without jobs")
	require.Zero(t, ended.Len())
}
